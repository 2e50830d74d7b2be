//! What the engine promises, shown on real Postgres. Modules mirror `src/`.

mod claim;
mod examples;
mod finish;
mod scripts;
mod sql;
mod support;
mod worker;
