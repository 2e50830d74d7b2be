//! What the engine promises, shown on real Postgres. Modules mirror `src/`.

mod claim;
mod deadlock;
mod enqueue;
mod expire;
mod finish;
mod history;
mod interleave;
mod isolation;
mod keys;
mod migrate;
mod once;
mod people;
mod plain_sql;
mod postgres_faults;
mod planner;
mod roles;
mod schedule;
mod sql;
mod support;
mod worker;
