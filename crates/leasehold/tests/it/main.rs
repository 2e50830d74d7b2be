//! What the engine promises, shown on real Postgres. Modules mirror `src/`.

mod claim;
mod enqueue;
mod finish;
mod keys;
mod roles;
mod sql;
mod rig;
mod support;
mod worker;
