//! Mirrors: a store that equals rows of a table, through faults of either.

mod barriers;
mod changes;
mod check;
mod child;
mod coalesce;
mod concurrent_changes;
mod declared;
mod differences;
mod direct;
mod fairness;
mod fixture;
mod outage_end_to_end;
mod outages;
mod passes;
mod planner;
mod rebuild;
#[cfg(feature = "redis")]
mod redis;
mod saves;
mod second_set;
mod versions;
