//! Output: data goes to stdout in the requested format, everything else to stderr.
//!
//! # Invariants
//! - JSON is `{"v":1, …}` with ids as strings and times in RFC 3339, UTC. Fields may be added; none
//!   changes its meaning while `v` is 1.
//! - Colour only on a terminal, and not if `NO_COLOR` is set or the terminal is dumb.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::ValueEnum;
use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::exit::Failure;

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns, to read
    Table,
    /// One JSON document
    Json,
    /// One JSON document per line
    Ndjson,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

impl Color {
    fn on(self, terminal: bool) -> bool {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                terminal
                    && set("NO_COLOR").is_none()
                    && set("TERM").is_none_or(|term| term != "dumb")
            }
        }
    }
}

/// Returns a progress bar, which is hidden unless stderr is a terminal.
pub fn progress(label: &'static str, length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if io::stderr().is_terminal() {
        let style =
            ProgressStyle::with_template("{msg:14} {wide_bar} {human_pos}/{human_len} {per_sec}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
    } else {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar.set_message(label);
    bar
}

/// Writes output.
#[derive(Clone, Copy, Debug)]
pub struct Out {
    pub format: Format,
    color: Color,
}

/// The version of the JSON output.
const VERSION: u8 = 1;

impl Out {
    pub fn new(format: Format, color: Color) -> Self {
        Self { format, color }
    }

    /// True if the output is a table, for a reader.
    pub fn is_table(&self) -> bool {
        self.format == Format::Table
    }

    /// Writes a list: a table, `{"v":1,"<noun>":[…]}`, or one line per entry.
    pub fn list<T: Serialize>(
        &self,
        noun: &str,
        entries: &[T],
        table: impl FnOnce(&[T]) -> Columns,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table if entries.is_empty() => Ok(()),
            Format::Table => {
                self.print(&table(entries).render(self.color.on(io::stdout().is_terminal())))
            }
            Format::Json => self.json(&serde_json::json!({ "v": VERSION, noun: entries })),
            Format::Ndjson => entries.iter().try_for_each(|entry| self.line(entry)),
        }
    }

    /// Writes one entry: text, or `{"v":1,"<noun>":{…}}`.
    pub fn one<T: Serialize>(
        &self,
        noun: &str,
        thing: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table => self.print(text(thing).trim_end()),
            Format::Json => self.json(&serde_json::json!({ "v": VERSION, noun: thing })),
            Format::Ndjson => self.line(thing),
        }
    }

    /// Writes a JSON document of several parts.
    pub fn document(&self, mut document: serde_json::Value) -> Result<(), Failure> {
        if let Some(fields) = document.as_object_mut() {
            fields.insert("v".to_owned(), VERSION.into());
        }
        self.json(&document)
    }

    fn json(&self, document: &serde_json::Value) -> Result<(), Failure> {
        let pretty = io::stdout().is_terminal();
        let text = match pretty {
            true => serde_json::to_string_pretty(document),
            false => serde_json::to_string(document),
        };
        self.print(&text.map_err(Failure::failed)?)
    }

    fn line<T: Serialize>(&self, entry: &T) -> Result<(), Failure> {
        let mut entry = serde_json::to_value(entry).map_err(Failure::failed)?;
        if let Some(fields) = entry.as_object_mut() {
            fields.insert("v".to_owned(), VERSION.into());
        }
        self.print(&entry.to_string())
    }

    /// Writes lines of data. A reader that closes the pipe (`| head`) is not a failure.
    pub fn print(&self, text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::reader_gone()),
            written => Ok(written?),
        }
    }

    /// Writes a note to stderr, without characters that a terminal would act on.
    pub fn note(&self, text: impl std::fmt::Display) {
        self.painted_note(crate::text::printable(&text.to_string()));
    }

    /// Writes a note that has colours. Untrusted text in it must be [printable](crate::text::printable).
    pub fn painted_note(&self, text: impl std::fmt::Display) {
        // A closed stderr is not a failure.
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// Writes a warning to stderr.
    pub fn warn(&self, text: impl std::fmt::Display) {
        let text = crate::text::printable(&text.to_string());
        self.painted_note(format!("{} {text}", self.paint_note(Style::Warning, "warning:")));
    }

    /// Colours a text for stdout, if colours are on.
    pub fn paint(&self, style: Style, text: &str) -> String {
        style.apply(text, self.color.on(io::stdout().is_terminal()))
    }

    /// Colours a text for stderr, if colours are on.
    pub fn paint_note(&self, style: Style, text: &str) -> String {
        style.apply(text, self.color.on(io::stderr().is_terminal()))
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Style {
    Good,
    Warning,
    Bad,
    Strong,
    Faint,
}

impl Style {
    fn apply(self, text: &str, on: bool) -> String {
        let code = match self {
            Self::Good => "32",
            Self::Warning => "33",
            Self::Bad => "31",
            Self::Strong => "1",
            Self::Faint => "2",
        };
        if on { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// A table without lines, easy to read and to cut.
pub struct Columns(Table);

impl Columns {
    pub fn new(header: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(header.iter().copied());
        Self(table)
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        // A cell of several lines would break the table.
        self.0.add_row(cells.into_iter().map(|cell| crate::text::one_line(&cell, 120)));
    }

    fn render(mut self, color: bool) -> String {
        for column in self.0.column_iter_mut() {
            column.set_padding((0, 2));
        }
        let mut lines = self.0.lines().map(|line| line.trim_end().to_owned());
        let header = lines.next().unwrap_or_default();
        let header = Style::Strong.apply(&header, color);
        std::iter::once(header).chain(lines).collect::<Vec<_>>().join("\n")
    }
}

/// Formats `name  value` lines for one entry.
pub fn fields(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
        let value = crate::text::printable(value).replace('\n', &format!("\n{:width$}  ", ""));
        text.push_str(&format!("{name:width$}  {value}\n"));
    }
    text
}
