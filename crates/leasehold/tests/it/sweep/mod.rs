//! Sweeps: rows of a table that is not ours, each finished once.

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
mod shelf;
mod stories;
mod watchdog;
