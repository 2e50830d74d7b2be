//! What the engine promises, shown on real Postgres. Modules mirror `src/`.

mod claim;
mod enqueue;
mod expire;
mod finish;
mod keys;
mod people;
mod roles;
mod sql;
mod support;
mod worker;
