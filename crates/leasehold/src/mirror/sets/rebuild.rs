//! A rebuild: fills a second set of documents, proves it equal, and swaps it in.
//!
//! # Invariants
//! - As soon as the database has the second set, every write goes to both sets, and a job completes
//!   only when both have its row. So a change that comes after the fill has passed its row is not
//!   missed.
//! - Searches use the second set only after it was proven equal to the table.
//! - The former set still gets every write, so a rollback is the same swap again.
//! - Each step is recorded with a condition. A worker that finds an unfinished rebuild continues it.
//! - A rebuild survives an outage of the store: see `prove`.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio_postgres::types::Type;

use super::prove::Builder;
use super::set_store::{Phase, State};
use super::target::Targets;
use crate::mirror::MirrorError;
use crate::mirror::declare::Store;
use crate::mirror::runtime::MirrorRuntime;
use crate::mirror::sync::StoreThrottle;

/// What a rebuild did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RebuildReport {
    /// Rows that this call wrote into the second set.
    pub rows: u64,
    /// Rows that were repaired before the swap.
    pub repaired: u64,
    /// Rows that the new set refuses for good, and that the former one does not have either. The log
    /// has the reasons. A document that is searched now is never dropped: the rebuild stops instead.
    pub refused: u64,
    /// The set that is searched now.
    pub serving: String,
    /// The former set, which is kept.
    pub former: String,
    /// How long the rebuild took.
    pub took: Duration,
}

/// Rebuilds a mirror, and swaps its sets.
pub(crate) struct Rebuilder<'a> {
    runtime: &'a MirrorRuntime,
}

impl<'a> Rebuilder<'a> {
    pub(crate) fn new(runtime: &'a MirrorRuntime) -> Self {
        Self { runtime }
    }

    /// Fills a second set, proves it equal and swaps it in.
    pub(crate) async fn rebuild(&self) -> Result<RebuildReport, MirrorError> {
        let started = Instant::now();
        let throttle = StoreThrottle::default();
        let mut builder = Builder::new(self.runtime, &throttle);
        let mut begun = false;
        // A rebuild begins only if the store reports which set it searches. Once begun, it survives an
        // outage.
        let mut known = Some(self.known_state().await?);
        loop {
            let state = match known.take() {
                Some(state) => state,
                None => self.written_state().await?,
            };
            match (state.phase, state.second.clone()) {
                (Phase::None, _) if begun => {
                    return Err(MirrorError::State(format!(
                        "the second set of mirror {:?} was dropped while it was built",
                        self.runtime.name()
                    )));
                }
                (Phase::None, _) => {
                    self.begin().await?;
                    begun = true;
                }
                (Phase::Building, Some(second)) => {
                    begun = true;
                    builder.fill(&second, state.rebuild_after).await?;
                }
                (Phase::Verifying, Some(second)) => {
                    begun = true;
                    builder.verify().await?;
                    self.swap(&second).await?;
                }
                (Phase::Swapped, Some(former)) if begun => {
                    let RebuildReport { rows, repaired, refused, .. } = builder.report;
                    tracing::info!(
                        mirror = self.runtime.name(),
                        rows,
                        repaired,
                        refused,
                        "rebuilt"
                    );
                    let (serving, took) = (state.serving, started.elapsed());
                    return Ok(RebuildReport { serving, former, took, ..builder.report });
                }
                _ => {
                    return Err(MirrorError::State(format!(
                        "mirror {:?} still has the set it had before its last rebuild; drop that first",
                        self.runtime.name()
                    )));
                }
            }
        }
    }

    /// Returns true if a rebuild has ended since then.
    pub(crate) async fn was_rebuilt_since(&self, since: Timestamp) -> Result<bool, MirrorError> {
        let sql = "select coalesce(rebuild_ended_at >= $2, false) from leasehold_internal.mirror where name = $1";
        let params =
            [(&self.runtime.mirror.name as _, Type::TEXT), (&since as _, Type::TIMESTAMPTZ)];
        let rows = self.runtime.source.query(sql, &params).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    fn many(&self) -> Result<&'a dyn Targets, MirrorError> {
        match self.runtime.mirror.store()? {
            Store::Many(targets) => Ok(&**targets),
            Store::One(_) => Err(MirrorError::State(format!(
                "the store of mirror {:?} can have one set of documents only; it cannot be rebuilt \
                 beside itself. Let the check repair it, or declare it with .targets(…)",
                self.runtime.name()
            ))),
        }
    }

    /// Returns the recorded state, after making sure that there is one.
    async fn known_state(&self) -> Result<State, MirrorError> {
        self.many()?;
        self.runtime.sets.written().await?;
        self.written_state().await
    }

    /// Returns the recorded state. Does not call the store.
    async fn written_state(&self) -> Result<State, MirrorError> {
        self.runtime.sets.state().await?.ok_or_else(|| {
            MirrorError::State(format!("mirror {:?} has no sets of documents", self.runtime.name()))
        })
    }

    async fn begin(&self) -> Result<(), MirrorError> {
        let targets = self.many()?;
        let made = self.runtime.calls.call(targets.create()).await?;
        let params = [(&self.runtime.mirror.name as _, Type::TEXT), (&made as _, Type::TEXT)];
        let rows = self
            .runtime
            .source
            .query("select leasehold_internal.begin_rebuild($1, $2)", &params)
            .await?;
        if !rows.first().is_some_and(|row| row.get(0)) {
            // Another worker has begun a rebuild: its set is the second set.
            self.runtime.calls.call(targets.remove(&made)).await?;
        }
        Ok(())
    }

    async fn swap(&self, to: &str) -> Result<(), MirrorError> {
        // The store first: both sets get every write, so a search in between finds the same.
        self.runtime.calls.call(self.many()?.swap(to)).await?;
        let params = [(&self.runtime.mirror.name as _, Type::TEXT), (&to as _, Type::TEXT)];
        self.runtime.source.query("select leasehold_internal.note_swap($1, $2)", &params).await?;
        Ok(())
    }

    pub(crate) async fn roll_back(&self) -> Result<String, MirrorError> {
        let state = self.known_state().await?;
        match (state.phase, state.second) {
            (Phase::Swapped, Some(former)) => {
                self.swap(&former).await?;
                Ok(former)
            }
            _ => Err(self.no_former_set()),
        }
    }

    /// Swaps back to the set that was the former one when the operator asked. Idempotent: a worker may
    /// have died after the swap and before it completed the job.
    pub(crate) async fn roll_back_to(&self, wanted: Option<&str>) -> Result<(), MirrorError> {
        let state = self.known_state().await?;
        match (wanted, state.second.as_deref()) {
            (Some(wanted), _) if wanted == state.serving => Ok(()),
            (Some(wanted), Some(former)) if wanted == former && state.phase == Phase::Swapped => {
                self.swap(former).await
            }
            _ => Err(self.no_former_set()),
        }
    }

    fn no_former_set(&self) -> MirrorError {
        MirrorError::State(format!(
            "mirror {:?} has no former set to go back to",
            self.runtime.name()
        ))
    }

    pub(crate) async fn drop_second(&self) -> Result<Option<String>, MirrorError> {
        self.known_state().await?;
        // Stop all writes to the set before it is removed.
        let sql = "select leasehold_internal.drop_second($1)";
        let rows =
            self.runtime.source.query(sql, &[(&self.runtime.mirror.name, Type::TEXT)]).await?;
        let second: Option<String> = rows.first().and_then(|row| row.get(0));
        if let Some(second) = &second {
            self.runtime.calls.call(self.many()?.remove(second)).await?;
        }
        Ok(second)
    }
}
