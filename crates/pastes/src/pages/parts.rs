//! Pieces that several pages share.

use std::time::Duration;

use jiff::Timestamp;
use leasehold::duration;
use maud::{Markup, html};

use super::model::{JustCreated, Links};
use crate::highlight;

/// `1 byte`, `640 bytes`, `12.3 KiB`, `1 MiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} byte{}", if bytes == 1 { "" } else { "s" });
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let number = format!("{value:.1}");
    format!("{} {}", number.strip_suffix(".0").unwrap_or(&number), UNITS[unit])
}

/// `1 line`, `12 lines`.
pub fn lines(n: usize) -> String {
    format!("{n} line{}", if n == 1 { "" } else { "s" })
}

/// Renders a moment for users and for machines.
pub fn moment(at: Timestamp) -> Markup {
    html! { time datetime=(at.strftime("%Y-%m-%dT%H:%M:%SZ")) { (at.strftime("%-d %b %Y, %H:%M UTC")) } }
}

/// Renders when a paste expires: rounded, and the exact time beside it.
pub fn expires(life: Duration, at: Timestamp) -> Markup {
    html! { "in " (duration::approximate(life)) " " span.aside { "(" (moment(at)) ")" } }
}

/// Returns the label of the language with this id, or the id itself if we no longer know the language.
pub fn language(id: &str) -> &str {
    highlight::find(id).map_or(id, |language| language.label)
}

/// Shows the author of a new paste its link and how to delete it.
pub fn created(links: &Links, created: &JustCreated) -> Markup {
    html! {
        section.panel.created aria-labelledby="created-title" {
            // Not a heading: it comes before the page's own.
            p.panel-title #created-title { "Saved. Share this link" }
            (copyable("link", "Link to share", &links.page, "Copy link"))
            details {
                summary { "Delete token" }
                p {
                    "This token deletes the paste. It is shown only now: keep it if you may want to "
                    "delete the paste later."
                }
                (copyable("token", "Delete token", &created.delete_token, "Copy token"))
                form.inline method="post" action=(links.delete) {
                    input type="hidden" name="token" value=(created.delete_token);
                    button.danger type="submit" { "Delete now" }
                }
            }
        }
    }
}

/// Renders a value in a field that can be selected, and copied by a button if there are scripts.
fn copyable(id: &str, label: &str, value: &str, action: &str) -> Markup {
    html! {
        div.copyable {
            label.visually-hidden for={ "copy-" (id) } { (label) }
            input #{ "copy-" (id) } type="text" readonly value=(value) spellcheck="false"
                autocomplete="off";
            button type="button" hidden data-copy={ "#copy-" (id) } { (action) }
        }
    }
}
