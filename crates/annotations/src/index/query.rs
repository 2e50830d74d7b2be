//! Queries to the index, and their results.

use std::collections::HashSet;

use super::split;

/// The most hits of a result.
pub const LIMIT: usize = 200;
/// The most bytes of the words of a query; the rest is cut off, and could only narrow the result.
pub const WORDS_BYTES: usize = 4 * 1024;
/// The most words of a query; more add nothing.
pub(crate) const MOST_WORDS: usize = 64;

/// A query. A document must match everything that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pub url: Option<String>,
    pub user: Option<String>,
    /// In one of these; `None`: in any. An empty list matches nothing.
    pub groups: Option<Vec<String>>,
    /// Matched in any case.
    pub tag: Option<String>,
    pub kind: Option<String>,
    /// Replies to this annotation, direct ones and those further down its conversation.
    pub reference: Option<String>,
    /// Every one of these words in quote, text or tags; a part in double quotes as a phrase.
    pub words: Option<String>,
    /// 1 to [`LIMIT`]; other values are clamped.
    pub limit: usize,
    /// Where the previous result ended.
    pub after: Option<Cursor>,
}

impl Query {
    pub(crate) fn size(&self) -> usize {
        self.limit.clamp(1, LIMIT)
    }
}

/// A position in a result: newest change first, and the larger id first where two changed at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Microseconds since 1970.
    pub updated: i64,
    pub id: String,
}

/// An annotation that matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    pub id: String,
    /// Its last change in the index, in microseconds since 1970.
    pub updated: i64,
}

/// The result of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    pub hits: Vec<Hit>,
    /// Set when there may be more.
    pub next: Option<Cursor>,
}

impl Hits {
    /// Sets `next` if the result is full.
    pub(crate) fn new(hits: Vec<Hit>, size: usize) -> Self {
        let last = hits.last().filter(|_| hits.len() >= size);
        let next = last.map(|hit| Cursor { updated: hit.updated, id: hit.id.clone() });
        Self { hits, next }
    }

    /// Merges several results into one, in the same order. A note that moved between two queries is in
    /// it once, at its newest position.
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

/// The words of a query, parsed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    /// Each must occur, in any order.
    pub plain: String,
    /// Each must occur, word after word.
    pub phrases: Vec<String>,
}

impl Words {
    /// Returns `None` if there are no words. An unclosed quote extends to the end.
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

    /// Returns the terms for Postgres. `None`: the query has a part without any word, which matches no
    /// note.
    pub fn terms(&self) -> Option<Terms> {
        let mut terms = Terms::default();
        let plain: Vec<&str> = split::words(&self.plain).take(MOST_WORDS).collect();
        if plain.is_empty() && !self.plain.is_empty() {
            return None;
        }
        terms.words.extend(plain.into_iter().map(str::to_owned));
        for phrase in &self.phrases {
            let words: Vec<&str> = split::words(phrase).take(MOST_WORDS).collect();
            // Each word by itself too: that is quick to check, and most notes lack one.
            terms.words.extend(words.iter().map(|word| (*word).to_owned()));
            match words.as_slice() {
                [] => return None,
                [_] => {}
                // Between two words anything may be that is not a word, as in the index.
                _ => terms
                    .phrases
                    .push(words.iter().map(|word| literal(word)).collect::<Vec<_>>().join(BETWEEN)),
            }
        }
        Some(terms)
    }
}

/// Matches between two words of a phrase, as a regular expression of Postgres.
const BETWEEN: &str = "[^[:alnum:]]*";

/// Returns a regular expression that matches only this word. A word has letters and digits, and few
/// marks inside.
fn literal(word: &str) -> String {
    let mut plain = String::with_capacity(word.len() + 2);
    for c in word.chars() {
        if c.is_ascii_punctuation() {
            plain.push('\\');
        }
        plain.push(c);
    }
    plain
}

/// The words of a query for Postgres, which matches them as parts of words, in any case.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    pub words: Vec<String>,
    /// Regular expressions.
    pub phrases: Vec<String>,
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
    fn f23_terms_for_postgres_match_those_of_the_index() {
        let terms = |text: &str| Words::parse(text).unwrap().terms();
        let found = terms(r#"giants, "flailing  arms!" (x)"#).unwrap();
        assert_eq!(found.words, ["giants", "x", "flailing", "arms"]);
        assert_eq!(found.phrases, ["flailing[^[:alnum:]]*arms"]);
        assert_eq!(terms(r#""example.com is""#).unwrap().phrases, [r"example\.com[^[:alnum:]]*is"]);
        assert_eq!(terms(r#""giants""#).unwrap().phrases, [""; 0], "one word is no phrase");
        assert_eq!(terms("--"), None);
        assert_eq!(terms(r#"giants "--""#), None);
    }

    #[test]
    fn long_query_is_cut_between_characters() {
        let words = Words::parse(&"ü".repeat(WORDS_BYTES)).unwrap();
        assert_eq!(words.plain.len(), WORDS_BYTES);
        let odd = Words::parse(&format!("x{}", "ü".repeat(WORDS_BYTES))).unwrap();
        assert_eq!(odd.plain.len(), WORDS_BYTES - 1);
    }

    #[test]
    fn merged_hits_are_in_order_and_continue_at_their_end() {
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
}
