//! What the engine promises, shown on real Postgres. Modules mirror `src/`.

mod faults;
mod rig;
mod support;
mod worker;
