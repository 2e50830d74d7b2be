//! The loop over the lines of a text.

use std::time::Instant;

use syntect::parsing::{ParseState, ScopeStack, SyntaxSet};

use super::escape::{self, Pushed};
use super::{Colours, Highlighted, Language, Limits, Plain, token};

/// Counts lines as editors do: a final newline does not start another line.
pub fn count(text: &str) -> usize {
    text.split_inclusive('\n').count()
}

pub fn render(text: &str, language: &'static Language, limits: &Limits) -> Highlighted {
    let mut painter = Painter::new(text, language, limits);
    let room = text.len().min(limits.shown_bytes).saturating_mul(2).min(limits.shown_html);
    let mut html = String::with_capacity(room + 64);
    let (mut lines, mut shown, mut truncated, mut reorders) = (0, 0, false, false);
    for line in text.split_inclusive('\n') {
        lines += 1;
        truncated |= lines > limits.shown_lines
            || shown >= limits.shown_bytes
            || html.len() >= limits.shown_html;
        if truncated {
            continue;
        }
        let room = limits.shown_bytes - shown;
        let line = if line.len() > room {
            truncated = true;
            line.split_at(line.floor_char_boundary(room)).0
        } else {
            line
        };
        shown += line.len();
        html.push_str("<span class=\"l\" id=\"L");
        html.push_str(&lines.to_string());
        html.push_str("\"><a href=\"#L");
        html.push_str(&lines.to_string());
        html.push_str("\" tabindex=\"-1\"></a>");
        let pushed = painter.line(&mut html, line);
        reorders |= pushed.reorders;
        truncated |= !pushed.whole;
        html.push_str("</span>");
    }
    Highlighted { html, language, lines, truncated, plain: painter.plain, reorders }
}

/// Returns the text in one element, for texts with too many lines for one element per line.
pub fn one_block(text: &str, language: &'static Language, limits: &Limits) -> Highlighted {
    let mut html = String::with_capacity(text.len().min(limits.shown_html) + 64);
    html.push_str("<span class=\"l\">");
    let Pushed { reorders, whole } = escape::push(&mut html, text, limits.shown_html);
    html.push_str("</span>");
    Highlighted {
        html,
        language,
        lines: count(text),
        truncated: !whole,
        plain: Some(Plain::TooLarge),
        reorders,
    }
}

/// A grammar, and its state at the end of the last line.
struct Rules {
    state: ParseState,
    scopes: ScopeStack,
    syntaxes: &'static SyntaxSet,
}

/// Highlights line by line until a limit is reached, then only escapes.
struct Painter<'l> {
    rules: Option<Rules>,
    limits: &'l Limits,
    started: Instant,
    plain: Option<Plain>,
}

impl<'l> Painter<'l> {
    fn new(text: &str, language: &'static Language, limits: &'l Limits) -> Self {
        let mut plain = None;
        let mut rules = language.syntax().map(|(syntax, syntaxes)| Rules {
            state: ParseState::new(syntax),
            scopes: ScopeStack::new(),
            syntaxes,
        });
        if rules.is_some() && text.len() > limits.coloured_bytes {
            rules = None;
            plain = Some(Plain::TooLarge);
        } else if rules.is_some() && limits.colours == Colours::NoneFree {
            rules = None;
            plain = Some(Plain::Busy);
        }
        Self { rules, limits, started: Instant::now(), plain }
    }

    /// Appends one line, or as much of it as [`Limits::shown_html`] allows.
    fn line(&mut self, html: &mut String, line: &str) -> Pushed {
        let most = self.limits.shown_html;
        if self.rules.is_some() && self.spent(html) {
            self.stop();
        }
        let Some(rules) = &mut self.rules else { return escape::push(html, line, most) };
        if too_long(line, self.limits.coloured_line) {
            // Skip the line for the grammar: the lines after it are still more often right than wrong.
            self.plain = Some(Plain::LongLines);
            return escape::push(html, line, most);
        }
        let before = html.len();
        // A highlighted line is short: it can exceed `shown_html` by less than 100 KiB.
        if let Some(reorders) = paint(html, line, rules) {
            return Pushed { reorders, whole: true };
        }
        // The grammar failed; discard what it produced for this line.
        html.truncate(before);
        self.stop();
        escape::push(html, line, most)
    }

    fn spent(&self, html: &str) -> bool {
        self.started.elapsed() >= self.limits.budget || html.len() >= self.limits.coloured_html
    }

    fn stop(&mut self) {
        self.rules = None;
        self.plain = Some(Plain::TooSlow);
    }
}

fn too_long(line: &str, limit: usize) -> bool {
    // Bytes first: only a line that is long in bytes needs its characters counted.
    line.len() > limit && line.trim_end_matches('\n').chars().count() > limit
}

fn paint(html: &mut String, line: &str, rules: &mut Rules) -> Option<bool> {
    let Rules { state, scopes, syntaxes } = rules;
    let changes = state.parse_line(line, syntaxes).ok()?;
    // Keep the newline outside of the spans, so that a background colour ends with the text.
    let (text, end) = line.strip_suffix('\n').map_or((line, ""), |text| (text, "\n"));
    let mut run = Run { html, class: None, reorders: false };
    let mut at = 0;
    for (index, change) in &changes {
        let index = text.len().min(*index);
        if index > at {
            run.push(text.get(at..index)?, token::class(scopes.as_slice()));
            at = index;
        }
        scopes.apply(change).ok()?;
    }
    run.push(text.get(at..)?, token::class(scopes.as_slice()));
    run.end(end);
    Some(run.reorders)
}

/// Joins adjacent pieces of the same class into one span.
struct Run<'h> {
    html: &'h mut String,
    class: token::Class,
    reorders: bool,
}

impl Run<'_> {
    fn push(&mut self, text: &str, class: token::Class) {
        if text.is_empty() {
            return;
        }
        if class != self.class {
            if self.class.is_some() {
                self.html.push_str("</span>");
            }
            if let Some(class) = class {
                self.html.push_str("<span class=\"");
                self.html.push_str(class);
                self.html.push_str("\">");
            }
            self.class = class;
        }
        self.reorders |= escape::push(self.html, text, usize::MAX).reorders;
    }
    /// Closes the last span before the line end.
    fn end(&mut self, line_end: &str) {
        if self.class.is_some() {
            self.html.push_str("</span>");
        }
        self.html.push_str(line_end);
    }
}
