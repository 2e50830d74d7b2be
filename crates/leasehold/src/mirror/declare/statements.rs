//! The SQL of one mirror. Pure: it takes a declaration and the kind of its key, and returns text.
//!
//! # Invariants
//! - Names are quoted here. Keys are passed and returned as the text that the store sees.
//! - Statements about given keys find their rows by the key's index; a range is read in the byte order
//!   of that text, which is the order of the store.

use super::declaration::Mirror;
use super::key::KeyKind;
use crate::table::{quote_name, quote_table};

/// Every statement about the mirrored table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statements {
    /// $1 keys, $2 mirror. The versions of documents, rows and deletions, each with its kind and key.
    /// Not joined: a planner that underestimates the number of keys would choose a nested loop over all
    /// of them.
    pub(crate) versions: String,
    /// $1 keys. Key, version, the document as text.
    pub(crate) documents: String,
    /// $1 keys. Key and version of those that have a document.
    pub(crate) listed: String,
    /// $1 keys. How many have a document, and the sums of their fingerprints.
    pub(crate) digest: String,
    /// $1 limit. The first keys.
    pub(crate) first_keys: String,
    /// $1 limit, $2 a key. The keys after it.
    pub(crate) next_keys: String,
    /// $1 key, $2 version. Raises the row above that version, unless it is above already; returns its
    /// version.
    pub(crate) raise: String,
}

impl Statements {
    pub(super) fn of(mirror: &Mirror, kind: KeyKind) -> Self {
        let (table, key) = (quote_table(&mirror.table), quote_name(&mirror.key));
        let version = quote_name(&mirror.version);
        // On its own line: the text may end with a comment.
        let document = mirror.document.trim().trim_end_matches(';');
        let from = format!("(\n{document}\n) as q (key, version, document)");
        let named = kind.text_of("q.key");
        let own = kind.text_of(&format!("t.{key}"));
        let order = match kind {
            KeyKind::Text => format!("t.{key} collate \"C\""),
            _ => format!("t.{key}"),
        };
        let (given, given_all) = (kind.value_of("$1"), kind.values_of("$1"));
        Self {
            versions: format!(
                "select 'document', {named}, q.version::bigint from {from} \
                 union all \
                 select 'row', {own}, t.{version}::bigint from {table} t \
                  where t.{key} = any ({given_all}) \
                 union all \
                 select 'deletion', g.key, g.version from leasehold_internal.mirror_gone g \
                  where g.mirror = $2 and g.key = any ($1::text[])",
            ),
            documents: format!(
                "select {named}, q.version::bigint, q.document::jsonb::text from {from}"
            ),
            listed: format!("select {named}, q.version::bigint from {from}"),
            digest: format!(
                "select count(*), coalesce(sum(f.bits >> 26), 0)::bigint, \
                        coalesce(sum(f.bits & 67108863), 0)::bigint \
                   from (select leasehold_internal.fingerprint({named}, q.version::bigint) as bits \
                           from {from} offset 0) f"
            ),
            first_keys: format!("select {own} from {table} t order by {order} limit $1::bigint"),
            next_keys: format!(
                "select {own} from {table} t where {order} > {} order by {order} limit $1::bigint",
                kind.value_of("$2")
            ),
            raise: format!(
                "update {table} t set {version} = $2::bigint + 1 \
                  where t.{key} = {given} and t.{version} <= $2::bigint returning t.{version}"
            ),
        }
    }
}
