//! Highlighting of pastes: text in, one element per line out.
//!
//! # Invariants
//! - The text content of the HTML is the text of the paste, character for character; only NUL, which
//!   HTML cannot express, becomes U+FFFD. Everything from the paste is escaped.
//! - The only tags are ours: a closed list of classes, no styles, no scripts (see [`token`]).
//! - The cost is bounded: size, length of a line, number of lines, size of the HTML, and the time that
//!   highlighting may take. Past a limit the rest of the text is plain, or not shown.
//!
//! # What can go wrong
//! - A grammar is slow on hostile text: the clock is checked between lines, and lines that are too long
//!   are never passed to the grammar, so one line cannot hold a thread for long.
//! - The grammar fails or contradicts itself: the rest of the text is plain.
//! - A caller runs it on a thread that serves other requests, and they wait: 1 KiB takes milliseconds,
//!   100 KiB hundreds of them. Use `spawn_blocking`, and cache the page.

mod escape;
mod grammar;
pub mod language;
mod lines;
mod token;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use language::{Language, detect, find, languages};

/// Limits on what showing one paste may cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Texts with more bytes than this are not highlighted. Default: 256 KiB.
    pub coloured_bytes: usize,
    /// Lines with more characters than this are not highlighted. Grammars take time proportional to the
    /// square of a line's length, and cannot be stopped inside a line: at 10 000 characters a hostile
    /// line holds a thread for half a minute, at 1000 for half a second. Default: 1000.
    pub coloured_line: usize,
    /// How long highlighting may take before the rest is plain. Default: 500 ms, and ten times that in
    /// builds without optimisation, where the first use of a language takes seconds.
    pub budget: Duration,
    /// Once the HTML has this many bytes, the rest is plain. Default: 2 MiB.
    pub coloured_html: usize,
    /// Once the HTML has this many bytes, the rest is not shown: a character that needs three bytes in
    /// the text can need 50 in the HTML. Default: 4 MiB.
    pub shown_html: usize,
    /// The most bytes of text that are shown; the rest needs the download. Default: 1 MiB.
    pub shown_bytes: usize,
    /// The most lines that are shown. Default: 20 000.
    pub shown_lines: usize,
    /// Default: wanted.
    pub colours: Colours,
}

/// Whether to highlight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    Wanted,
    /// All permits for highlighting are taken: only escape the text.
    NoneFree,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            coloured_bytes: 256 << 10,
            coloured_line: 1000,
            budget: Duration::from_millis(if cfg!(debug_assertions) { 5000 } else { 500 }),
            coloured_html: 2 << 20,
            shown_html: 4 << 20,
            shown_bytes: 1 << 20,
            shown_lines: 20_000,
            colours: Colours::Wanted,
        }
    }
}

/// A text, ready to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Highlighted {
    /// Escaped HTML, one `<span class="l" id="L…">` per line. Belongs in `<pre><code>`.
    pub html: String,
    /// The language it was shown as: `text` if none is known.
    pub language: &'static Language,
    /// Lines in the whole text.
    pub lines: usize,
    /// `html` has only the beginning: the rest was over [`Limits::shown_bytes`],
    /// [`Limits::shown_lines`] or [`Limits::shown_html`].
    pub truncated: bool,
    /// Why some or all of it is plain although the language has rules.
    pub plain: Option<Plain>,
    /// The text contains characters that change the order in which text is shown, which can hide what
    /// code does. The HTML marks them.
    pub reorders: bool,
}

/// Why a text is plain, or plain from some line on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    /// More bytes than [`Limits::coloured_bytes`].
    TooLarge,
    /// Some lines are longer than [`Limits::coloured_line`].
    LongLines,
    /// Over [`Limits::budget`] or [`Limits::coloured_html`].
    TooSlow,
    /// No permit was free: [`Colours::NoneFree`].
    Busy,
}

/// The bytes of a paste, prepared for showing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Text, ready to show.
    Text(Highlighted),
    /// Not text: users download it.
    Binary,
}

/// Prepares bytes for showing. Bytes that are not UTF-8, or that begin like a binary file, are
/// `Binary`.
///
/// Never fails, on any bytes.
pub fn render(bytes: &[u8], language: Option<&str>, colours: Colours) -> Content {
    let limits = Limits { colours, ..Limits::default() };
    match text(bytes) {
        Some(text) => Content::Text(highlight_within(text, language, &limits)),
        None => Content::Binary,
    }
}

/// Returns the bytes as text, or `None` if they are not text.
pub fn text(bytes: &[u8]) -> Option<&str> {
    let beginning = &bytes[..bytes.len().min(8000)];
    // Many binary formats happen to be valid UTF-8 for a while, and nearly all contain a NUL early.
    if beginning.contains(&0) { None } else { std::str::from_utf8(bytes).ok() }
}

/// Highlights a text within the default [`Limits`]. `language` is an id or an alias; without one, or
/// with an unknown one, the first line decides.
pub fn highlight(text: &str, language: Option<&str>) -> Highlighted {
    highlight_within(text, language, &Limits::default())
}

/// Like [`highlight`], but puts the whole text into the HTML, for pastes that are shown once and then
/// deleted. Texts with very many lines become one element without line numbers. Returns `None` if the
/// HTML would be larger than [`Limits::shown_html`].
pub fn highlight_whole(
    text: &str,
    language: Option<&str>,
    colours: Colours,
) -> Option<Highlighted> {
    let usual = Limits { colours, ..Limits::default() };
    let shown = if lines::count(text) > usual.shown_lines {
        lines::one_block(text, choose(text, language), &usual)
    } else {
        highlight_within(text, language, &Limits { shown_bytes: usize::MAX, ..usual })
    };
    (!shown.truncated).then_some(shown)
}

/// Highlights a text within the caller's limits.
pub fn highlight_within(text: &str, language: Option<&str>, limits: &Limits) -> Highlighted {
    lines::render(text, choose(text, language), limits)
}

fn choose(text: &str, language: Option<&str>) -> &'static Language {
    language.and_then(find).or_else(|| detect(None, text)).unwrap_or(language::plain())
}
