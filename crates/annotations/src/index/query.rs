//! What can be asked of the index, and what comes back.

use std::collections::HashSet;

/// How many hits an answer has at most.
pub const LIMIT: usize = 200;
/// Of the words of a question. The rest would find nothing that these do not.
pub const WORDS_BYTES: usize = 4 * 1024;

/// A question. Everything that is set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pub url: Option<String>,
    pub user: Option<String>,
    /// In one of these; `None`: in any. An empty list matches nothing.
    pub groups: Option<Vec<String>>,
    /// In whatever case it was written.
    pub tag: Option<String>,
    pub kind: Option<String>,
    /// Replies to this annotation, direct ones and those further down its conversation.
    pub reference: Option<String>,
    /// Every one of these words in quote, text or tags; a part in double quotes as a phrase.
    pub words: Option<String>,
    /// 1 to [`LIMIT`]; more and less are taken as the nearest.
    pub limit: usize,
    /// Where the answer before this one ended.
    pub after: Option<Cursor>,
}

impl Query {
    pub(crate) fn size(&self) -> usize {
        self.limit.clamp(1, LIMIT)
    }
}

/// A place in an answer: newest change first, and the larger id where two changed at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Microseconds since 1970.
    pub updated: i64,
    pub id: String,
}

impl Cursor {
    /// As text for a URL.
    pub fn encode(&self) -> String {
        format!("{}.{}", self.updated, self.id)
    }

    /// Reads [`encode`](Self::encode)'s text. `None`: it is no cursor of ours.
    pub fn decode(text: &str) -> Option<Self> {
        let (updated, id) = text.split_once('.')?;
        let id = Some(id).filter(|id| !id.is_empty() && id.len() <= super::document::KEY_BYTES)?;
        Some(Self { updated: updated.parse().ok()?, id: id.to_owned() })
    }
}

/// An annotation that matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    pub id: String,
    /// Its last change as the index knows it, in microseconds since 1970.
    pub updated: i64,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    pub hits: Vec<Hit>,
    /// Set when there may be more.
    pub next: Option<Cursor>,
}

impl Hits {
    /// A full answer has a next one.
    pub(crate) fn new(hits: Vec<Hit>, size: usize) -> Self {
        let last = hits.last().filter(|_| hits.len() >= size);
        let next = last.map(|hit| Cursor { updated: hit.updated, id: hit.id.clone() });
        Self { hits, next }
    }

    /// Several answers as one, in the same order. A note that moved between two questions is there
    /// once, where it is newest.
    pub(crate) fn merged(mut answers: Vec<Self>, size: usize) -> Self {
        if answers.len() == 1 {
            return answers.pop().unwrap_or_default();
        }
        let mut hits: Vec<Hit> = answers.into_iter().flat_map(|answer| answer.hits).collect();
        hits.sort_by(|one, other| (other.updated, &other.id).cmp(&(one.updated, &one.id)));
        let mut seen = HashSet::new();
        hits.retain(|hit| seen.insert(hit.id.clone()));
        hits.truncate(size);
        Self::new(hits, size)
    }
}

/// The words of a question, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    /// Each must be there, in any order.
    pub plain: String,
    /// Each must be there, word after word.
    pub phrases: Vec<String>,
}

impl Words {
    /// `None`: nothing was asked for. A quote that is not closed goes to the end.
    pub fn parse(text: &str) -> Option<Self> {
        let mut end = text.len().min(WORDS_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text = text.get(..end).unwrap_or_default();
        let mut words = Self::default();
        for (at, part) in text.split('"').enumerate() {
            let part = part.trim();
            if part.is_empty() {
                continue;
            }
            if at % 2 == 1 {
                words.phrases.push(part.to_owned());
            } else {
                if !words.plain.is_empty() {
                    words.plain.push(' ');
                }
                words.plain.push_str(part);
            }
        }
        (words != Self::default()).then_some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_parts_are_phrases() {
        let words = Words::parse(r#"giant "flailing arms" windmill "#).unwrap();
        assert_eq!(words.plain, "giant windmill");
        assert_eq!(words.phrases, ["flailing arms"]);
        let open = Words::parse(r#""Rocinante's ribs"#).unwrap();
        assert_eq!((open.plain.as_str(), open.phrases.len()), ("", 1));
        assert_eq!(Words::parse("  \" \" "), None);
    }

    #[test]
    fn long_questions_are_cut_between_characters() {
        let words = Words::parse(&"ü".repeat(WORDS_BYTES)).unwrap();
        assert_eq!(words.plain.len(), WORDS_BYTES);
        let odd = Words::parse(&format!("x{}", "ü".repeat(WORDS_BYTES))).unwrap();
        assert_eq!(odd.plain.len(), WORDS_BYTES - 1);
    }

    #[test]
    fn several_answers_are_one_in_order_and_go_on_where_it_ends() {
        let answer = |places: &[(i64, &str)]| {
            let hit = |(updated, id): &(i64, &str)| Hit { id: (*id).to_owned(), updated: *updated };
            Hits::new(places.iter().map(hit).collect(), 3)
        };
        let both = [answer(&[(9, "a"), (5, "c")]), answer(&[(9, "b"), (5, "c"), (1, "d")])];
        let merged = Hits::merged(both.to_vec(), 3);
        assert_eq!(merged, answer(&[(9, "b"), (9, "a"), (5, "c")]));
        assert_eq!(merged.next, Some(Cursor { updated: 5, id: "c".to_owned() }));
        let short = Hits::merged(vec![answer(&[(9, "a")]), answer(&[])], 3);
        assert_eq!(short, answer(&[(9, "a")]));
        assert_eq!(short.next, None);
    }

    #[test]
    fn cursors_come_back_as_they_were_and_garbage_does_not() {
        let cursor = Cursor { updated: -5, id: "a.b".to_owned() };
        assert_eq!(Cursor::decode(&cursor.encode()), Some(cursor));
        for garbage in ["", ".", "5", "5.", "x.y", "99999999999999999999.a"] {
            assert_eq!(Cursor::decode(garbage), None, "{garbage}");
        }
    }
}
