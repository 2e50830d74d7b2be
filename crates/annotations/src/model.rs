//! What the service speaks of, free of HTTP and of Postgres.

use jiff::Timestamp;
use serde_json::Value;

use crate::id::AnnotationId;

/// Everybody's group.
pub const WORLD: &str = "__world__";

/// Somebody with an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub id: i64,
    pub name: String,
    pub display_name: String,
}

/// People who read together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub id: String,
    pub name: String,
    pub open: bool,
    /// The person who asks made it.
    pub own: bool,
}

/// What a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A passage of the page.
    Annotation,
    /// The whole page.
    PageNote,
    /// Another note.
    Reply,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Annotation => "annotation",
            Self::PageNote => "page_note",
            Self::Reply => "reply",
        }
    }

    pub fn of(word: &str) -> Option<Self> {
        [Self::Annotation, Self::PageNote, Self::Reply]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }
}

/// A note as it is stored.
#[derive(Clone, Debug)]
pub struct Annotation {
    pub id: AnnotationId,
    pub kind: Kind,
    pub parent: Option<String>,
    pub root: Option<String>,
    pub quote: String,
    pub selectors: Value,
    pub text: String,
    pub tags: Vec<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub version: i64,
    pub user_id: i64,
    pub user_name: String,
    pub display_name: String,
    pub group: String,
    pub group_name: String,
    pub url: String,
    pub title: String,
}

/// A note to be stored.
#[derive(Clone, Debug, Default)]
pub struct NewAnnotation {
    pub url: String,
    pub title: String,
    /// `None`: everybody, or the group of what is answered.
    pub group: Option<String>,
    pub reply_to: Option<AnnotationId>,
    /// Empty: about the whole page.
    pub quote: String,
    pub selectors: Vec<Value>,
    pub text: String,
    pub tags: Vec<String>,
    pub idempotency_key: Option<String>,
}

/// What is to be different. `None` leaves it as it is.
#[derive(Clone, Debug, Default)]
pub struct Change {
    pub text: Option<String>,
    pub tags: Option<Vec<String>>,
    pub group: Option<String>,
    /// Only if it is in one of these versions.
    pub expected: Option<Vec<i64>>,
}

/// A note that was stored.
#[derive(Clone, Debug)]
pub struct Saved {
    pub annotation: Annotation,
    /// It was stored before, by a request with the same key.
    pub replayed: bool,
}

/// What to look for. Filters that are `None` do not count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    pub url: Option<String>,
    pub user: Option<String>,
    pub group: Option<String>,
    pub tag: Option<String>,
    pub kind: Option<&'static str>,
    /// Replies to this note, and to its replies.
    pub references: Option<AnnotationId>,
    /// Words in quote, text and tags.
    pub q: Option<String>,
}

impl Filter {
    /// Something is looked for, beyond a page and who reads it.
    pub fn is_narrow(&self) -> bool {
        self.user.is_some() || self.tag.is_some() || self.q.is_some()
    }
}

/// A place in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub updated_at: Timestamp,
    pub id: AnnotationId,
}

impl Cursor {
    pub fn of(annotation: &Annotation) -> Self {
        Self { updated_at: annotation.updated_at, id: annotation.id.clone() }
    }

    /// As it travels in links: microseconds, a dash, the id.
    pub fn encode(&self) -> String {
        format!("{}-{}", self.updated_at.as_microsecond(), self.id)
    }

    pub fn decode(text: &str) -> Option<Self> {
        let (at, id) = text.split_once('-')?;
        let at: i64 = at.parse().ok()?;
        let updated_at = Timestamp::from_microsecond(at).ok()?;
        Some(Self { updated_at, id: id.parse().ok()? })
    }
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Found {
    pub rows: Vec<Annotation>,
    /// Where to go on; `None`: that was all.
    pub next: Option<Cursor>,
    pub index: IndexState,
}

/// How the index was while a search was answered, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IndexState {
    Ok,
    /// It answers, and lacks something.
    Behind,
    /// It does not answer; Postgres did.
    Down,
}

impl IndexState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Behind => "behind",
            Self::Down => "down",
        }
    }
}

/// How many notes of a page somebody may see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub annotations: i64,
    pub page_notes: i64,
    pub replies: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_come_back_as_they_went_and_others_do_not() {
        let cursor = Cursor {
            updated_at: Timestamp::from_microsecond(1_700_000_000_123_456).unwrap_or_default(),
            id: AnnotationId::random(),
        };
        assert_eq!(Cursor::decode(&cursor.encode()), Some(cursor));
        for bad in ["", "-", "1", "x-y", "9223372036854775807-0000000000000000000000", "1-../.."] {
            assert_eq!(Cursor::decode(bad), None, "{bad}");
        }
    }
}
