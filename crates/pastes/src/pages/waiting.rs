//! A paste whose upload is in progress.

use maud::{Markup, html};

use super::layout::{Page, Refresh};
use super::model::Waiting;
use super::parts;

/// Shows that the upload is in progress, and polls until it is done.
pub fn waiting(waiting: &Waiting) -> Markup {
    let main = html! {
        @if let Some(created) = &waiting.created { (parts::created(&waiting.links, created)) }
        // The script polls the bytes, not the page: the page shows the delete token once, and a poll
        // must not use that up.
        section.panel.waiting data-wait=(waiting.links.raw) aria-labelledby="waiting-title" {
            h1 #waiting-title { "Uploading" }
            p {
                "This paste is saved, and its upload is in progress. "
                "This page shows the paste as soon as it can be read."
            }
            div.pulse aria-hidden="true" {}
            p.hint { a href=(waiting.links.page) { "Reload" } }
        }
    };
    let title = format!("Paste {}", waiting.code);
    // With the delete token on the page, reload only if there are no scripts: a reload would interrupt
    // a user who copies the token.
    let without_scripts = waiting.created.is_some();
    let refresh = Refresh { seconds: waiting.refresh.as_secs().max(1), without_scripts };
    Page::new(&title, main).refresh(refresh).render()
}
