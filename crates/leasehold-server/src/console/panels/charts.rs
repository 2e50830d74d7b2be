//! Three charts over one time: how long the queues are, what gets done, what is written again.

use maud::{Markup, html};

use crate::console::chart::{Chart, exact};
use crate::console::model::{Range, Series};

pub fn panel(charts: &[Series], range: Range) -> Markup {
    html! {
        ul.ranges aria-label="Time" {
            @for other in Range::ALL {
                li {
                    a href={ "/console?range=" (other.word()) }
                        aria-current=[(other == range).then_some("page")] { (other.says()) }
                }
            }
        }
        div.charts {
            @for series in charts { (one(series, range)) }
        }
    }
}

fn one(series: &Series, range: Range) -> Markup {
    let last = series.values.iter().rev().flatten().next();
    let highest = series.values.iter().flatten().copied().fold(0.0, f64::max);
    let label = match last {
        Some(last) => format!(
            "{} over {}: {} {} now, {} at most",
            series.title,
            range.says(),
            exact(*last),
            series.unit,
            exact(highest)
        ),
        None => format!("{} over {}: nothing measured", series.title, range.says()),
    };
    html! {
        figure.panel data-chart=(series.name) {
            figcaption {
                h2 { (series.title) }
                @if let Some(last) = last { p.now { strong { (exact(*last)) } " " (series.unit) } }
            }
            @if last.is_some() {
                (Chart { values: &series.values, minutes: range.minutes(), label: &label }.svg())
            } @else {
                p.empty { (series.empty) }
            }
        }
    }
}
