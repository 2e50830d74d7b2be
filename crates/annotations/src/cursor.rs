//! Cursors as clients carry them: sealed, so that they reveal nothing about the note they point to. The
//! client may not be allowed to see that note.
//!
//! # Invariants
//! - A cursor always seals to the same text, in every process: the key comes from the database.
//! - A text that the service did not make is rejected.

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq as _;

use crate::model::Cursor;

const TAG: usize = 12;
/// Microseconds, [`Cursor::alone`], and the id.
const PLAIN: usize = 8 + 1 + 22;

/// Seals and opens cursors.
#[derive(Clone)]
pub struct Seal(Vec<u8>);

impl Seal {
    pub fn new(key: Vec<u8>) -> Self {
        Self(key)
    }

    pub fn close(&self, cursor: &Cursor) -> String {
        let mut plain = Vec::with_capacity(PLAIN);
        plain.extend_from_slice(&cursor.updated_at.as_microsecond().to_be_bytes());
        plain.push(u8::from(cursor.alone));
        plain.extend_from_slice(cursor.id.as_str().as_bytes());
        let tag = self.tag(&plain);
        let hidden = self.mask(&tag, &plain);
        tag.iter().chain(&hidden).map(|byte| format!("{byte:02x}")).collect()
    }

    pub fn open(&self, text: &str) -> Option<Cursor> {
        let bytes = unhex(text).filter(|bytes| bytes.len() == TAG + PLAIN)?;
        let (tag, hidden) = bytes.split_at(TAG);
        let plain = self.mask(tag, hidden);
        if !bool::from(self.tag(&plain).ct_eq(tag)) {
            return None;
        }
        let (at, id) = plain.split_first_chunk::<8>()?;
        let (alone, id) = id.split_first()?;
        let updated_at = Timestamp::from_microsecond(i64::from_be_bytes(*at)).ok()?;
        let id = std::str::from_utf8(id).ok()?.parse().ok()?;
        Some(Cursor { updated_at, id, alone: *alone == 1 })
    }

    fn hash(&self, what: &[u8], bytes: &[u8]) -> Vec<u8> {
        let hash = Sha256::new().chain_update(&self.0).chain_update(what).chain_update(bytes);
        hash.finalize().to_vec()
    }

    fn tag(&self, plain: &[u8]) -> Vec<u8> {
        let mut tag = self.hash(b"tag", plain);
        tag.truncate(TAG);
        tag
    }

    /// Applied twice, it returns the input.
    fn mask(&self, tag: &[u8], bytes: &[u8]) -> Vec<u8> {
        let stream = self.hash(b"mask", tag);
        bytes.iter().zip(stream).map(|(byte, mask)| byte ^ mask).collect()
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(digit(*high)? * 16 + digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::AnnotationId;

    fn cursor(at: i64) -> Cursor {
        let updated_at = Timestamp::from_microsecond(at).expect("a time");
        Cursor { updated_at, id: AnnotationId::random(), alone: at == 0 }
    }

    #[test]
    fn f24_sealed_cursor_opens_unchanged_and_reveals_nothing() {
        let seal = Seal::new(vec![7; 32]);
        for at in [0, -1, 1_700_000_000_123_456] {
            let cursor = cursor(at);
            let text = seal.close(&cursor);
            assert_eq!(text.len(), 86, "the length in the OpenAPI document");
            assert!(!text.contains(cursor.id.as_str()));
            assert_eq!(text, seal.close(&cursor), "the same in every process");
            assert_eq!(seal.open(&text), Some(cursor));
        }
    }

    #[test]
    fn f24_open_rejects_text_that_the_seal_did_not_make() {
        let seal = Seal::new(vec![7; 32]);
        let text = seal.close(&cursor(1));
        assert_eq!(Seal::new(vec![8; 32]).open(&text), None, "of another database");
        let mut changed = text.clone().into_bytes();
        changed[50] = if changed[50] == b'0' { b'1' } else { b'0' };
        let changed = String::from_utf8(changed).expect("text");
        for bad in [
            "",
            "0",
            "1-0000000000000000000000",
            changed.as_str(),
            text.get(2..).unwrap_or_default(),
            "ä",
        ] {
            assert_eq!(seal.open(bad), None, "{bad}");
        }
    }
}
