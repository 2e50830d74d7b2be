//! The kinds of keys that a mirror can have, and their form as text.

/// The kind of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Text,
    Uuid,
    Integer,
}

impl KeyKind {
    pub(crate) fn of_type(name: &str) -> Option<Self> {
        match name {
            "text" | "character varying" => Some(Self::Text),
            "uuid" => Some(Self::Uuid),
            "bigint" | "integer" | "smallint" => Some(Self::Integer),
            _ => None,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Uuid => "uuid",
            Self::Integer => "integer",
        }
    }

    /// Returns the key as the store sees it; `None`: it is no key of such a table. An invalid key would
    /// fail the statement, and with it every other key of the batch.
    pub(crate) fn normal(self, key: &str) -> Option<String> {
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
    pub(crate) fn text_of(self, expression: &str) -> String {
        match self {
            Self::Text | Self::Uuid => format!("{expression}::text"),
            Self::Integer => format!("lpad({expression}::text, 19, '0')"),
        }
    }

    /// Returns SQL that converts an array of the store's text to values of the column.
    pub(crate) fn values_of(self, expression: &str) -> String {
        match self {
            Self::Text => format!("{expression}::text[]"),
            Self::Uuid => format!("{expression}::text[]::uuid[]"),
            Self::Integer => format!("{expression}::text[]::bigint[]"),
        }
    }

    /// Returns SQL that converts the store's text to a value of the column.
    pub(crate) fn value_of(self, expression: &str) -> String {
        match self {
            Self::Text => format!("{expression}::text"),
            Self::Uuid => format!("{expression}::text::uuid"),
            Self::Integer => format!("{expression}::text::bigint"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::KeyKind;

    #[test]
    fn key_has_one_form_and_a_text_that_is_no_key_has_none() {
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
