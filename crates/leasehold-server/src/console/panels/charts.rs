//! Three charts over one range: queue lengths, completed jobs, re-indexed rows.

use jiff::Timestamp;
use maud::{Markup, html};

use crate::console::chart::{Chart, exact};
use crate::console::model::{Range, Series};

pub fn panel(charts: &[Series], range: Range, now: Timestamp) -> Markup {
    html! {
        ul.ranges aria-label="Time" {
            @for other in Range::ALL {
                li {
                    a href={ "/console?range=" (other.word()) }
                        aria-current=[(other == range).then_some("page")] { (other.label()) }
                }
            }
        }
        div.charts {
            @for series in charts { (one(series, range, now)) }
        }
    }
}

fn one(series: &Series, range: Range, now: Timestamp) -> Markup {
    let is_measured = series.values.iter().any(Option::is_some);
    html! {
        figure.panel data-chart=(series.name) {
            figcaption {
                h2 { (series.title) }
                @if let Some(now) = series.now { p.now { strong { (exact(now)) } " " (unit(series, now)) } }
            }
            @if is_measured {
                (Chart {
                    values: &series.values,
                    times: &series.times,
                    now,
                    minutes: range.minutes(),
                    label: &description(series, range),
                }.svg())
            } @else {
                p.empty { (series.empty) }
            }
        }
    }
}

/// Describes the chart. Over a long range each point is a mean, so the peak is that of the line: a single
/// sample may have been higher.
fn description(series: &Series, range: Range) -> String {
    let peak = series.values.iter().flatten().copied().fold(0.0, f64::max);
    let now = series.now.map(|now| format!("{} {} now, ", exact(now), unit(series, now)));
    let now = now.unwrap_or_default();
    format!("{} over {}: {now}peak {}", series.title, range.label(), exact(peak))
}

/// `1 job`, `2 jobs`, `1 per minute`.
fn unit(series: &Series, number: f64) -> &'static str {
    match (series.unit, number) {
        ("jobs", 1.0) => "job",
        (unit, _) => unit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[Option<f64>], now: Option<f64>) -> Series {
        Series {
            name: "queue_length",
            title: "Queue length",
            unit: "jobs",
            values: values.to_vec(),
            times: vec![Timestamp::UNIX_EPOCH; values.len()],
            now,
            empty: "No samples yet.",
        }
    }

    #[test]
    fn caption_shows_the_last_sample_unless_it_is_old() {
        let values = [Some(4.0), Some(7.5), Some(2.0), None];
        let known = series(&values, Some(3.0));
        assert_eq!(
            description(&known, Range::Month),
            "Queue length over 30 days: 3 jobs now, peak 7.5"
        );
        let shown = one(&known, Range::Month, Timestamp::UNIX_EPOCH).into_string();
        assert!(shown.contains("<p class=\"now\"><strong>3</strong> jobs</p>"), "{shown}");
        assert!(description(&series(&values, Some(1.0)), Range::Day).contains("1 job now"));
        let old = series(&values, None);
        assert_eq!(description(&old, Range::Day), "Queue length over 24 hours: peak 7.5");
        let shown = one(&old, Range::Day, Timestamp::UNIX_EPOCH).into_string();
        assert!(!shown.contains("class=\"now\"") && shown.contains("<svg"), "{shown}");
    }

    #[test]
    fn chart_without_samples_shows_a_text() {
        let shown =
            one(&series(&[None, None], None), Range::HalfHour, Timestamp::UNIX_EPOCH).into_string();
        assert!(shown.contains("No samples yet.") && !shown.contains("<svg"));
    }
}
