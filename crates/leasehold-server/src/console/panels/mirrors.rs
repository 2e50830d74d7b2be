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
    html! {
        h3 {
            (mirror.name) " "
            @if mirror.phase != "none" { span.badge { (mirror.phase) } }
        }
        p {
            @match (mirror.equal_as_of, mirror.differences) {
                (_, 1..) => {
                    strong { (exact(mirror.differences as f64)) " rows differ" }
                    @if let Some(age) = mirror.oldest_difference_age_seconds { ", the oldest for " (seconds(age)) }
                    @if let Some(at) = mirror.equal_as_of { "; equal as of " (moment(at, now)) }
                }
                (Some(at), _) => { strong { "Equal" } " as of " (moment(at, now)) }
                (None, _) => { "Not checked yet" }
            }
            ", " (exact(mirror.rows_compared as f64)) " compared, "
            (exact(mirror.repaired as f64)) " repaired."
        }
    }
}
