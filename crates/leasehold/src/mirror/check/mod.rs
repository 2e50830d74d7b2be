//! Compares the whole table with the whole store. `checker` goes through ranges and compares digests,
//! `differences` finds the rows that differ, `purge` forgets old deletions.

mod checker;
mod differences;
mod fingerprint;
mod purge;

pub use checker::CheckReport;
pub use fingerprint::fingerprint;

pub(crate) use checker::Checker;
pub(crate) use differences::{Comparer, Piece};
pub(crate) use purge::purge;
