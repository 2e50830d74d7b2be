//! What the engine promises, shown on real Postgres. Modules mirror `src/`.

mod claim;
mod enqueue;
mod expire;
mod finish;
mod history;
mod keys;
mod once;
mod people;
mod roles;
mod sql;
mod support;
mod worker;
