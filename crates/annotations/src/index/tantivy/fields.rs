//! The fields of a document in the directory, and how a document is written to them.

use tantivy::TantivyDocument;
use tantivy::schema::{
    FAST, Field, INDEXED, IndexRecordOption, STORED, STRING, Schema, TextFieldIndexing, TextOptions,
};

use super::words::WORDS;
use crate::index::document::{Checked, Document, fold_tag};

/// Columns that are read by name.
pub const KEY: &str = "key";
pub const VERSION: &str = "lh_version";
pub const A: &str = "lh_a";
pub const B: &str = "lh_b";
pub const DELETED: &str = "lh_deleted";
pub const UPDATED: &str = "updated";

#[derive(Clone, Debug)]
pub struct Fields {
    pub schema: Schema,
    pub key: Field,
    version: Field,
    a: Field,
    b: Field,
    pub deleted: Field,
    deleted_at: Field,
    pub url: Field,
    pub user: Field,
    pub group: Field,
    pub kind: Field,
    pub tag: Field,
    pub reference: Field,
    pub words: Field,
    created: Field,
    updated: Field,
}

impl Fields {
    pub fn new() -> Self {
        let mut schema = Schema::builder();
        let words = TextFieldIndexing::default()
            .set_tokenizer(WORDS)
            .set_index_option(IndexRecordOption::WithFreqsAndPositions);
        Self {
            key: schema.add_text_field(KEY, STRING | STORED | FAST),
            version: schema.add_i64_field(VERSION, FAST),
            a: schema.add_u64_field(A, FAST),
            b: schema.add_u64_field(B, FAST),
            deleted: schema.add_bool_field(DELETED, INDEXED | FAST),
            deleted_at: schema.add_i64_field("lh_deleted_at", FAST),
            url: schema.add_text_field("url", STRING),
            user: schema.add_text_field("user", STRING),
            group: schema.add_text_field("group", STRING),
            kind: schema.add_text_field("kind", STRING),
            tag: schema.add_text_field("tag", STRING),
            reference: schema.add_text_field("reference", STRING),
            words: schema
                .add_text_field("words", TextOptions::default().set_indexing_options(words)),
            created: schema.add_i64_field("created", FAST),
            updated: schema.add_i64_field(UPDATED, FAST),
            schema: schema.build(),
        }
    }

    /// `now` is in microseconds.
    pub fn document(&self, write: &Checked<'_>, now: i64) -> TantivyDocument {
        let mut to = TantivyDocument::new();
        to.add_text(self.key, write.key);
        to.add_i64(self.version, write.version);
        to.add_u64(self.a, u64::from(write.a));
        to.add_u64(self.b, u64::from(write.b));
        to.add_bool(self.deleted, write.document.is_none());
        match &write.document {
            Some(document) => self.living(document, &mut to),
            None => to.add_i64(self.deleted_at, now),
        }
        to
    }

    fn living(&self, document: &Document, to: &mut TantivyDocument) {
        let whole = [
            (self.url, &document.url),
            (self.user, &document.user),
            (self.group, &document.group),
            (self.kind, &document.kind),
        ];
        for (field, value) in whole {
            to.add_text(field, value);
        }
        for tag in &document.tags {
            to.add_text(self.tag, fold_tag(tag));
        }
        for reference in document.references() {
            to.add_text(self.reference, reference);
        }
        for words in document.words() {
            to.add_text(self.words, words);
        }
        to.add_i64(self.created, document.created);
        to.add_i64(self.updated, document.updated);
    }
}
