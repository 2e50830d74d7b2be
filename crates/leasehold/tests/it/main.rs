//! What the engine promises, shown on real Postgres. Modules mirror `src/`.

mod examples;
mod scripts;
mod support;
mod worker;
