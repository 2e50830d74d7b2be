//! What the engine promises, shown on real Postgres. Modules mirror `src/`.

mod cancel_safety;
mod claim;
mod enqueue;
mod examples;
mod faults;
mod finish;
mod keys;
mod processes;
mod rig;
mod roles;
mod scripts;
mod sql;
mod support;
mod worker;
