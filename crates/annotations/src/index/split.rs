//! Splits a text into words. The same for indexed texts and for queries, in the index and in Postgres.
//!
//! Chinese and Japanese do not put spaces between words, so there every character is one: a search for
//! part of a sentence would find nothing otherwise.

/// Returns the words of a text, as written.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (from, to) = next_word(text, at)?;
        at = to;
        text.get(from..to)
    })
}

/// Returns where the next word begins and ends.
pub fn next_word(text: &str, from: usize) -> Option<(usize, usize)> {
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
            // A combining accent belongs to the letter before it.
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
    use super::words;

    #[test]
    fn words_split_at_marks_and_spaces() {
        let found: Vec<&str> = words("Don't, see (example.com)! 風車 _x_").collect();
        assert_eq!(found, ["Don't", "see", "example.com", "風", "車", "x"]);
        assert_eq!(words(" … -- ").count(), 0);
    }
}
