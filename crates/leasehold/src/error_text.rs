//! Error texts for the log and for the table.
//!
//! # Invariants
//! - No text is refused because of its contents: NUL and control characters are replaced, and a text is
//!   never longer than 4 KiB.
//! - Passwords in URLs and in connection strings are replaced by `***`.

/// The longest text that is stored.
const LONGEST: usize = 4096;
/// The longest text of a log line.
const LONGEST_LINE: usize = 1000;
const HIDDEN: &str = "***";
/// The text that is stored and logged in place of an error text that may hold secrets; see
/// [`crate::worker::WorkerBuilder::hide_error_texts`].
pub const HIDDEN_TEXT: &str = "this worker hides error texts";

/// Makes an error text storable: no NUL, no control characters but line breaks and tabs, no
/// passwords, at most 4 KiB. Postgres refuses NUL in text, and an error that cannot be stored would
/// hide the failure.
pub fn storable(text: &str) -> String {
    let clean: String = text
        .chars()
        .map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c })
        .collect();
    cut(redact(&clean), LONGEST)
}

/// Like [`storable`], in one line of at most 1000 bytes, for the log.
pub fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    cut(storable(&words.join(" ")), LONGEST_LINE)
}

/// Like `storable`, in ASCII, which every server encoding holds.
pub(crate) fn plain(text: &str) -> String {
    let plain: String =
        storable(text).chars().map(|c| if c.is_ascii() { c } else { '?' }).collect();
    plain.chars().take(LONGEST_LINE).collect()
}

fn cut(mut text: String, longest: usize) -> String {
    if text.len() > longest {
        let mut end = longest - '…'.len_utf8();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Replaces passwords: `scheme://user:password@host`, `password=…` and `"password": "…"`.
fn redact(text: &str) -> String {
    // Cheap for the many texts that hold neither.
    let lower = text.to_ascii_lowercase();
    if !text.contains("://") && !WORDS.iter().any(|word| lower.contains(word)) {
        return text.to_owned();
    }
    let mut secrets = url_passwords(text);
    secrets.extend(named_passwords(text, &lower));
    secrets.sort_unstable_by_key(|secret| secret.0);
    let (mut kept, mut at) = (String::with_capacity(text.len()), 0);
    for (start, end) in secrets.into_iter().filter(|(start, end)| start < end) {
        if start >= at {
            kept.push_str(part(text, at, start));
            kept.push_str(HIDDEN);
        }
        at = at.max(end);
    }
    kept.push_str(part(text, at, text.len()));
    kept
}

/// Returns a part of a text by bytes; an empty one if they are not at character boundaries.
fn part(text: &str, from: usize, to: usize) -> &str {
    text.get(from..to).unwrap_or_default()
}

/// Returns the byte ranges of passwords in URLs.
fn url_passwords(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("://") {
        let start = at + "://".len();
        let rest = part(text, start, text.len());
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`');
        let address = part(rest, 0, rest.find(ends).unwrap_or(rest.len()));
        let end = address.find(['/', '?', '#']).unwrap_or(address.len());
        let host_part = part(address, 0, end);
        let Some(colon) = host_part.find(':') else { continue };
        let is_port = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let end = match host_part.rfind('@') {
            Some(end) => Some(end),
            // A password with a slash in it, not a path with an `@` behind a port.
            None if !is_port(part(host_part, colon + 1, end)) => address.rfind('@'),
            None => None,
        };
        if let Some(end) = end.filter(|end| *end > colon) {
            found.push((start + colon + 1, start + end));
        }
    }
    found
}

/// Also matches `pgpassword` and `sslpassword`, which end with the first.
const WORDS: [&str; 3] = ["password", "passwd", "pwd"];

/// Returns the byte ranges of the values of settings with these names.
fn named_passwords(text: &str, lower: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for word in WORDS {
        for (at, _) in lower.match_indices(word) {
            let after = at + word.len();
            let rest = part(text, after, text.len());
            let rest = rest.trim_start_matches(['"', '\'']).trim_start();
            let Some(sign) = rest.chars().next().filter(|c| matches!(c, '=' | ':')) else {
                continue;
            };
            let value = part(rest, 1, rest.len()).trim_start();
            let start = text.len() - value.len();
            let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
            let end = match quote {
                Some(quote) => 1 + quoted_length(part(value, 1, value.len()), quote),
                // "wrong password: try again" is prose.
                None if sign == ':' => continue,
                None => value
                    .find(|c: char| c.is_whitespace() || matches!(c, '&' | ';' | ',' | '"' | '\''))
                    .unwrap_or(value.len()),
            };
            let skipped = usize::from(quote.is_some());
            found.push((start + skipped, start + end));
        }
    }
    found
}

/// Returns the number of bytes before the closing quote. A backslash escapes the next character.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h1_error_texts_lose_nul_and_keep_their_lines() {
        assert_eq!(storable("a\0b\nc\td\u{1b}[31m"), "a\u{fffd}b\nc\td\u{fffd}[31m");
    }

    #[test]
    fn long_error_texts_are_cut_at_a_character() {
        let kept = storable(&"ü".repeat(4000));
        assert!(kept.len() <= LONGEST && kept.ends_with('…'));
        assert!(one_line(&"ü\n".repeat(4000)).len() <= LONGEST_LINE);
    }

    #[test]
    fn a25_fallback_texts_hold_ascii_only() {
        assert_eq!(plain("fiel 日本 um…\0"), "fiel ?? um??");
    }

    #[test]
    fn h25_passwords_of_urls_and_connection_strings_are_replaced() {
        for (text, kept) in [
            ("postgres://ann:hunter2@db:5432/x is down", "postgres://ann:***@db:5432/x is down"),
            ("GET https://u:p@h/a?b=c, then", "GET https://u:***@h/a?b=c, then"),
            ("redis://:hunter2@cache", "redis://:***@cache"),
            ("postgres://a:hun/ter@2@db/x", "postgres://a:***@db/x"),
            ("host=db password=hunter2 user=ann", "host=db password=*** user=ann"),
            ("password = 'hun\\'ter 2' host=db", "password = '***' host=db"),
            ("PGPASSWORD=hunter2 psql", "PGPASSWORD=*** psql"),
            ("https://h/p?user=a&password=x&b=1", "https://h/p?user=a&password=***&b=1"),
            (r#"{"password": "hunter2", "n": 1}"#, r#"{"password": "***", "n": 1}"#),
            ("two: http://a:b@c http://d:e@f", "two: http://a:***@c http://d:***@f"),
            ("sslpassword=日本 x", "sslpassword=*** x"),
        ] {
            assert_eq!(storable(text), kept);
        }
    }

    #[test]
    fn h25_texts_without_passwords_stay_as_they_are() {
        for text in [
            "http://host:8080/mail@example.com",
            "https://example.com/a:b@c is odd",
            "wrong password: try again",
            "password authentication failed for user \"ann\"",
            "ann@example.com: no such host",
            "password=",
            "://",
        ] {
            assert_eq!(storable(text), text);
        }
    }
}
