//! The SQL of one mirror. Pure: it takes a declaration and the kind of its key, and returns text.
//!
//! # What is true
//! - Names are quoted here. Keys are passed and returned as the text that the store sees.
//! - Statements about given keys find their rows by the key's index; a range is read in the byte order
//!   of that text, which is the order of the store.

use super::declare::Mirror;
use crate::sweep::{ident, table};

/// The kind of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Text,
    Uuid,
    Integer,
}

impl KeyKind {
    pub(super) fn of_type(name: &str) -> Option<Self> {
        match name {
            "text" | "character varying" => Some(Self::Text),
            "uuid" => Some(Self::Uuid),
            "bigint" | "integer" | "smallint" => Some(Self::Integer),
            _ => None,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Uuid => "uuid",
            Self::Integer => "integer",
        }
    }

    /// Returns the key as the store sees it; `None`: it is no key of such a table. An invalid key would
    /// fail the statement, and with it every other key of the batch.
    pub(super) fn normal(self, key: &str) -> Option<String> {
        match self {
            Self::Text if key.is_empty() || key.contains('\0') => None,
            Self::Text => Some(key.to_owned()),
            Self::Uuid => uuid::Uuid::parse_str(key).ok().map(|id| id.hyphenated().to_string()),
            Self::Integer => {
                key.parse::<i64>().ok().filter(|id| *id >= 0).map(|id| format!("{id:019}"))
            }
        }
    }

    /// Returns SQL that converts an expression to the store's text.
    pub(super) fn text_of(self, expression: &str) -> String {
        match self {
            Self::Text | Self::Uuid => format!("{expression}::text"),
            Self::Integer => format!("lpad({expression}::text, 19, '0')"),
        }
    }

    /// Returns SQL that converts an array of the store's text to values of the column.
    pub(super) fn values_of(self, expression: &str) -> String {
        match self {
            Self::Text => format!("{expression}::text[]"),
            Self::Uuid => format!("{expression}::text[]::uuid[]"),
            Self::Integer => format!("{expression}::text[]::bigint[]"),
        }
    }

    /// Returns SQL that converts the store's text to a value of the column.
    fn value_of(self, expression: &str) -> String {
        match self {
            Self::Text => format!("{expression}::text"),
            Self::Uuid => format!("{expression}::text::uuid"),
            Self::Integer => format!("{expression}::text::bigint"),
        }
    }
}

/// Every statement about the mirrored table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statements {
    /// $1 keys, $2 mirror. The versions of documents, rows and deletions, each with its kind and key.
    /// Not joined: a planner that underestimates the number of keys would choose a nested loop over all
    /// of them.
    pub(crate) versions: String,
    /// $1 keys. Key, version, document.
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
        let (table, key) = (table(&mirror.table), ident(&mirror.key));
        let version = ident(&mirror.version);
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
                 select 'deletion', g.key, g.version from leasehold.mirror_gone g \
                  where g.mirror = $2 and g.key = any ($1::text[])",
            ),
            documents: format!("select {named}, q.version::bigint, q.document::jsonb from {from}"),
            listed: format!("select {named}, q.version::bigint from {from}"),
            digest: format!(
                "select count(*), coalesce(sum(f.bits >> 26), 0)::bigint, \
                        coalesce(sum(f.bits & 67108863), 0)::bigint \
                   from (select leasehold.fingerprint({named}, q.version::bigint) as bits \
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

#[cfg(test)]
mod tests {
    use super::KeyKind;

    #[test]
    fn keys_have_one_form_and_what_is_no_key_is_told() {
        let normal = |kind: KeyKind, key: &str| kind.normal(key);
        assert_eq!(normal(KeyKind::Integer, "42").as_deref(), Some("0000000000000000042"));
        assert_eq!(
            normal(KeyKind::Integer, "0000000000000000042").as_deref(),
            Some("0000000000000000042")
        );
        assert_eq!(normal(KeyKind::Integer, &i64::MAX.to_string()).map(|key| key.len()), Some(19));
        for bad in ["-1", "4.2", "", "x", "9223372036854775808"] {
            assert_eq!(normal(KeyKind::Integer, bad), None, "{bad}");
        }
        assert_eq!(
            normal(KeyKind::Uuid, "936DA01F9ABD4d9d80C702AF85C822A8").as_deref(),
            Some("936da01f-9abd-4d9d-80c7-02af85c822a8")
        );
        assert_eq!(normal(KeyKind::Uuid, "no"), None);
        assert_eq!(normal(KeyKind::Text, "a\0"), None);
        assert_eq!(normal(KeyKind::Text, "ä").as_deref(), Some("ä"));
    }
}
