//! The one page for everything that does not exist.

use maud::{Markup, html};

use super::layout::Page;

/// Takes no arguments, so that expired, deleted and unknown pastes get the same page, byte for byte.
pub fn not_found() -> Markup {
    let main = html! {
        section.panel aria-labelledby="not-found-title" {
            h1 #not-found-title { "Nothing here" }
            p {
                "There is no paste at this address. It may have ended, it may have been deleted or "
                "read once, or the link has a mistake in it."
            }
            p { a.button.primary href="/" { "New paste" } }
        }
    };
    Page::new("Nothing here", main).render()
}
