//! Sweeps: rows of a table that the engine does not own, each finished once.

mod basics;
mod child;
mod declared;
mod failures;
mod fence;
pub mod fixture;
mod gates;
mod interleave;
mod planner;
#[cfg(feature = "redis")]
mod redis;
mod roles;
mod runs;
mod slow;
mod tables;
mod watchdog;
mod workers;
