//! Mirrors: a store that equals rows of a table, whatever happens to either.

mod barriers;
mod changes;
mod check;
mod child;
mod coalesce;
mod declared;
mod direct;
mod meanwhile;
mod notes;
mod outages;
mod passes;
mod pending;
mod planner;
mod rebuild;
#[cfg(feature = "redis")]
mod redis;
mod saves;
mod second;
mod shares;
mod stories;
mod versions;
