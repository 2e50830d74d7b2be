//! The work `limit`: jobs of many keys, at most one of each key at a time. It is apart from the other works
//! because builds without limits per key have no call for it.

use std::ops::Range;

use anyhow::Result;
use compare_driver::{Lacking, Options};
use leasehold::Leasehold;

/// Stores jobs that a limit per key holds back.
pub async fn enqueue(_engine: &Leasehold, _options: &Options, _jobs: Range<u64>) -> Result<()> {
    Err(Lacking("not in this build").into())
}
