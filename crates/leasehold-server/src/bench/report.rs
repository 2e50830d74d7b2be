//! The result of a benchmark: one JSON object, or a few lines of text.

use std::io::Write;

use anyhow::Result;
use serde_json::{Map, Value, json};

#[derive(Debug)]
pub struct Report {
    fields: Map<String, Value>,
    lines: Vec<String>,
    /// Why the figures are invalid.
    wrong: Option<String>,
}

impl Report {
    /// `ours` and `limit` are in `unit`; `ratio` is ours over the limit.
    pub fn new(bench: &str, jobs: u64, unit: &str, ours: f64, limit: f64) -> Self {
        let ratio = ours / limit;
        let mut report = Self { fields: Map::new(), lines: Vec::new(), wrong: None };
        report.set("v", json!(1)).set("bench", json!(bench)).set("jobs", json!(jobs));
        report.set("unit", json!(unit)).set("ours", rounded(ours)).set("limit", rounded(limit));
        report.set("ratio", rounded(ratio));
        report.line(format!("{bench}, {jobs} jobs, durable"));
        report.line(format!("  leasehold       {} {unit}", readable(ours)));
        report.line(format!("  raw SQL limit   {} {unit}", readable(limit)));
        report.line(format!("  ratio           {ratio:.2}"));
        report
    }

    /// A report without a raw limit to compare with.
    pub fn plain(bench: &str) -> Self {
        let mut report = Self { fields: Map::new(), lines: Vec::new(), wrong: None };
        report.set("v", json!(1)).set("bench", json!(bench));
        // A build without optimisation is several times slower, so the report names the build.
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        report.set("build", json!(build));
        if cfg!(debug_assertions) {
            report.line("built without optimisation: no figures to compare".to_owned());
        }
        report
    }

    pub fn set(&mut self, name: &str, value: Value) -> &mut Self {
        self.fields.insert(name.to_owned(), value);
        self
    }

    /// Marks the report as failed: the command prints the figures and then fails.
    pub fn fail(&mut self, why: String) -> &mut Self {
        self.wrong.get_or_insert(why);
        self
    }

    pub fn wrong(&self) -> Option<&str> {
        self.wrong.as_deref()
    }

    pub fn number(&mut self, name: &str, value: f64) -> &mut Self {
        self.set(name, rounded(value))
    }

    pub fn line(&mut self, line: String) -> &mut Self {
        self.lines.push(line);
        self
    }

    pub fn print(&self, json: bool) -> Result<()> {
        let mut out = std::io::stdout().lock();
        if json {
            writeln!(out, "{}", Value::Object(self.fields.clone()))?;
        } else {
            for line in &self.lines {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }
}

fn rounded(value: f64) -> Value {
    let digits = if value.abs() >= 100.0 { 0 } else { 3 };
    let factor = 10f64.powi(digits);
    json!((value * factor).round() / factor)
}

/// 123456.7 → "123 457", 0.4321 → "0.432".
fn readable(value: f64) -> String {
    if value < 100.0 { format!("{value:.3}") } else { whole(value) }
}

/// 123456.7 → "123 457", 0.4321 → "0".
pub fn whole(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{readable, whole};

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!(readable(0.4321), "0.432");
        assert_eq!(readable(999.6), "1 000");
        assert_eq!(readable(1234567.0), "1 234 567");
        assert_eq!(whole(71.4), "71");
    }
}
