//! Differences: finds the rows that differ in a range, and compares them twice.
//!
//! # Invariants
//! - Memory is bounded, however many documents the store has that it should not have: a range with too
//!   many of them is cut short.
//! - Two lists that were read at different times prove nothing. They only name suspects. Each suspect
//!   is then read by its key, from the store first and from the table afterwards. Only a row that
//!   differs there, and differs again after `recheck_after`, counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use tokio_postgres::types::Type;

use crate::mirror::MirrorError;
use crate::mirror::sets::{Range, StoredVersion, Target};
use crate::mirror::sync::{Source, Step, StoreCalls, Want, answered, decide};

/// How many keys one call lists. A range is cut when the store lists this many more than the table has.
const PAGE: usize = 5000;
/// How many suspects one call reads.
const LOOK: usize = 1000;

/// A row that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) key: String,
    pub(crate) kind: &'static str,
    pub(crate) source: Option<i64>,
    pub(crate) held: Option<i64>,
}

/// A range, and the keys that the table has in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Piece {
    pub(crate) range: Range,
    pub(crate) keys: Vec<String>,
}

impl Piece {
    /// Ends the piece at a key.
    fn cut(&mut self, to: Option<String>) {
        self.range.to = to;
        self.keys.retain(|key| self.range.contains(key));
    }
}

/// Compares ranges of a set with the table.
pub(crate) struct Comparer {
    source: Arc<Source>,
    calls: Arc<StoreCalls>,
}

impl Comparer {
    pub(crate) fn new(source: &Arc<Source>, calls: &Arc<StoreCalls>) -> Self {
        Self { source: Arc::clone(source), calls: Arc::clone(calls) }
    }

    /// Returns the next keys of the table after a key. The last piece is open at its end.
    pub(crate) async fn piece_after(&self, after: Option<String>) -> Result<Piece, MirrorError> {
        let most = self.source.mirror().range;
        let keys = self.source.keys_after(after.as_deref(), most).await?;
        let to = if keys.len() < most { None } else { keys.last().cloned() };
        Ok(Piece { range: Range { after, to }, keys })
    }

    /// Returns true if the digests of both sides are equal.
    pub(crate) async fn is_equal(
        &self,
        target: &Arc<dyn Target>,
        piece: &Piece,
    ) -> Result<bool, MirrorError> {
        let own = self.source.digest_of(&piece.keys).await?;
        Ok(self.calls.call(target.digest(&piece.range)).await? == own)
    }

    /// Returns the keys of a piece whose versions differ between the two lists. A piece of which the
    /// store has far more than the table is cut where the list ended.
    pub(crate) async fn suspects(
        &self,
        target: &Arc<dyn Target>,
        piece: &mut Piece,
    ) -> Result<Vec<String>, MirrorError> {
        let mut sides: BTreeMap<String, (Option<i64>, Option<i64>)> = BTreeMap::new();
        let (most, mut listed) = (piece.keys.len() + PAGE, 0);
        let mut rest = piece.range.clone();
        loop {
            let page = self.calls.call(target.list(&rest, PAGE)).await?;
            let (count, last) = (page.len(), page.last().map(|(key, _)| key.clone()));
            listed += count;
            for (key, StoredVersion { version, deleted }) in page {
                if !deleted {
                    sides.entry(key).or_default().1 = Some(version);
                }
            }
            if count < PAGE || last <= rest.after {
                break;
            }
            if listed >= most {
                piece.cut(last);
                break;
            }
            rest.after = last;
        }
        for (key, version) in self.source.listed(&piece.keys).await? {
            sides.entry(key).or_default().0 = Some(version);
        }
        Ok(sides.into_iter().filter(|(_, (own, held))| own != held).map(|(key, _)| key).collect())
    }

    /// Returns which of these keys differ, reading each by its key.
    pub(crate) async fn look_at(
        &self,
        target: &Arc<dyn Target>,
        keys: &[String],
    ) -> Result<Vec<Difference>, MirrorError> {
        let mut found = Vec::new();
        for keys in keys.chunks(LOOK) {
            let held = self.calls.call(target.held(keys)).await?;
            answered(held.len(), keys.len())?;
            let rows = self.source.rows(keys).await?;
            for ((key, held), row) in keys.iter().zip(held).zip(rows) {
                if let Some(kind) = kind_of(row.want, held) {
                    let source = match row.want {
                        Want::Document(version) => Some(version),
                        Want::Gone(version) => version,
                    };
                    let held = held.map(|held| held.version);
                    found.push(Difference { key: key.clone(), kind, source, held });
                }
            }
        }
        Ok(found)
    }

    /// Returns the rows of a piece that differ twice, `recheck_after` apart: a write may be under way,
    /// or not visible yet.
    pub(crate) async fn differences(
        &self,
        target: &Arc<dyn Target>,
        piece: &mut Piece,
    ) -> Result<Vec<Difference>, MirrorError> {
        let suspects = self.suspects(target, piece).await?;
        let first = self.look_at(target, &suspects).await?;
        if first.is_empty() {
            return Ok(first);
        }
        tokio::time::sleep(self.source.mirror().recheck_after).await;
        let again: Vec<String> = first.into_iter().map(|difference| difference.key).collect();
        self.look_at(target, &again).await
    }

    /// Records differences and enqueues jobs to repair them. Returns how many rows count as different,
    /// and how many jobs were enqueued.
    pub(crate) async fn note_differences(
        &self,
        began: Timestamp,
        found: &[Difference],
    ) -> Result<(u64, u64), MirrorError> {
        if found.is_empty() {
            return Ok((0, 0));
        }
        let keys: Vec<&str> = found.iter().map(|one| one.key.as_str()).collect();
        let kinds: Vec<&str> = found.iter().map(|one| one.kind).collect();
        let sources: Vec<Option<i64>> = found.iter().map(|one| one.source).collect();
        let held_versions: Vec<Option<i64>> = found.iter().map(|one| one.held).collect();
        let sql =
            "select different, made from leasehold_internal.mirror_differs($1, $2, $3, $4, $5, $6)";
        let params = [
            (&self.source.mirror().name as _, Type::TEXT),
            (&began as _, Type::TIMESTAMPTZ),
            (&keys as _, Type::TEXT_ARRAY),
            (&kinds as _, Type::TEXT_ARRAY),
            (&sources as _, Type::INT8_ARRAY),
            (&held_versions as _, Type::INT8_ARRAY),
        ];
        let rows = self.source.query(sql, &params).await?;
        let number = |at: usize| {
            rows.first().map_or(0, |row| u64::try_from(row.get::<_, i32>(at)).unwrap_or(0))
        };
        Ok((number(0), number(1)))
    }
}

/// Returns how a row differs; `None`: it does not. A deletion that the store never received is no
/// difference: the store holds nothing that it should not.
fn kind_of(want: Want, held: Option<StoredVersion>) -> Option<&'static str> {
    let lives = held.is_some_and(|held| !held.deleted);
    match (decide(want, held, false), want) {
        (Step::Equal(_), _) => None,
        (_, Want::Gone(_)) if !lives => None,
        (_, Want::Gone(_)) => Some("ghost"),
        (_, Want::Document(_)) if !lives => Some("missing"),
        (_, Want::Document(_)) => Some("stale"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_is_missing_stale_or_a_ghost() {
        let live = |version| Some(StoredVersion { version, deleted: false });
        let dead = |version| Some(StoredVersion { version, deleted: true });
        for (want, held, kind) in [
            (Want::Document(2), live(2), None),
            (Want::Document(2), None, Some("missing")),
            (Want::Document(2), dead(1), Some("missing")),
            (Want::Document(2), live(1), Some("stale")),
            (Want::Document(2), live(3), Some("stale")),
            (Want::Gone(Some(3)), live(2), Some("ghost")),
            (Want::Gone(None), live(2), Some("ghost")),
            (Want::Gone(Some(3)), None, None),
            (Want::Gone(Some(3)), dead(2), None),
            (Want::Gone(None), None, None),
        ] {
            assert_eq!(kind_of(want, held), kind, "{want:?} {held:?}");
        }
    }
}
