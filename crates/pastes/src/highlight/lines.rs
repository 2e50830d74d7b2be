//! The loop over the lines of a text.

use std::time::Instant;

use syntect::parsing::{ParseState, ScopeStack};

use super::{Highlighted, Language, Limits, Plain, escape, language, token};

/// Lines as editors count them: a last line end begins no further line.
pub fn count(text: &str) -> usize {
    text.split_inclusive('\n').count()
}

pub fn render(text: &str, language: &'static Language, limits: &Limits) -> Highlighted {
    let mut painter = Painter::new(text, language, limits);
    let mut html = String::with_capacity(text.len().min(limits.shown_bytes) * 2 + 64);
    let (mut lines, mut shown, mut truncated, mut reorders) = (0, 0, false, false);
    for line in text.split_inclusive('\n') {
        lines += 1;
        truncated |= lines > limits.shown_lines || shown >= limits.shown_bytes;
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
        reorders |= painter.line(&mut html, line);
        html.push_str("</span>");
    }
    Highlighted { html, language, lines, truncated, plain: painter.plain, reorders }
}

/// Everything in one element, for texts with so many lines that an element each is too much.
pub fn one_block(text: &str, language: &'static Language) -> Highlighted {
    let mut html = String::with_capacity(text.len() + 64);
    html.push_str("<span class=\"l\">");
    let reorders = escape::push(&mut html, text);
    html.push_str("</span>");
    Highlighted {
        html,
        language,
        lines: count(text),
        truncated: false,
        plain: Some(Plain::TooLarge),
        reorders,
    }
}

/// Colours line after line until a bound is met, then only escapes.
struct Painter<'l> {
    rules: Option<(ParseState, ScopeStack)>,
    limits: &'l Limits,
    started: Instant,
    plain: Option<Plain>,
}

impl<'l> Painter<'l> {
    fn new(text: &str, language: &'static Language, limits: &'l Limits) -> Self {
        let mut plain = None;
        let mut rules =
            language.syntax().map(|syntax| (ParseState::new(syntax), ScopeStack::new()));
        if rules.is_some() && text.len() > limits.coloured_bytes {
            rules = None;
            plain = Some(Plain::TooLarge);
        }
        Self { rules, limits, started: Instant::now(), plain }
    }

    /// Appends one line; says whether it held characters that reorder it.
    fn line(&mut self, html: &mut String, line: &str) -> bool {
        if self.rules.is_some() {
            self.plain = self.over(html, line);
            if self.plain.is_some() {
                self.rules = None;
            }
        }
        let Some((state, scopes)) = &mut self.rules else { return escape::push(html, line) };
        let before = html.len();
        match paint(html, line, state, scopes) {
            Some(reorders) => reorders,
            None => {
                // The rules contradict themselves; what they said of this line is worth nothing.
                html.truncate(before);
                self.rules = None;
                self.plain = Some(Plain::TooSlow);
                escape::push(html, line)
            }
        }
    }

    fn over(&self, html: &str, line: &str) -> Option<Plain> {
        // Long enough in bytes before characters are counted: most lines are not.
        let limit = self.limits.coloured_line;
        if line.len() > limit && line.chars().count() > limit {
            return Some(Plain::LongLine);
        }
        let slow = self.started.elapsed() >= self.limits.budget;
        (slow || html.len() >= self.limits.coloured_html).then_some(Plain::TooSlow)
    }
}

fn paint(
    html: &mut String,
    line: &str,
    state: &mut ParseState,
    scopes: &mut ScopeStack,
) -> Option<bool> {
    let changes = state.parse_line(line, language::syntaxes()).ok()?;
    let mut run = Run { html, class: None, reorders: false };
    let mut at = 0;
    for (index, change) in &changes {
        if *index > at {
            run.push(line.get(at..*index)?, token::class(scopes.as_slice()));
            at = *index;
        }
        scopes.apply(change).ok()?;
    }
    // The line end stays outside of the spans, so that a colour with a background ends with the text.
    let (rest, end) =
        line.get(at..)?.strip_suffix('\n').map_or((line.get(at..)?, ""), |r| (r, "\n"));
    run.push(rest, token::class(scopes.as_slice()));
    run.push(end, None);
    run.push("", None);
    let reorders = run.reorders;
    Some(reorders)
}

/// Joins neighbours of one class into one span.
struct Run<'h> {
    html: &'h mut String,
    class: token::Class,
    reorders: bool,
}

impl Run<'_> {
    fn push(&mut self, text: &str, class: token::Class) {
        if text.is_empty() && class.is_some() {
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
        self.reorders |= escape::push(self.html, text);
    }
}
