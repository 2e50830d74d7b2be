//! What the engine promises, shown on real Postgres. Modules mirror `src/`.

mod claim;
mod finish;
mod sql;
mod support;
mod worker;
