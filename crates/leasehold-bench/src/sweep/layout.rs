//! Maps pastes to contents. Pure; the SQL that inserts the rows computes the same.
//!
//! Three of ten pastes share their content with nine others. Half of these groups are spread over the
//! whole table, so that the sweep touches their content from its first to its last batch. The other half
//! lies within some thousand rows, so that two workers decrement the same content at the same moment.
//! Every hundredth group has one more paste that has not expired: its content must survive.

use sha2::{Digest, Sha256};

/// Every hundredth group has one more paste, which has not expired.
pub const SURVIVES: u64 = 100;

/// With fewer bytes, two contents could be the same.
pub const LEAST_SIZE: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Expired pastes; a multiple of ten.
    pub rows: u64,
    /// Groups spread over the whole table; their contents have the ids from 1 on.
    pub spread: u64,
    /// Groups whose pastes lie near each other.
    pub local: u64,
    /// Bytes per content.
    pub object_size: usize,
    /// Objects of unshared contents have no bytes, so that they take no block of the disk.
    pub empty: bool,
}

impl Layout {
    pub fn new(rows: u64, object_size: usize) -> Self {
        let rows = rows.next_multiple_of(10);
        let shared = rows / 10 * 3;
        let (even, odd) = (shared.div_ceil(2), shared / 2);
        Self {
            rows,
            spread: (even / 10).max(1),
            local: odd / 1000 * 100 + (odd % 1000).min(100),
            object_size: object_size.max(LEAST_SIZE),
            empty: object_size == 0,
        }
    }

    pub fn groups(&self) -> u64 {
        self.spread + self.local
    }

    /// The highest content id; ids start at 1.
    pub fn contents(&self) -> u64 {
        self.groups() + self.rows / 10 * 7
    }

    /// Number of pastes that have not expired, and of contents that must be left in the end.
    pub fn survivors(&self) -> u64 {
        self.groups().div_ceil(SURVIVES)
    }

    /// The bytes of a content.
    pub fn bytes(&self, content: u64) -> Vec<u8> {
        let mut bytes = format!("content {content}").into_bytes();
        bytes.resize(self.object_size, b' ');
        bytes
    }

    /// The bytes stored for a content. New pastes share them, so wrong bytes would be uploaded again.
    pub fn object(&self, content: u64) -> Vec<u8> {
        let alone = content > self.groups();
        if self.empty && alone { Vec::new() } else { self.bytes(content) }
    }

    /// Number of objects that have bytes.
    pub fn filled(&self) -> u64 {
        if self.empty { self.groups() } else { self.contents() }
    }

    /// The key of a content's object.
    pub fn key(&self, content: u64) -> String {
        let hash = hex(&Sha256::digest(self.bytes(content)));
        let object = hex(&Sha256::digest(format!("object {content}")));
        let (folder, object) = (hash.get(..3), object.get(..32));
        format!("blobs/{}/{hash}-{content}-{}", folder.unwrap_or(""), object.unwrap_or(""))
    }
}

/// SQL for the object key of a row with these columns.
pub const KEY: &str = "'blobs/' || left(content_hash, 3) || '/' || content_hash || '-' || content_id \
     || '-' || replace(object_id::text, '-', '')";

pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_of_ten_million_pastes_has_7_300_000_contents() {
        let layout = Layout::new(10_000_000, 64);
        assert_eq!((layout.contents(), layout.survivors()), (7_300_000, 3_000));
    }

    #[test]
    fn layout_of_the_smallest_run_has_every_kind_of_content() {
        let layout = Layout::new(91, 0);
        let object_size = LEAST_SIZE;
        assert_eq!(layout, Layout { rows: 100, spread: 1, local: 15, object_size, empty: true });
        assert_eq!(layout.contents(), 86);
        assert_eq!(layout.survivors(), 1);
    }

    #[test]
    fn unread_objects_are_empty() {
        let (empty, full) = (Layout::new(100, 0), Layout::new(100, 64));
        assert_eq!(empty.object(empty.groups()).len(), LEAST_SIZE);
        assert_eq!(empty.object(empty.groups() + 1).len(), 0);
        assert_eq!(full.object(full.contents()).len(), 64);
        assert_eq!((empty.filled(), full.filled()), (16, 86));
    }

    #[test]
    fn keys_equal_those_of_the_store() {
        let layout = Layout::new(100, 64);
        assert_eq!(layout.bytes(7).len(), 64);
        let key = layout.key(7);
        let name = key.strip_prefix("blobs/").unwrap();
        let (folder, name) = name.split_once('/').unwrap();
        let parts: Vec<&str> = name.split('-').collect();
        assert_eq!((folder.len(), parts.len()), (3, 3));
        assert!(parts[0].starts_with(folder));
        assert_eq!((parts[0].len(), parts[1], parts[2].len()), (64, "7", 32));
    }
}
