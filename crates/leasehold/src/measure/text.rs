//! The text that a scraper reads: one block per metric, with its help and its type.
//!
//! Written by hand: the format is a page long, and its pitfalls (two blocks of one name, a label that
//! breaks its line) are tested.

use super::names::{Metric, MetricType};
use super::process::{BUCKETS, Histogram};

/// The content type of the response.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A text under construction. Metrics without a line are left out.
#[derive(Default)]
pub struct Text {
    /// A label of every line: the name of the database in its fleet.
    database: Option<String>,
    /// Each metric with its lines.
    blocks: Vec<(Metric, String)>,
}

/// A label and its value.
pub type Label<'a> = (&'a str, &'a str);

impl Text {
    /// Begins a text about one database of several.
    pub fn of_database(name: &str) -> Self {
        Self { database: Some(name.to_owned()), blocks: Vec::new() }
    }

    /// Writes one block: everything about one metric.
    pub fn block(&mut self, metric: Metric, lines: impl FnOnce(&mut Block<'_>)) {
        let mut block = Block { metric, lines: String::new(), database: self.database.as_deref() };
        lines(&mut block);
        if !block.lines.is_empty() {
            let lines = block.lines;
            self.blocks.push((metric, lines));
        }
    }

    /// Adds the lines of another text: a metric has one block, whatever it is about.
    pub fn append(&mut self, other: Self) {
        for (metric, lines) in other.blocks {
            match self.blocks.iter_mut().find(|(known, _)| known.name == metric.name) {
                Some((_, known)) => known.push_str(&lines),
                None => self.blocks.push((metric, lines)),
            }
        }
    }

    pub fn finish(self) -> String {
        let mut text = String::new();
        for (metric, lines) in self.blocks {
            let kind = match metric.kind {
                MetricType::Counter => "counter",
                MetricType::Gauge => "gauge",
                MetricType::Histogram => "histogram",
            };
            text.push_str(&format!(
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}",
                name = metric.name,
                help = metric.help,
            ));
        }
        text
    }
}

/// The lines of one metric.
pub struct Block<'a> {
    metric: Metric,
    lines: String,
    database: Option<&'a str>,
}

impl Block<'_> {
    pub fn line(&mut self, labels: &[Label<'_>], value: f64) {
        self.write("", labels, None, value);
    }

    pub fn histogram(&mut self, labels: &[Label<'_>], histogram: &Histogram) {
        let mut below = 0;
        for (bound, count) in BUCKETS.iter().zip(histogram.counts) {
            below += count;
            self.write("_bucket", labels, Some(&bound.to_string()), below as f64);
        }
        self.write("_bucket", labels, Some("+Inf"), histogram.count as f64);
        self.write("_sum", labels, None, histogram.sum);
        self.write("_count", labels, None, histogram.count as f64);
    }

    fn write(&mut self, suffix: &str, labels: &[Label<'_>], bound: Option<&str>, value: f64) {
        self.lines.push_str(self.metric.name);
        self.lines.push_str(suffix);
        let database = self.database.map(|name| ("database", name));
        let bound = bound.map(|bound| ("le", bound));
        let labels = database.into_iter().chain(labels.iter().copied()).chain(bound);
        let labels: Vec<String> =
            labels.map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
        if !labels.is_empty() {
            self.lines.push_str(&format!("{{{}}}", labels.join(",")));
        }
        self.lines.push_str(&format!(" {value}\n"));
    }
}

/// Escapes a value, so that it stays on its line and inside its quotes.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::names;
    use super::*;

    #[test]
    fn metric_block_has_help_type_and_samples() {
        let mut text = Text::default();
        text.block(names::QUEUE_JOBS, |block| {
            block.line(&[("queue", "a\"b\\c\nd"), ("state", "ready")], 3.0);
        });
        text.block(names::QUEUE_PAUSED, |_| {});
        let expected = "# HELP leasehold_queue_jobs Jobs by state, dead ones without the expired, as of the last sample.\n\
            # TYPE leasehold_queue_jobs gauge\n\
            leasehold_queue_jobs{queue=\"a\\\"b\\\\c\\nd\",state=\"ready\"} 3\n";
        assert_eq!(text.finish(), expected);
    }

    #[test]
    fn metrics_of_several_databases_have_one_block_each() {
        let of = |name, jobs| {
            let mut text = Text::of_database(name);
            text.block(names::QUEUE_JOBS, |block| block.line(&[("queue", "q")], jobs));
            text.block(names::DATABASE_UP, |block| block.line(&[], 1.0));
            text
        };
        let mut text = of("eu", 3.0);
        text.append(of("us", 4.0));
        let text = text.finish();
        for lines in [
            "leasehold_queue_jobs{database=\"eu\",queue=\"q\"} 3\nleasehold_queue_jobs{database=\"us\",queue=\"q\"} 4\n",
            "leasehold_database_up{database=\"eu\"} 1\nleasehold_database_up{database=\"us\"} 1\n",
        ] {
            assert!(text.contains(lines), "{lines} is not in:\n{text}");
        }
        assert_eq!(text.matches("# TYPE").count(), 2);
    }

    #[test]
    fn histogram_buckets_are_cumulative() {
        let mut histogram = Histogram::default();
        [0.004, 0.2, 4000.0].into_iter().for_each(|value| histogram.add(value));
        let mut text = Text::default();
        text.block(names::JOB_WAIT, |block| block.histogram(&[("queue", "q")], &histogram));
        let text = text.finish();
        for line in [
            "leasehold_job_wait_seconds_bucket{queue=\"q\",le=\"0.005\"} 1\n",
            "leasehold_job_wait_seconds_bucket{queue=\"q\",le=\"0.25\"} 2\n",
            "leasehold_job_wait_seconds_bucket{queue=\"q\",le=\"1800\"} 2\n",
            "leasehold_job_wait_seconds_bucket{queue=\"q\",le=\"+Inf\"} 3\n",
            "leasehold_job_wait_seconds_count{queue=\"q\"} 3\n",
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
    }
}
