//! What the engine promises, shown on real Postgres. Modules mirror `src/`.

mod support;
mod worker;
