//! A paste whose bytes are on their way.

use maud::{Markup, html};

use super::layout::{Page, Refresh};
use super::model::Waiting;
use super::parts;

/// Says what is happening, and asks again by itself.
pub fn waiting(waiting: &Waiting) -> Markup {
    let main = html! {
        @if let Some(created) = &waiting.created { (parts::created(&waiting.links, created)) }
        // The script asks for the bytes, not for the page: the page shows the delete token once,
        // and a question of the script must not be that once.
        section.panel.waiting data-wait=(waiting.links.raw) aria-labelledby="waiting-title" {
            h1 #waiting-title { "Almost there" }
            p {
                "This paste is saved and is being moved to where it is read from. "
                "That takes a moment; this page then turns into the paste by itself."
            }
            div.pulse aria-hidden="true" {}
            p.hint { a href=(waiting.links.page) { "Look again now" } }
        }
    };
    let title = format!("Paste {}", waiting.code);
    // Reloading under the hands of somebody who copies the delete token would be unkind.
    let without_scripts = waiting.created.is_some();
    let refresh = Refresh { seconds: waiting.refresh.as_secs().max(1), without_scripts };
    Page::new(&title, main).refresh(refresh).render()
}
