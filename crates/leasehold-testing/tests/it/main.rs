//! One test binary; modules mirror `src`.

mod database;
mod postgres;
