//! The second set of a rebuild: filled row after row, and proven equal before searches go to it.
//!
//! # What is true
//! - Every range was seen equal to the table, or was mended until all of it was seen. What the set
//!   refuses may be missing only if the set that is searched now does not have it either.
//! - It keeps a pace of its own: a second set that does not answer keeps no pass away from the one that
//!   is searched.
//!
//! # What can go wrong
//! - The store is away, for however long: it is asked again, ever less often, and the work goes on.

use std::time::Instant;

use tokio_postgres::types::Type;

use super::desk::Desk;
use super::differences::Piece;
use super::pace::{Leave, Pace};
use super::prepare::MirrorError;
use super::rebuild::RebuildReport;
use super::sets::Sets;
use super::sync::{Fate, Item, answered};

/// How often a range is mended before the rebuild gives up for now.
const ROUNDS: u32 = 10;

/// Rows that a set refuses, and why.
type Refused = Vec<(String, String)>;

/// Whoever builds a second set.
pub(super) struct Builder<'a> {
    desk: &'a Desk,
    pace: Pace,
    pub(super) report: RebuildReport,
}

impl<'a> Builder<'a> {
    pub(super) fn new(desk: &'a Desk) -> Self {
        Self { desk, pace: Pace::default(), report: RebuildReport::default() }
    }

    /// The next rows after a key go into the second set.
    pub(super) async fn fill(
        &mut self,
        second: &str,
        after: Option<String>,
    ) -> Result<(), MirrorError> {
        let desk = self.desk;
        let most = self.pace.size(desk.mirror.batch);
        let keys = desk.keys_after(after.as_deref(), most).await?;
        let count = keys.len();
        let last = if count < most { None } else { keys.last().cloned() };
        // Found out now, and not when millions of rows are through.
        let (_, refused) = self.mend(&keys).await?;
        self.must_not_be_searched(&refused).await?;
        let (name, rows) = (&desk.mirror.name, i64::try_from(count).unwrap_or(i64::MAX));
        let params = [
            (name as _, Type::TEXT),
            (&second as _, Type::TEXT),
            (&after as _, Type::TEXT),
            (&last as _, Type::TEXT),
            (&rows as _, Type::INT8),
        ];
        // False: somebody else goes on from here too. Both write the same; whoever is first counts.
        desk.link.query("select leasehold.note_rebuild($1, $2, $3, $4, $5)", &params).await?;
        self.report.rows += count as u64;
        Ok(())
    }

    /// Every range of the second set is equal to the table, or is mended until it is.
    pub(super) async fn verify(&mut self) -> Result<(), MirrorError> {
        let mut after: Option<String> = None;
        loop {
            let mut piece = self.desk.piece_after(after).await?;
            let mut rounds = 0;
            while !self.make_equal(&mut piece).await? {
                rounds += 1;
                if rounds >= ROUNDS {
                    return Err(MirrorError::State(format!(
                        "the second set of mirror {:?} does not become equal; searches stay where \
                         they are",
                        self.desk.name()
                    )));
                }
                tokio::time::sleep(self.desk.mirror.recheck_after).await;
            }
            after = piece.range.to;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Mends what differs in a piece. False: not all of it was seen in the second set.
    async fn make_equal(&mut self, piece: &mut Piece) -> Result<bool, MirrorError> {
        let differing = loop {
            self.room().await;
            let found = self.differing(piece).await;
            if let Some(found) = self.heard(found)? {
                break found;
            }
        };
        if differing.is_empty() {
            return Ok(true);
        }
        let (mended, refused) = self.mend(&differing).await?;
        self.report.mended += mended;
        self.must_not_be_searched(&refused).await?;
        // All of it was seen in the second set, and what changes from now on is written to both. What
        // neither set takes cannot keep it back for ever.
        let refused = refused.len() as u64;
        let done = mended + refused == differing.len() as u64;
        if done {
            self.report.refused += refused;
        }
        Ok(done)
    }

    /// The keys of a piece that differ; none also if changes were on their way, and have arrived.
    async fn differing(&self, piece: &mut Piece) -> Result<Vec<String>, MirrorError> {
        let desk = self.desk;
        let second = second(desk.sets().await?)?;
        let own = desk.digest_of(&piece.keys).await?;
        if desk.call(second.digest(&piece.range)).await? == own {
            return Ok(Vec::new());
        }
        let suspects = desk.suspects(&second, piece).await?;
        let differing = desk.look_at(&second, &suspects).await?;
        Ok(differing.into_iter().map(|difference| difference.key).collect())
    }

    /// Brings rows into the second set. Answers how many it has now, and which it refuses.
    async fn mend(&mut self, keys: &[String]) -> Result<(u64, Refused), MirrorError> {
        let item = |key: &String| Item { key: key.clone(), force: false };
        let items: Vec<Item> = keys.iter().map(item).collect();
        let (mut kept, mut refused) = (0, Vec::new());
        let mut rest = &items[..];
        while !rest.is_empty() {
            let (chunk, others) = rest.split_at(self.room().await.min(rest.len()));
            let written = self.write(chunk).await;
            let Some(fates) = self.heard(written)? else { continue };
            rest = others;
            for (item, fate) in chunk.iter().zip(fates) {
                match fate {
                    Fate::Kept(_) => kept += 1,
                    Fate::Refused(why) => {
                        let (mirror, key) = (self.desk.name(), &item.key);
                        tracing::warn!(mirror, key, why, "the new set refuses a document");
                        refused.push((item.key.clone(), why));
                    }
                    Fate::Behind(_) | Fate::Unseen | Fate::Busy(_) => {}
                }
            }
        }
        Ok((kept, refused))
    }

    async fn write(&self, items: &[Item]) -> Result<Vec<Fate>, MirrorError> {
        let second = second(self.desk.sets().await?)?;
        self.desk.sync_into(&second, items).await
    }

    /// Fails if the set that is searched now has one of these, which the second set refuses: a swap
    /// would lose it.
    async fn must_not_be_searched(&mut self, refused: &Refused) -> Result<(), MirrorError> {
        if refused.is_empty() {
            return Ok(());
        }
        let lost = loop {
            self.room().await;
            let lost = self.searched(refused).await;
            if let Some(lost) = self.heard(lost)? {
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
             ({why}){others}; searches stay where they are. Drop the second set, mend its fields or the \
             documents, and rebuild again",
            self.desk.name()
        )))
    }

    /// Those that live in the set that is searched now.
    async fn searched(&self, refused: &Refused) -> Result<Refused, MirrorError> {
        let keys: Vec<String> = refused.iter().map(|(key, _)| key.clone()).collect();
        let serving = self.desk.sets().await?.serving;
        let held = self.desk.call(serving.held(&keys)).await?;
        answered(held.len(), keys.len())?;
        let lives = refused.iter().zip(held).filter(|(_, held)| held.is_some_and(|h| !h.deleted));
        Ok(lives.map(|(refused, _)| refused.clone()).collect())
    }

    /// What came of asking the store; `None`: it did not answer, and is to be asked again.
    fn heard<T>(&mut self, answer: Result<T, MirrorError>) -> Result<Option<T>, MirrorError> {
        match answer {
            Ok(answer) => {
                self.pace.succeeded(self.desk.mirror.batch);
                Ok(Some(answer))
            }
            Err(MirrorError::Target(error)) => {
                // One call at a time: none was under way when the store was given up.
                let wait = self.desk.missed(&mut self.pace, &error, Instant::now());
                tracing::warn!(mirror = self.desk.name(), %error, ?wait, "the rebuild waits");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until the store may be asked; says for how much.
    async fn room(&mut self) -> usize {
        // What documents weigh is known to all.
        let most = self.desk.pace().fits(self.desk.mirror.batch);
        loop {
            match self.pace.ask(most, self.desk.mirror.limit, Instant::now()) {
                Leave::Ask(most) => return most,
                Leave::Wait(wait) => tokio::time::sleep(wait).await,
            }
        }
    }
}

fn second(sets: Sets) -> Result<std::sync::Arc<dyn super::target::Target>, MirrorError> {
    sets.second.ok_or_else(|| MirrorError::State("the second set was dropped".to_owned()))
}
