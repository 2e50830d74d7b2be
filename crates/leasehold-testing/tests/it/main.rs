//! One test binary; modules mirror `src`.

mod postgres;
