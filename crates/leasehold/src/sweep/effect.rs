//! Makes the `finishing` text part of the statement that finishes rows.
//!
//! Postgres allows statements that write only at the top level of `with`. So the entries of a text that
//! begins with `with` become entries of the finishing statement, and its last statement becomes one
//! more.

/// The parts of a text: its `with` entries, its last statement, and whether that statement runs only if
/// its result is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Effect<'a> {
    pub(super) entries: Option<&'a str>,
    pub(super) last: &'a str,
    /// A `select` runs only when its rows are read; a statement that writes always runs.
    pub(super) is_read: bool,
}

/// Splits a text. It understands only parentheses, quotes and comments: Postgres checks the rest when
/// the statement is prepared.
pub(super) fn take_apart(text: &str) -> Effect<'_> {
    let text = text.trim().trim_end_matches(';').trim_end();
    let (entries, last) = match strip_word(text, "with") {
        Some(rest) => {
            let end = end_of_entries(rest);
            let (entries, last) = rest.split_at_checked(end).unwrap_or((rest, ""));
            (Some(entries.trim()), last.trim())
        }
        None => (None, text),
    };
    let last = without_comments(last);
    let reads = |word| strip_word(last, word).is_some();
    let is_read = last.starts_with('(') || ["select", "values", "table"].into_iter().any(reads);
    Effect { entries, last, is_read }
}

fn strip_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(word.len())?;
    let ends = rest.chars().next().is_none_or(|c| !c.is_alphanumeric() && c != '_');
    (head.eq_ignore_ascii_case(word) && ends).then_some(rest)
}

/// Returns where the entries end: after a closing parenthesis that no comma and no `as` follows.
fn end_of_entries(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if let Some(skipped) = quoted(rest) {
            at += skipped;
            continue;
        }
        if rest.starts_with('(') {
            depth += 1;
        } else if rest.starts_with(')') {
            depth = depth.saturating_sub(1);
            let after = without_comments(rest.strip_prefix(')').unwrap_or(rest));
            // `name (columns) as (…)`, or the next entry.
            if depth == 0 && !after.starts_with(',') && strip_word(after, "as").is_none() {
                return at + 1;
            }
        }
        at += rest.chars().next().map_or(1, char::len_utf8);
    }
    text.len()
}

fn without_comments(text: &str) -> &str {
    let mut text = text.trim_start();
    while text.starts_with("--") || text.starts_with("/*") {
        let skipped = quoted(text).unwrap_or(text.len());
        text = text.get(skipped..).unwrap_or("").trim_start();
    }
    text
}

/// Returns the length of the string, quoted name or comment that begins here.
fn quoted(text: &str) -> Option<usize> {
    let until = |start: usize, end: &str| {
        let inside = text.get(start..)?;
        Some(inside.find(end).map_or(text.len(), |found| start + found + end.len()))
    };
    match text.as_bytes() {
        [b'\'', ..] => until(1, "'"),
        [b'"', ..] => until(1, "\""),
        [b'-', b'-', ..] => until(2, "\n"),
        [b'/', b'*', ..] => until(2, "*/"),
        [b'$', ..] => {
            let tag = text.get(1..)?.find('$')? + 2;
            let word = text.get(..tag)?;
            let named = word.get(1..tag - 1)?.chars().all(|c| c.is_alphanumeric() || c == '_');
            // `$1` is a parameter, `$body$` is a quote.
            let quote = named && !word.get(1..2)?.starts_with(|c: char| c.is_ascii_digit());
            if quote { until(tag, word) } else { None }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_statement_stays_whole() {
        let effect = take_apart(" update a set n = n - 1 from finished; ");
        let whole =
            Effect { entries: None, last: "update a set n = n - 1 from finished", is_read: false };
        assert_eq!(effect, whole);
        assert!(take_apart("select enqueue('a)') from finished").is_read);
        assert!(take_apart("(select 1)").is_read);
        assert!(!take_apart("selected").is_read);
    }

    #[test]
    fn entries_and_the_last_statement_are_told_apart() {
        let text =
            "WITH a (x, y) as materialized (select ')', \"odd)\" -- a ) here\n from finished),
            b as (update t set n = 1 where /* ) */ s = $body$ it's ) $body$ returning *) -- then
            insert into log select $1 from b";
        let effect = take_apart(text);
        assert!(
            effect
                .entries
                .is_some_and(|e| e.starts_with("a (x, y)") && e.ends_with("returning *)")),
            "{effect:?}"
        );
        assert_eq!(effect.last, "insert into log select $1 from b");
        assert!(!effect.is_read);
    }

    #[test]
    fn hopeless_text_is_left_to_postgres() {
        for text in [
            "",
            "with",
            "with a as (",
            "with a as ('",
            "with a as ($x$",
            "ünïcödé (",
            "with ü as (select 1) select 'ü'",
        ] {
            let _ = take_apart(text);
        }
    }
}
