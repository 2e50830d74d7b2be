//! Collects the newest documents of a result: last change first, and where two changed at once the
//! larger id first, as in Postgres.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Bound;

use tantivy::collector::{Collector, SegmentCollector};
use tantivy::columnar::{Column, StrColumn};
use tantivy::{DocId, Score, SegmentOrdinal, SegmentReader, TantivyError};

use super::fields;
use crate::index::query::{Cursor, Hit};

/// Sorts the best first. Within a segment a key is its number in the segment's dictionary.
type Rank<K> = Reverse<(i64, K)>;

pub struct Newest {
    pub size: usize,
    pub after: Option<Cursor>,
}

pub struct InSegment {
    size: usize,
    keys: StrColumn,
    /// `None`: the segment has only tombstones, which no query matches.
    updated: Option<Column<i64>>,
    /// All hits of this result are below this.
    below: Option<(i64, u64)>,
    /// The worst of the best on top.
    best: BinaryHeap<Rank<u64>>,
}

impl Collector for Newest {
    type Fruit = Vec<Hit>;
    type Child = InSegment;

    fn for_segment(&self, _: SegmentOrdinal, reader: &SegmentReader) -> tantivy::Result<InSegment> {
        let columns = reader.fast_fields();
        let keys = columns.str(fields::KEY)?;
        let keys = keys.ok_or_else(|| TantivyError::FieldNotFound(fields::KEY.to_owned()))?;
        let below = match &self.after {
            None => None,
            Some(cursor) => Some((cursor.updated, first_from(&keys, &cursor.id)?)),
        };
        let updated = columns.column_opt(fields::UPDATED)?;
        Ok(InSegment { size: self.size, keys, updated, below, best: BinaryHeap::new() })
    }

    fn requires_scoring(&self) -> bool {
        false
    }

    fn merge_fruits(&self, segments: Vec<Vec<Rank<String>>>) -> tantivy::Result<Vec<Hit>> {
        let mut all: Vec<Rank<String>> = segments.into_iter().flatten().collect();
        all.sort_unstable();
        all.truncate(self.size);
        Ok(all.into_iter().map(|Reverse((updated, id))| Hit { id, updated }).collect())
    }
}

impl SegmentCollector for InSegment {
    type Fruit = Vec<Rank<String>>;

    fn collect(&mut self, doc: DocId, _: Score) {
        let Some(ord) = self.keys.ords().first(doc) else { return };
        let updated =
            self.updated.as_ref().and_then(|column| column.first(doc)).unwrap_or_default();
        let place = (updated, ord);
        if self.below.is_some_and(|below| place >= below) {
            return;
        }
        let rank = Reverse(place);
        if self.best.len() < self.size {
            self.best.push(rank);
        } else if self.best.peek().is_some_and(|worst| rank < *worst) {
            self.best.pop();
            self.best.push(rank);
        }
    }

    fn harvest(self) -> Vec<Rank<String>> {
        let mut key = String::new();
        let mut best = Vec::with_capacity(self.best.len());
        for Reverse((updated, ord)) in self.best {
            // An unreadable dictionary entry means damage; the other documents can still be shown.
            if matches!(self.keys.ord_to_str(ord, &mut key), Ok(true)) {
                best.push(Reverse((updated, key.clone())));
            }
        }
        best
    }
}

/// Returns the number of this key, or of the first one after it.
fn first_from(keys: &StrColumn, key: &str) -> tantivy::Result<u64> {
    let (from, _) =
        keys.dictionary().term_bounds_to_ord(Bound::Included(key.as_bytes()), Bound::Unbounded)?;
    Ok(match from {
        Bound::Included(ord) => ord,
        Bound::Excluded(ord) => ord.saturating_add(1),
        Bound::Unbounded => 0,
    })
}
