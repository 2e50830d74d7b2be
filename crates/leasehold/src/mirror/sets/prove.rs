//! The second set of a rebuild: filled row by row, and proven equal before searches use it.
//!
//! # Invariants
//! - Every range was seen equal to the table, or was repaired until all of its rows were seen. A
//!   document that the second set refuses may be missing only if the set that is searched does not have
//!   it either.
//! - The builder has its own throttle: a second set that does not respond does not delay passes on the set
//!   that is searched.
//!
//! # What can go wrong
//! - The store is down, for however long: the builder retries with growing waits, and continues.

use std::sync::Arc;
use std::time::Instant;

use tokio_postgres::types::Type;

use super::rebuild::RebuildReport;
use super::set_store::Sets;
use super::target::{Target, TargetError};
use crate::error::one_line;
use crate::mirror::MirrorError;
use crate::mirror::check::Piece;
use crate::mirror::runtime::MirrorRuntime;
use crate::mirror::sync::{Item, Permit, StoreThrottle, Synced, answered};

/// How often a range is repaired before the rebuild fails.
const ROUNDS: u32 = 10;

/// Rows that a set refuses, and why.
type Refused = Vec<(String, String)>;

/// Builds a second set.
pub(super) struct Builder<'a> {
    runtime: &'a MirrorRuntime,
    throttle: &'a StoreThrottle,
    pub(super) report: RebuildReport,
}

impl<'a> Builder<'a> {
    pub(super) fn new(runtime: &'a MirrorRuntime, throttle: &'a StoreThrottle) -> Self {
        Self { runtime, throttle, report: RebuildReport::default() }
    }

    /// Writes the next rows after a key into the second set.
    pub(super) async fn fill(
        &mut self,
        second: &str,
        after: Option<String>,
    ) -> Result<(), MirrorError> {
        let runtime = self.runtime;
        let most = self.throttle.rows(runtime.mirror.claim_size);
        let keys = runtime.source.keys_after(after.as_deref(), most).await?;
        let count = keys.len();
        let last = if count < most { None } else { keys.last().cloned() };
        // Fail now, and not after millions of rows.
        let (_, refused) = self.repair(&keys).await?;
        self.must_not_be_searched(&refused).await?;
        let (name, rows) = (&runtime.mirror.name, i64::try_from(count).unwrap_or(i64::MAX));
        let params = [
            (name as _, Type::TEXT),
            (&second as _, Type::TEXT),
            (&after as _, Type::TEXT),
            (&last as _, Type::TEXT),
            (&rows as _, Type::INT8),
        ];
        // False: another worker has continued from here too. Both write the same; the first one is
        // recorded.
        runtime
            .source
            .query("select leasehold_internal.note_rebuild($1, $2, $3, $4, $5)", &params)
            .await?;
        self.report.rows += count as u64;
        Ok(())
    }

    /// Compares every range of the second set with the table, and repairs it until it is equal.
    pub(super) async fn verify(&mut self) -> Result<(), MirrorError> {
        let mut after: Option<String> = None;
        loop {
            let mut piece = self.runtime.comparer.piece_after(after).await?;
            let mut rounds = 0;
            while !self.make_equal(&mut piece).await? {
                rounds += 1;
                if rounds >= ROUNDS {
                    return Err(MirrorError::State(format!(
                        "the second set of mirror {:?} does not become equal; searches stay where \
                         they are",
                        self.runtime.name()
                    )));
                }
                tokio::time::sleep(self.runtime.mirror.recheck_after).await;
            }
            after = piece.range.to;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Repairs what differs in a piece. Returns false if not all of it was seen in the second set.
    async fn make_equal(&mut self, piece: &mut Piece) -> Result<bool, MirrorError> {
        let differing = loop {
            let permit = self.permit().await;
            let found = self.differing(piece).await;
            if let Some(found) = self.record(permit, found)? {
                break found;
            }
        };
        if differing.is_empty() {
            return Ok(true);
        }
        let (repaired, refused) = self.repair(&differing).await?;
        self.report.repaired += repaired;
        self.must_not_be_searched(&refused).await?;
        // All of it was seen in the second set, and later changes are written to both. What neither set
        // accepts must not block the rebuild forever.
        let refused = refused.len() as u64;
        let done = repaired + refused == differing.len() as u64;
        if done {
            self.report.refused += refused;
        }
        Ok(done)
    }

    /// Returns the keys of a piece that differ; none also if changes were under way and have arrived.
    async fn differing(&self, piece: &mut Piece) -> Result<Vec<String>, MirrorError> {
        let runtime = self.runtime;
        let second = second(runtime.sets.written().await?)?;
        if runtime.comparer.is_equal(&second, piece).await? {
            return Ok(Vec::new());
        }
        let suspects = runtime.comparer.suspects(&second, piece).await?;
        let differing = runtime.comparer.look_at(&second, &suspects).await?;
        Ok(differing.into_iter().map(|difference| difference.key).collect())
    }

    /// Writes rows into the second set. Returns how many it has now, and which it refuses.
    async fn repair(&mut self, keys: &[String]) -> Result<(u64, Refused), MirrorError> {
        let item = |key: &String| Item { key: key.clone(), force: false };
        let items: Vec<Item> = keys.iter().map(item).collect();
        let (mut kept, mut refused) = (0, Vec::new());
        let mut rest = &items[..];
        while !rest.is_empty() {
            let permit = self.permit().await;
            let (chunk, others) = rest.split_at(permit.rows().min(rest.len()));
            let written = self.write(chunk).await;
            let Some(results) = self.record(permit, written)? else { continue };
            rest = others;
            for (item, result) in chunk.iter().zip(results) {
                match result {
                    Synced::Kept(_) => kept += 1,
                    Synced::Refused(why) => {
                        let (mirror, key) = (self.runtime.name(), &item.key);
                        tracing::warn!(mirror, key, why, "the new set refuses a document");
                        refused.push((item.key.clone(), why));
                    }
                    Synced::Behind(_) | Synced::Unseen | Synced::Busy(_) => {}
                }
            }
        }
        Ok((kept, refused))
    }

    async fn write(&self, items: &[Item]) -> Result<Vec<Synced>, MirrorError> {
        let second = second(self.runtime.sets.written().await?)?;
        self.runtime.syncer.sync_into(&second, items).await
    }

    /// Fails if the set that is searched has a document that the second set refuses: a swap would lose
    /// it.
    async fn must_not_be_searched(&mut self, refused: &Refused) -> Result<(), MirrorError> {
        if refused.is_empty() {
            return Ok(());
        }
        let lost = loop {
            let permit = self.permit().await;
            let lost = self.searched(refused).await;
            if let Some(lost) = self.record(permit, lost)? {
                break lost;
            }
        };
        let Some((key, why)) = lost.first() else { return Ok(()) };
        let others = match lost.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        Err(MirrorError::State(format!(
            "the second set of mirror {:?} refuses documents that are searched now: {key} \
             ({why}){others}; searches stay where they are. Drop the second set, correct its fields or \
             the documents, and rebuild again",
            self.runtime.name()
        )))
    }

    /// Returns those that exist in the set that is searched.
    async fn searched(&self, refused: &Refused) -> Result<Refused, MirrorError> {
        let keys: Vec<String> = refused.iter().map(|(key, _)| key.clone()).collect();
        let serving = self.runtime.sets.written().await?.serving;
        let held = self.runtime.calls.call(serving.held(&keys)).await?;
        answered(held.len(), keys.len())?;
        let lives = refused.iter().zip(held).filter(|(_, held)| held.is_some_and(|h| !h.deleted));
        Ok(lives.map(|(refused, _)| refused.clone()).collect())
    }

    /// Records the result of a call in the throttle; `None`: the store did not respond, and the caller
    /// retries.
    fn record<T>(
        &self,
        permit: Permit<'_>,
        answer: Result<T, MirrorError>,
    ) -> Result<Option<T>, MirrorError> {
        match answer {
            Ok(answer) => {
                permit.succeeded(self.runtime.mirror.claim_size);
                Ok(Some(answer))
            }
            Err(MirrorError::Target(error)) => {
                self.runtime.calls.doubt();
                let overloaded = matches!(error, TargetError::Overloaded(_));
                let wait = permit.failed(overloaded, Instant::now()).wait;
                let error = one_line(&error.to_string());
                tracing::warn!(
                    mirror = self.runtime.name(),
                    error,
                    ?wait,
                    "a step of the rebuild failed; trying again after the wait"
                );
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until the store may be called.
    async fn permit(&self) -> Permit<'a> {
        // The size of documents is shared by all tasks.
        let mirror = &self.runtime.mirror;
        let most = mirror.shared.throttle.fits(mirror.claim_size);
        loop {
            match self.throttle.ask(most, Instant::now()) {
                Ok(permit) => return permit,
                Err(wait) => tokio::time::sleep(wait).await,
            }
        }
    }
}

fn second(sets: Sets) -> Result<Arc<dyn Target>, MirrorError> {
    sets.second.ok_or_else(|| MirrorError::State("the second set was dropped".to_owned()))
}
