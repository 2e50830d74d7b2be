//! Splits text into words the way OpenSearch's standard analyser does, as far as users notice.
//!
//! A word is a run of letters and digits, in lower case and without accents. Chinese and Japanese do
//! not put spaces between words, so there every character is one: a search for part of a sentence
//! would find nothing otherwise.

use tantivy::tokenizer::{
    AsciiFoldingFilter, LowerCaser, RemoveLongFilter, TextAnalyzer, Token, TokenStream, Tokenizer,
};

use crate::index::split::next_word;

/// The name of the tokenizer in the schema.
pub const WORDS: &str = "leasehold_words";
/// Longer than any word; longer tokens are data.
const WORD_BYTES: usize = 256;

pub fn analyzer() -> TextAnalyzer {
    TextAnalyzer::builder(Splitter::default())
        .filter(RemoveLongFilter::limit(WORD_BYTES))
        .filter(LowerCaser)
        .filter(AsciiFoldingFilter)
        .build()
}

/// Returns the words of a text, as they are in the index.
pub fn split(text: &str) -> Vec<String> {
    let mut analyzer = analyzer();
    let mut stream = analyzer.token_stream(text);
    let mut words = Vec::new();
    while let Some(token) = stream.next() {
        words.push(token.text.clone());
    }
    words
}

#[derive(Clone, Default)]
struct Splitter {
    token: Token,
}

struct Stream<'a> {
    text: &'a str,
    at: usize,
    token: &'a mut Token,
}

impl Tokenizer for Splitter {
    type TokenStream<'a> = Stream<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> Stream<'a> {
        self.token.reset();
        Stream { text, at: 0, token: &mut self.token }
    }
}

impl TokenStream for Stream<'_> {
    fn advance(&mut self) -> bool {
        let Some((from, to)) = next_word(self.text, self.at) else { return false };
        self.at = to;
        self.token.text.clear();
        self.token.text.push_str(self.text.get(from..to).unwrap_or_default());
        self.token.offset_from = from;
        self.token.offset_to = to;
        // Begins below zero, so that the first word is at zero.
        self.token.position = self.token.position.wrapping_add(1);
        true
    }

    fn token(&self) -> &Token {
        self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        self.token
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn analyzer_lowers_case_and_removes_accents() {
        assert_eq!(
            split("In a village of La Mañcha,"),
            ["in", "a", "village", "of", "la", "mancha"]
        );
    }

    #[test]
    fn analyzer_keeps_points_and_apostrophes_inside_words() {
        assert_eq!(split("Don't see example.com."), ["don't", "see", "example.com"]);
        assert_eq!(split("'quoted' _x_ …"), ["quoted", "x"]);
    }

    #[test]
    fn analyzer_splits_chinese_characters_and_no_other_script() {
        assert_eq!(split("風車 giants Ветряные"), ["風", "車", "giants", "ветряные"]);
    }

    #[test]
    fn analyzer_drops_marks_and_overlong_tokens() {
        assert!(split(" \u{0} \u{1f600} --").is_empty());
        assert_eq!(split(&format!("a {} b", "x".repeat(300))), ["a", "b"]);
    }
}
