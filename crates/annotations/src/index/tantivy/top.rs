//! Collects the newest documents of an answer: last change first, then by id.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Bound;

use tantivy::collector::{Collector, SegmentCollector};
use tantivy::columnar::{Column, StrColumn};
use tantivy::{DocId, Score, SegmentOrdinal, SegmentReader, TantivyError};

use super::fields;
use crate::index::query::{Cursor, Hit};

/// The best comes first in order. Within a segment a key is the number that its dictionary gives it.
type Rank<K> = (Reverse<i64>, K);

pub struct Newest {
    pub size: usize,
    pub after: Option<Cursor>,
}

pub struct InSegment {
    size: usize,
    keys: StrColumn,
    /// `None`: the segment has deletions only, and nothing of it is found.
    updated: Option<Column<i64>>,
    /// The last rank before this answer's first; the key is the first number that is past it.
    after: Option<(i64, u64)>,
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
        let after = match &self.after {
            None => None,
            Some(cursor) => Some((cursor.updated, first_past(&keys, &cursor.id)?)),
        };
        let updated = columns.column_opt(fields::UPDATED)?;
        Ok(InSegment { size: self.size, keys, updated, after, best: BinaryHeap::new() })
    }

    fn requires_scoring(&self) -> bool {
        false
    }

    fn merge_fruits(&self, segments: Vec<Vec<Rank<String>>>) -> tantivy::Result<Vec<Hit>> {
        let mut all: Vec<Rank<String>> = segments.into_iter().flatten().collect();
        all.sort_unstable();
        all.truncate(self.size);
        Ok(all.into_iter().map(|(Reverse(updated), id)| Hit { id, updated }).collect())
    }
}

impl SegmentCollector for InSegment {
    type Fruit = Vec<Rank<String>>;

    fn collect(&mut self, doc: DocId, _: Score) {
        let Some(ord) = self.keys.ords().first(doc) else { return };
        let updated =
            self.updated.as_ref().and_then(|column| column.first(doc)).unwrap_or_default();
        if let Some((last, past)) = self.after
            && (updated > last || (updated == last && ord < past))
        {
            return;
        }
        let rank = (Reverse(updated), ord);
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
        for (updated, ord) in self.best {
            // A dictionary that cannot be read is damage; the other documents can still be shown.
            if matches!(self.keys.ord_to_str(ord, &mut key), Ok(true)) {
                best.push((updated, key.clone()));
            }
        }
        best
    }
}

/// The number of the first key after this one.
fn first_past(keys: &StrColumn, key: &str) -> tantivy::Result<u64> {
    let (past, _) =
        keys.dictionary().term_bounds_to_ord(Bound::Excluded(key.as_bytes()), Bound::Unbounded)?;
    Ok(match past {
        Bound::Included(ord) => ord,
        Bound::Excluded(ord) => ord.saturating_add(1),
        Bound::Unbounded => 0,
    })
}
