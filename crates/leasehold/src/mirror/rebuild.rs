//! A rebuild: a second set of documents is filled, proven equal, and swapped in.
//!
//! # What is true
//! - From the moment the second set is known, everything that is written goes to both, and a job is
//!   complete only when both have its row. So a change that comes after the fill has passed its row is
//!   not missed.
//! - Searches go to the second set only after every range of it was seen equal to the table. What it
//!   refuses may be missing there only if the set that is searched now does not have it either.
//! - The former set is written on, so going back is the same swap once more.
//! - Each step is written down with a condition. Whoever finds a rebuild half-way goes on with it.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio_postgres::types::Type;

use super::declare::Store;
use super::desk::{Desk, Phase, State};
use super::pace::Leave;
use super::prepare::MirrorError;
use super::sync::{Fate, Item, answered};
use super::target::{Range, Targets};
use crate::engine::Leasehold;

/// How often a range is mended before the rebuild gives up for now.
const ROUNDS: u32 = 10;

/// What a rebuild did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// Rows that this call wrote into the second set.
    pub rows: u64,
    /// Rows that were mended before the swap.
    pub mended: u64,
    /// Rows that the new set refuses for good, and that the former one does not have either. The log
    /// says why. A document that is searched now is never given up: the rebuild stops instead.
    pub refused: u64,
    /// The set that is searched now.
    pub serving: String,
    /// The former one, which is kept.
    pub former: String,
    pub took: Duration,
}

impl super::Mirror {
    /// Fills a second set, proves it equal and swaps it in. Goes on where another call was interrupted.
    pub async fn rebuild(&self, engine: &Leasehold) -> Result<RebuildReport, MirrorError> {
        Desk::new(engine, self.clone()).rebuild().await
    }

    /// Goes back to the former set, which was written all the time.
    pub async fn rollback(&self, engine: &Leasehold) -> Result<String, MirrorError> {
        Desk::new(engine, self.clone()).rollback().await
    }

    /// Removes the second set: the former one, or one that is being built.
    pub async fn drop_second(&self, engine: &Leasehold) -> Result<Option<String>, MirrorError> {
        Desk::new(engine, self.clone()).drop_second().await
    }
}

impl Desk {
    pub(super) async fn rebuild(&self) -> Result<RebuildReport, MirrorError> {
        let started = Instant::now();
        let mut report = RebuildReport::default();
        let mut begun = false;
        loop {
            let state = self.known_state().await?;
            match (state.phase, state.second.clone()) {
                (Phase::None, _) if begun => {
                    return Err(MirrorError::State(format!(
                        "the second set of mirror {:?} was dropped while it was built",
                        self.name()
                    )));
                }
                (Phase::None, _) => {
                    self.begin().await?;
                    begun = true;
                }
                (Phase::Building, Some(second)) => {
                    begun = true;
                    report.rows += self.fill(&second, state.rebuild_after).await?;
                }
                (Phase::Verifying, Some(second)) => {
                    begun = true;
                    self.verify(&mut report).await?;
                    self.swap(&second).await?;
                }
                (Phase::Swapped, Some(former)) if begun => {
                    report.serving = state.serving;
                    report.former = former;
                    report.took = started.elapsed();
                    let RebuildReport { rows, mended, refused, .. } = report;
                    tracing::info!(mirror = self.name(), rows, mended, refused, "rebuilt");
                    return Ok(report);
                }
                _ => {
                    return Err(MirrorError::State(format!(
                        "mirror {:?} still has the set it had before its last rebuild; drop that first",
                        self.name()
                    )));
                }
            }
        }
    }

    /// True when a rebuild has ended since then.
    pub(super) async fn was_rebuilt_since(&self, since: Timestamp) -> Result<bool, MirrorError> {
        let sql =
            "select coalesce(rebuild_ended_at >= $2, false) from leasehold.mirror where name = $1";
        let params = [(&self.mirror.name as _, Type::TEXT), (&since as _, Type::TIMESTAMPTZ)];
        let rows = self.link.query(sql, &params).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    fn many(&self) -> Result<&dyn Targets, MirrorError> {
        match self.mirror.store()? {
            Store::Many(targets) => Ok(&**targets),
            Store::One(_) => Err(MirrorError::State(format!(
                "the store of mirror {:?} can have one set of documents only; it cannot be rebuilt \
                 beside itself. Let the check mend it, or declare it with .targets(…)",
                self.name()
            ))),
        }
    }

    /// What stands in the database, after making sure that something does.
    async fn known_state(&self) -> Result<State, MirrorError> {
        self.many()?;
        self.sets().await?.state.ok_or_else(|| {
            MirrorError::State(format!("mirror {:?} has no sets of documents", self.name()))
        })
    }

    async fn begin(&self) -> Result<(), MirrorError> {
        let targets = self.many()?;
        let made = self.call(targets.create()).await?;
        let params = [(&self.mirror.name as _, Type::TEXT), (&made as _, Type::TEXT)];
        let rows = self.link.query("select leasehold.begin_rebuild($1, $2)", &params).await?;
        if !rows.first().is_some_and(|row| row.get(0)) {
            // Somebody else has begun: theirs is the second set.
            self.call(targets.remove(&made)).await?;
        }
        Ok(())
    }

    /// The next rows after a key go into the second set.
    async fn fill(&self, second: &str, after: Option<String>) -> Result<u64, MirrorError> {
        let most = self.room().await;
        let keys = self.keys_after(after.as_deref(), most).await?;
        let count = keys.len();
        let last = if count < most { None } else { keys.last().cloned() };
        // Found out now, and not when millions of rows are through.
        let (_, refused) = self.mend(keys).await?;
        self.must_not_be_searched(&refused).await?;
        let (name, rows) = (&self.mirror.name, count as i64);
        let params = [
            (name as _, Type::TEXT),
            (&second as _, Type::TEXT),
            (&after as _, Type::TEXT),
            (&last as _, Type::TEXT),
            (&rows as _, Type::INT8),
        ];
        // False: somebody else goes on from here too. Both write the same; whoever is first counts.
        self.link.query("select leasehold.note_rebuild($1, $2, $3, $4, $5)", &params).await?;
        Ok(count as u64)
    }

    /// Every range of the second set is equal to the table, or is mended until it is.
    async fn verify(&self, report: &mut RebuildReport) -> Result<(), MirrorError> {
        let mut after: Option<String> = None;
        loop {
            let keys = self.keys_after(after.as_deref(), self.mirror.range).await?;
            let last = if keys.len() < self.mirror.range { None } else { keys.last().cloned() };
            let range = Range { after, to: last.clone() };
            let mut rounds = 0;
            loop {
                let Some(second) = self.sets().await?.second else {
                    return Err(MirrorError::State("the second set was dropped".to_owned()));
                };
                let own = self.digest_of(&keys).await?;
                if self.call(second.digest(&range)).await? == own {
                    break;
                }
                let suspects = self.suspects(&second, &range, &keys).await?;
                let differing = self.look_at(&second, &suspects).await?;
                if differing.is_empty() {
                    break; // Changes were on their way, and have arrived.
                }
                let keys: Vec<String> =
                    differing.into_iter().map(|difference| difference.key).collect();
                let differing = keys.len() as u64;
                let (mended, refused) = self.mend(keys).await?;
                report.mended += mended;
                self.must_not_be_searched(&refused).await?;
                // All of it was seen in the second set, and what changes from now on is written to
                // both. What neither set takes cannot keep it back for ever.
                if mended + refused.len() as u64 == differing {
                    report.refused += refused.len() as u64;
                    break;
                }
                rounds += 1;
                if rounds >= ROUNDS {
                    return Err(MirrorError::State(format!(
                        "the second set of mirror {:?} does not become equal; searches stay where \
                         they are",
                        self.name()
                    )));
                }
                tokio::time::sleep(self.mirror.recheck_after).await;
            }
            after = last;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Fails if the set that is searched now has one of these, which the second set refuses: a swap
    /// would lose it.
    async fn must_not_be_searched(&self, refused: &[(String, String)]) -> Result<(), MirrorError> {
        if refused.is_empty() {
            return Ok(());
        }
        let keys: Vec<String> = refused.iter().map(|(key, _)| key.clone()).collect();
        let held = self.call(self.sets().await?.serving.held(&keys)).await?;
        answered(held.len(), keys.len())?;
        let mut lost = refused.iter().zip(held).filter(|(_, held)| held.is_some_and(|h| !h.deleted));
        let Some(((key, why), _)) = lost.next() else { return Ok(()) };
        let others = match lost.count() {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        Err(MirrorError::State(format!(
            "the second set of mirror {:?} refuses documents that are searched now: {key} ({why}){others}; \
             searches stay where they are. Drop the second set, mend its fields or the documents, and \
             rebuild again",
            self.name()
        )))
    }

    /// Brings rows into the second set. Answers how many it has now, and which it refuses, and why.
    async fn mend(
        &self,
        keys: Vec<String>,
    ) -> Result<(u64, Vec<(String, String)>), MirrorError> {
        let items: Vec<Item> = keys.into_iter().map(|key| Item { key, force: false }).collect();
        let (mut kept, mut refused) = (0, Vec::new());
        let mut rest = &items[..];
        while !rest.is_empty() {
            let (chunk, others) = rest.split_at(self.room().await.min(rest.len()));
            let Some(second) = self.sets().await?.second else {
                return Err(MirrorError::State("the second set was dropped".to_owned()));
            };
            match self.sync_into(&second, chunk).await {
                Ok(fates) => {
                    self.succeeded().await;
                    rest = others;
                    for (item, fate) in chunk.iter().zip(fates) {
                        match fate {
                            Fate::Kept(_) => kept += 1,
                            Fate::Refused(why) => {
                                let (mirror, key) = (self.name(), &item.key);
                                tracing::warn!(mirror, key, why, "the new set refuses a document");
                                refused.push((item.key.clone(), why));
                            }
                            Fate::Unseen | Fate::Busy(_) => {}
                        }
                    }
                }
                // Tried again, with less, after a while: a rebuild outlives a restart of the store.
                Err(MirrorError::Target(error)) => {
                    self.failed(&error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok((kept, refused))
    }

    /// Waits until the store may be asked; says for how much.
    async fn room(&self) -> usize {
        loop {
            match self.leave() {
                Leave::Ask(most) => return most,
                Leave::Wait(wait) => tokio::time::sleep(wait).await,
            }
        }
    }

    async fn swap(&self, to: &str) -> Result<(), MirrorError> {
        // The store first: both sets are written, so who asks in between finds the same.
        self.call(self.many()?.swap(to)).await?;
        let params = [(&self.mirror.name as _, Type::TEXT), (&to as _, Type::TEXT)];
        self.link.query("select leasehold.note_swap($1, $2)", &params).await?;
        Ok(())
    }

    pub(super) async fn rollback(&self) -> Result<String, MirrorError> {
        let state = self.known_state().await?;
        match (state.phase, state.second) {
            (Phase::Swapped, Some(former)) => {
                self.swap(&former).await?;
                Ok(former)
            }
            _ => Err(MirrorError::State(format!(
                "mirror {:?} has no former set to go back to",
                self.name()
            ))),
        }
    }

    pub(super) async fn drop_second(&self) -> Result<Option<String>, MirrorError> {
        self.known_state().await?;
        // Nobody writes to it any more before it is removed.
        let sql = "select leasehold.drop_second($1)";
        let rows = self.link.query(sql, &[(&self.mirror.name, Type::TEXT)]).await?;
        let second: Option<String> = rows.first().and_then(|row| row.get(0));
        if let Some(second) = &second {
            self.call(self.many()?.remove(second)).await?;
        }
        Ok(second)
    }
}
