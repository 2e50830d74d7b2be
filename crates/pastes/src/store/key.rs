//! Object keys: built from a hash, a row's id and a random id, and from nothing else.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// The key of an object: `blobs/3fa/<sha-256>-<content>-<id>`.
///
/// The random id keeps the key unique for ever, even if a restored database reuses a row's id. The
/// row's id leads from an object back to its row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectKey {
    pub content_hash: String,
    pub content_id: i64,
    pub object_id: Uuid,
}

/// The prefix of all keys.
pub const PREFIX: &str = "blobs";

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = self.content_hash.get(..3).unwrap_or("000");
        write!(
            f,
            "{PREFIX}/{folder}/{}-{}-{}",
            self.content_hash,
            self.content_id,
            self.object_id.simple()
        )
    }
}

impl FromStr for ObjectKey {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let name = text.rsplit('/').next().ok_or(())?;
        let mut parts = name.splitn(3, '-');
        let (hash, content, object) =
            (parts.next().ok_or(())?, parts.next().ok_or(())?, parts.next().ok_or(())?);
        let key = Self {
            content_hash: hash.to_owned(),
            content_id: content.parse().map_err(|_| ())?,
            object_id: object.parse().map_err(|_| ())?,
        };
        let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        // Accept a key only if we would have written it exactly like this.
        if is_hash && key.to_string() == text { Ok(key) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h4_key_is_parsed_only_as_it_was_written() {
        let key = ObjectKey {
            content_hash: "ab".repeat(32),
            content_id: 42,
            object_id: Uuid::from_u128(7),
        };
        let text = key.to_string();
        assert!(text.starts_with("blobs/aba/abab"), "{text}");
        assert_eq!(text.parse(), Ok(key));
        for stranger in ["blobs/x", "../etc/passwd", "blobs/aba/..", "", "blobs/aba/abab-42-zz"] {
            assert_eq!(stranger.parse::<ObjectKey>(), Err(()), "{stranger}");
        }
        assert_eq!(text.replace("aba/", "../").parse::<ObjectKey>(), Err(()));
    }
}
