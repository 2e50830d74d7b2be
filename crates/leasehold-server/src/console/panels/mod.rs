//! The panels of the page, one file each. A new one is a file here and a line in [`super::page`].

pub mod alarms;
pub mod charts;
pub mod health;
pub mod mirrors;
pub mod queues;
pub mod sweeps;
pub mod workers;

use jiff::Timestamp;
use maud::{Markup, html};

/// A panel with its title.
fn panel(id: &str, title: &str, content: &Markup) -> Markup {
    html! {
        section.panel id=(id) aria-labelledby={ (id) "-title" } {
            h2 id={ (id) "-title" } { (title) }
            (content)
        }
    }
}

/// Renders a relative time, with the exact one as a tooltip.
pub fn moment(at: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(at) title=(at) { (crate::text::relative(at, now)) } }
}

/// Renders a count; zero is faint.
fn number(value: f64) -> Markup {
    html! { span.none[value == 0.0] { (super::chart::exact(value)) } }
}

/// Renders a count, or a dash if it was not counted.
fn counted(value: Option<f64>) -> Markup {
    match value {
        Some(value) => number(value),
        None => html! { span.none { "–" } },
    }
}
