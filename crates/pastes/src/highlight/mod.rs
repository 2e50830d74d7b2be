//! Colours for pastes: text in, one element per line out.
//!
//! # What is true
//! - The text content of the HTML is the text of the paste, character for character; only NUL,
//!   which HTML cannot carry, becomes U+FFFD. Everything from the paste is escaped.
//! - The only tags are ours: a closed list of classes, no styles, no scripts (see [`token`]).
//! - What is expensive is bounded: size, length of a line, number of lines, size of the HTML, and
//!   the time that colouring may take. Past a bound the rest of the text is shown plain.
//!
//! # What can go wrong
//! - A language's rules are slow on hostile text: the clock is read between lines, and lines that
//!   are too long are never given to the rules, so one line cannot hold a thread for long.
//! - The rules fail or disagree with themselves: the rest of the text is shown plain.
//! - It is called on a thread that serves other requests, and they wait: 1 KiB takes milliseconds,
//!   100 KiB hundreds of them. Use `spawn_blocking`, and keep the page.

mod escape;
mod grammar;
pub mod language;
mod lines;
mod token;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use language::{Language, detect, find, languages};

/// Bounds on what one paste may cost to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Texts with more bytes than this get no colours. Default: 256 KiB.
    pub coloured_bytes: usize,
    /// Lines with more characters than this get no colours. Grammars take time with the square of
    /// a line's length, and cannot be stopped inside a line: at 10 000 characters a hostile line
    /// holds a thread for half a minute, at 1000 for half a second. Default: 1000.
    pub coloured_line: usize,
    /// How long colouring may take before the rest is shown plain. Default: 500 ms, and ten times
    /// that in builds without optimisation, where the first use of a language takes seconds.
    pub budget: Duration,
    /// When the HTML has grown to this many bytes the rest is shown plain. Default: 4 MiB.
    pub coloured_html: usize,
    /// Bytes of text that are shown at all; the rest is for the download. Default: 1 MiB.
    pub shown_bytes: usize,
    /// Lines that are shown at all. Default: 20 000.
    pub shown_lines: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            coloured_bytes: 256 << 10,
            coloured_line: 1000,
            budget: Duration::from_millis(if cfg!(debug_assertions) { 5000 } else { 500 }),
            coloured_html: 4 << 20,
            shown_bytes: 1 << 20,
            shown_lines: 20_000,
        }
    }
}

/// A text that is ready to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Highlighted {
    /// Escaped HTML, one `<span class="l" id="L…">` per line. Belongs into `<pre><code>`.
    pub html: String,
    /// What it was shown as: `text` when nothing better is known.
    pub language: &'static Language,
    /// Lines in the whole text.
    pub lines: usize,
    /// Only the beginning is in `html`: the rest was over [`Limits::shown_bytes`] or
    /// [`Limits::shown_lines`].
    pub truncated: bool,
    /// Why some or all of it has no colours although the language has rules.
    pub plain: Option<Plain>,
    /// The text holds characters that change the order in which text is shown, which can hide what
    /// code does. They are marked in the HTML.
    pub reorders: bool,
}

/// Why a text has no colours, or none from some line on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    /// More bytes than [`Limits::coloured_bytes`].
    TooLarge,
    /// Some lines are longer than [`Limits::coloured_line`].
    LongLines,
    /// Over [`Limits::budget`] or [`Limits::coloured_html`].
    TooSlow,
}

/// What the bytes of a paste are, for showing them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Text, ready to be shown.
    Text(Highlighted),
    /// Not text: people download it.
    Binary,
}

/// Text or not? Bytes that are not UTF-8, or that begin like a binary file, are not.
///
/// Never fails, whatever the bytes are.
pub fn render(bytes: &[u8], language: Option<&str>) -> Content {
    match text(bytes) {
        Some(text) => Content::Text(highlight(text, language)),
        None => Content::Binary,
    }
}

/// The bytes as text, if that is what they are.
pub fn text(bytes: &[u8]) -> Option<&str> {
    let beginning = &bytes[..bytes.len().min(8000)];
    // Many binary formats happen to be valid UTF-8 for a while, and nearly all hold a NUL early.
    if beginning.contains(&0) { None } else { std::str::from_utf8(bytes).ok() }
}

/// Colours a text within the default [`Limits`]. `language` is an id or an alias; without one, or
/// with one that nobody knows, the first line decides.
pub fn highlight(text: &str, language: Option<&str>) -> Highlighted {
    highlight_within(text, language, &Limits::default())
}

/// Like [`highlight`], but the whole text is in the HTML however large it is: for what is shown
/// once and then gone. Texts with very many lines come as one element without line numbers.
pub fn highlight_whole(text: &str, language: Option<&str>) -> Highlighted {
    let usual = Limits::default();
    if lines::count(text) > usual.shown_lines {
        return lines::one_block(text, choose(text, language));
    }
    highlight_within(text, language, &Limits { shown_bytes: usize::MAX, ..usual })
}

/// Colours a text within limits of the caller's own.
pub fn highlight_within(text: &str, language: Option<&str>, limits: &Limits) -> Highlighted {
    lines::render(text, choose(text, language), limits)
}

fn choose(text: &str, language: Option<&str>) -> &'static Language {
    language.and_then(find).or_else(|| detect(None, text)).unwrap_or(language::plain())
}
