//! What the engine promises, shown on real Postgres. Modules mirror `src/`.

mod adapters;
mod claim;
mod enqueue;
mod examples;
mod finish;
mod keys;
mod rig;
mod roles;
mod scripts;
mod sql;
mod support;
mod worker;
