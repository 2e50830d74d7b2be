//! One test binary; modules mirror `src`.

mod database;
mod pgbouncer;
mod postgres;
mod proxy;
