//! How text becomes words: the way OpenSearch's standard analyser does it, as far as people notice.
//!
//! A word is a run of letters and digits, in lower case and without accents. Chinese and Japanese do
//! not put spaces between words, so there every character is one: a search for part of a sentence
//! would find nothing otherwise.

use tantivy::tokenizer::{
    AsciiFoldingFilter, LowerCaser, RemoveLongFilter, TextAnalyzer, Token, TokenStream, Tokenizer,
};

/// The name that fields know it by.
pub const WORDS: &str = "leasehold_words";
/// Longer than any word; what is longer is data.
const WORD_BYTES: usize = 256;

pub fn analyzer() -> TextAnalyzer {
    TextAnalyzer::builder(Splitter::default())
        .filter(RemoveLongFilter::limit(WORD_BYTES))
        .filter(LowerCaser)
        .filter(AsciiFoldingFilter)
        .build()
}

/// The words of a text, as they are in the index.
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

/// Where the next word begins and ends.
fn next_word(text: &str, from: usize) -> Option<(usize, usize)> {
    let rest = text.get(from..)?;
    let (start, first) = rest.char_indices().find(|(_, c)| c.is_alphanumeric())?;
    let start = from + start;
    let mut end = start + first.len_utf8();
    if is_word_alone(first) {
        return Some((start, end));
    }
    let mut chars = text.get(end..)?.char_indices().peekable();
    let base = end;
    while let Some((at, c)) = chars.next() {
        let joins = match c {
            // An accent that is written as a character of its own belongs to the letter before it.
            '\u{300}'..='\u{36f}' => true,
            // don't, example.com, snake_case: one word, if a letter follows.
            '\'' | '\u{2019}' | '.' | '_' => {
                chars.peek().is_some_and(|(_, c)| c.is_alphanumeric() && !is_word_alone(*c))
            }
            c => c.is_alphanumeric() && !is_word_alone(c),
        };
        if !joins {
            break;
        }
        end = base + at + c.len_utf8();
    }
    Some((start, end))
}

/// Han and Hiragana.
fn is_word_alone(c: char) -> bool {
    matches!(c, '\u{3041}'..='\u{309f}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}')
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn words_are_lower_case_and_without_accents() {
        assert_eq!(
            split("In a village of La Mañcha,"),
            ["in", "a", "village", "of", "la", "mancha"]
        );
    }

    #[test]
    fn a_point_or_an_apostrophe_inside_a_word_stays() {
        assert_eq!(split("Don't see example.com."), ["don't", "see", "example.com"]);
        assert_eq!(split("'quoted' _x_ …"), ["quoted", "x"]);
    }

    #[test]
    fn chinese_characters_are_words_and_other_scripts_are_not_cut() {
        assert_eq!(split("風車 giants Ветряные"), ["風", "車", "giants", "ветряные"]);
    }

    #[test]
    fn nothing_comes_of_nothing_and_data_is_no_word() {
        assert!(split(" \u{0} \u{1f600} --").is_empty());
        assert_eq!(split(&format!("a {} b", "x".repeat(300))), ["a", "b"]);
    }
}
