//! What the engine promises, shown on real Postgres. Modules mirror `src/`.

mod rig;
mod support;
mod worker;
