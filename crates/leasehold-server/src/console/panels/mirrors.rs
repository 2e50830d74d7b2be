//! Mirrors: since when each is known to be equal to its source.

use jiff::Timestamp;
use maud::{Markup, html};

use super::moment;
use crate::console::chart::exact;
use crate::console::model::Mirror;
use crate::text::seconds;

pub fn panel(mirrors: &[Mirror], now: Timestamp) -> Markup {
    html! { @if !mirrors.is_empty() { (super::panel("mirrors", "Mirrors", &html! {
        ul.mirrors { @for mirror in mirrors { li { (one(mirror, now)) } } }
    })) } }
}

fn one(mirror: &Mirror, now: Timestamp) -> Markup {
    let differ = mirror.differences.unwrap_or(0);
    html! {
        h3 {
            (mirror.name) " "
            @if let Some(phase) = mirror.phase.as_deref().filter(|phase| *phase != "none") { span.badge { (phase) } }
        }
        p {
            @match (mirror.equal_as_of, differ) {
                (_, 1..) => {
                    strong { (exact(differ as f64)) " rows differ" }
                    @if let Some(age) = mirror.oldest_difference_age_seconds { ", the oldest for " (seconds(age)) }
                    @if let Some(at) = mirror.equal_as_of { "; equal as of " (moment(at, now)) }
                }
                (Some(at), _) => { strong { "Equal" } " as of " (moment(at, now)) }
                (None, _) => { "Not checked yet" }
            }
            ", " (exact(mirror.rows_compared.unwrap_or(0) as f64)) " compared, "
            (exact(mirror.repaired.unwrap_or(0) as f64)) " repaired."
        }
    }
}
