//! The types of the service, independent of HTTP and Postgres.

use jiff::Timestamp;
use serde_json::Value;

use crate::id::AnnotationId;

/// The public group.
pub const WORLD: &str = "__world__";

/// A user with an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub id: i64,
    pub name: String,
    pub display_name: String,
}

/// Users who read together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub id: String,
    pub name: String,
    pub open: bool,
    /// The viewer owns it.
    pub own: bool,
}

/// An invitation into a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    pub group: String,
    pub group_name: String,
    /// The name of the user who invites.
    pub by: String,
    pub at: Timestamp,
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
    /// The text is longer: the caller asked only for its beginning.
    pub cut: bool,
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

/// A new note.
#[derive(Clone, Debug, Default)]
pub struct NewAnnotation {
    pub url: String,
    pub title: String,
    /// `None`: public, or the group of the note that is answered.
    pub group: Option<String>,
    pub reply_to: Option<AnnotationId>,
    /// Empty: about the whole page.
    pub quote: String,
    pub selectors: Vec<Value>,
    pub text: String,
    pub tags: Vec<String>,
    pub idempotency_key: Option<String>,
}

/// The changes to a note. `None` leaves a field as it is.
#[derive(Clone, Debug, Default)]
pub struct Change {
    pub text: Option<String>,
    pub tags: Option<Vec<String>>,
    pub group: Option<String>,
    /// Change it only in one of these versions.
    pub expected: Option<Vec<i64>>,
}

/// The result of saving a note.
#[derive(Clone, Debug)]
pub struct Saved {
    pub annotation: Annotation,
    /// An earlier request with the same key stored it.
    pub replayed: bool,
}

/// What to search for. Filters that are `None` do not apply.
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
    /// Returns how many notes the filter matches, by these counts; `None` if they cannot tell.
    pub fn expected(&self, counts: &Counts) -> Option<i64> {
        let Counts { annotations, page_notes, replies } = counts;
        if self.is_narrow() || self.group.is_some() || self.references.is_some() {
            return None;
        }
        Some(match self.kind.and_then(Kind::of) {
            Some(Kind::Annotation) => *annotations,
            Some(Kind::PageNote) => *page_notes,
            Some(Kind::Reply) => *replies,
            None => annotations + page_notes + replies,
        })
    }

    /// Returns whether it searches for something beyond a page and its readers.
    pub fn is_narrow(&self) -> bool {
        self.user.is_some() || self.tag.is_some() || self.q.is_some()
    }
}

/// A position in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub updated_at: Timestamp,
    pub id: AnnotationId,
    /// Postgres alone gave the pages before, because the index lacked a note; it gives the following
    /// ones, too.
    pub alone: bool,
}

impl Cursor {
    pub fn of(annotation: &Annotation) -> Self {
        Self { updated_at: annotation.updated_at, id: annotation.id.clone(), alone: false }
    }
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Found {
    pub rows: Vec<Annotation>,
    /// Where the next page begins; `None`: this is the last one.
    pub next: Option<Cursor>,
    pub index: IndexState,
    /// The breaker is open, because the index failed several times in a row. An index that was late once
    /// is `down` for that response, and not away.
    pub away: bool,
    /// Postgres alone gives the following pages, too: see [`Cursor::alone`].
    pub alone: bool,
}

impl Found {
    /// Returns the cursor after a note that was found.
    pub fn after(&self, annotation: &Annotation) -> Cursor {
        Cursor { alone: self.alone, ..Cursor::of(annotation) }
    }
}

/// How much of a search to return.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// `next` of the previous response.
    pub cursor: Option<&'a Cursor>,
    /// 1 to [`crate::search::LARGEST_PAGE`].
    pub limit: usize,
    /// About how many bytes the notes of a response may have. It has at least one note.
    pub bytes: usize,
    /// Characters of a note's text; `None`: all of it.
    pub preview: Option<usize>,
}

/// The state of the index during a search, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IndexState {
    Ok,
    /// It answers, but lacks a note.
    Behind,
    /// It does not respond; Postgres alone served the search.
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

/// How many notes of a page a user may see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub annotations: i64,
    pub page_notes: i64,
    pub replies: i64,
}
