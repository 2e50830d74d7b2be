//! One test binary; modules mirror `src`.

mod cancel;
mod database;
mod pgbouncer;
mod postgres;
mod proxy;
mod stepper;
