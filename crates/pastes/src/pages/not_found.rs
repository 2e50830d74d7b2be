//! The one page for everything that does not exist.

use maud::{Markup, html};

use super::layout::Page;

/// Takes no arguments, so that expired, deleted and unknown pastes get the same page, byte for byte.
pub fn not_found() -> Markup {
    let main = html! {
        section.panel aria-labelledby="not-found-title" {
            h1 #not-found-title { "Not found" }
            p {
                "There is no paste at this address. It has expired, was deleted or burnt after reading, "
                "or the link has a typo."
            }
            p { a.button.primary href="/" { "New paste" } }
        }
    };
    Page::new("Not found", main).render()
}
