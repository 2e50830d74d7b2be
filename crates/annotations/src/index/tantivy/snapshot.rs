//! The content of the index at one commit, read from its columns.
//!
//! # Invariants
//! - No document is loaded: keys, versions and fingerprints are columns, and a range of keys is a range
//!   of numbers in the dictionary of its column.
//! - A key has at most one live copy over all segments; its former copies are marked as deleted in their
//!   segments and skipped here.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use leasehold::mirror::{Digest, Range, StoredVersion};
use parking_lot::Mutex;
use tantivy::columnar::{Column, StrColumn};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{
    DocId, DocSet as _, InvertedIndexReader, Searcher, SegmentReader, TERMINATED, TantivyError,
    Term,
};

use super::fields;

pub struct Snapshot {
    pub searcher: Searcher,
    key: Field,
    segments: Vec<Segment>,
    /// Results of the last lookup by key. A pass looks keys up, and then writes the same keys.
    asked: Mutex<HashMap<String, Option<StoredVersion>>>,
}

struct Segment {
    reader: SegmentReader,
    terms: Arc<InvertedIndexReader>,
    keys: StrColumn,
    version: Column<i64>,
    deleted: Column<bool>,
    a: Column<u64>,
    b: Column<u64>,
}

impl Snapshot {
    pub fn new(searcher: Searcher, key: Field) -> tantivy::Result<Self> {
        let segments = searcher.segment_readers().iter().filter(|reader| reader.num_docs() > 0);
        let segments = segments.map(|reader| Segment::open(reader, key));
        let mut segments = segments.collect::<tantivy::Result<Vec<_>>>()?;
        // The smallest segments have the latest writes, which are looked up most.
        segments.sort_by_key(|segment| segment.reader.max_doc());
        Ok(Self { searcher, key, segments, asked: Mutex::default() })
    }

    /// Returns the number of this commit.
    pub fn number(&self) -> u64 {
        self.searcher.generation().generation_id()
    }

    /// Returns what the index holds under these keys, in their order.
    pub fn held_all(&self, keys: Vec<String>) -> tantivy::Result<Vec<Option<StoredVersion>>> {
        let held: Vec<Option<StoredVersion>> =
            keys.iter().map(|key| self.look_up(key)).collect::<tantivy::Result<_>>()?;
        let asked = keys.into_iter().zip(held.iter().copied()).collect();
        *self.asked.lock() = asked;
        Ok(held)
    }

    pub fn held(&self, key: &str) -> tantivy::Result<Option<StoredVersion>> {
        if let Some(held) = self.asked.lock().get(key) {
            return Ok(*held);
        }
        self.look_up(key)
    }

    fn look_up(&self, key: &str) -> tantivy::Result<Option<StoredVersion>> {
        let term = Term::from_field_text(self.key, key);
        for segment in &self.segments {
            if let Some(held) = segment.held(&term)? {
                return Ok(Some(held));
            }
        }
        Ok(None)
    }

    pub fn digest(&self, range: &Range) -> tantivy::Result<Digest> {
        let mut digest = Digest::default();
        for segment in &self.segments {
            for doc in segment.docs(range)? {
                if segment.deleted.first(doc) == Some(false) {
                    digest.count += 1;
                    digest.a += segment.a.first(doc).unwrap_or_default();
                    digest.b += segment.b.first(doc).unwrap_or_default();
                }
            }
        }
        Ok(digest)
    }

    pub fn list(
        &self,
        range: &Range,
        most: usize,
    ) -> tantivy::Result<Vec<(String, StoredVersion)>> {
        let mut listed = Vec::new();
        for segment in &self.segments {
            segment.list(range, most, &mut listed)?;
        }
        // Rust compares text by its bytes.
        listed.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        listed.truncate(most);
        Ok(listed)
    }
}

impl Segment {
    fn open(reader: &SegmentReader, key: Field) -> tantivy::Result<Self> {
        let columns = reader.fast_fields();
        let keys = columns.str(fields::KEY)?;
        Ok(Self {
            keys: keys.ok_or_else(|| TantivyError::FieldNotFound(fields::KEY.to_owned()))?,
            version: columns.i64(fields::VERSION)?,
            deleted: columns.bool(fields::DELETED)?,
            a: columns.u64(fields::A)?,
            b: columns.u64(fields::B)?,
            terms: reader.inverted_index(key)?,
            reader: reader.clone(),
        })
    }

    fn held(&self, term: &Term) -> tantivy::Result<Option<StoredVersion>> {
        let Some(mut found) = self.terms.read_postings(term, IndexRecordOption::Basic)? else {
            return Ok(None);
        };
        let mut doc = found.doc();
        while doc != TERMINATED {
            if !self.reader.is_deleted(doc) {
                return Ok(Some(self.held_at(doc)));
            }
            doc = found.advance();
        }
        Ok(None)
    }

    fn held_at(&self, doc: DocId) -> StoredVersion {
        StoredVersion {
            version: self.version.first(doc).unwrap_or_default(),
            deleted: self.deleted.first(doc).unwrap_or_default(),
        }
    }

    /// Returns the documents of a range, in no order.
    fn docs(&self, range: &Range) -> tantivy::Result<Vec<DocId>> {
        let mut docs = Vec::new();
        let last = (self.keys.num_terms() as u64).saturating_sub(1);
        if range.after.is_none() && range.to.is_none() {
            docs.extend(self.reader.doc_ids_alive());
            return Ok(docs);
        }
        let after = range.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let to = range.to.as_deref().map_or(Bound::Unbounded, Bound::Included);
        let (low, high) = self.keys.dictionary().term_bounds_to_ord(after, to)?;
        let low = match low {
            Bound::Included(low) => low,
            Bound::Excluded(low) => low.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let high = match high {
            Bound::Included(high) => high.min(last),
            // No key is below the first.
            Bound::Excluded(0) => return Ok(docs),
            Bound::Excluded(high) => (high - 1).min(last),
            Bound::Unbounded => last,
        };
        if low <= high {
            let all = 0..self.reader.max_doc();
            self.keys.ords().get_docids_for_value_range(low..=high, all, &mut docs);
            docs.retain(|doc| !self.reader.is_deleted(*doc));
        }
        Ok(docs)
    }

    fn list(
        &self,
        range: &Range,
        most: usize,
        to: &mut Vec<(String, StoredVersion)>,
    ) -> tantivy::Result<()> {
        let docs = self.docs(range)?;
        let mut docs: Vec<(u64, DocId)> =
            docs.into_iter().filter_map(|doc| Some((self.keys.ords().first(doc)?, doc))).collect();
        if docs.len() > most {
            docs.select_nth_unstable(most);
            docs.truncate(most);
        }
        let mut key = String::new();
        for (ord, doc) in docs {
            if self.keys.ord_to_str(ord, &mut key)? {
                to.push((key.clone(), self.held_at(doc)));
            }
        }
        Ok(())
    }
}
