//! Sweeps: rows of a table that the engine does not own, each finished once.

mod basics;
mod child;
mod declared;
mod failures;
mod fence;
mod gates;
mod interleave;
mod planner;
#[cfg(feature = "redis")]
mod redis;
mod roles;
mod runs;
pub mod shelf;
mod slow;
mod stories;
mod tables;
mod watchdog;
