//! The one page for everything that is not there.

use maud::{Markup, html};

use super::layout::Page;

/// Takes nothing, so that a paste that ended, one that was deleted and one that never was look the
/// same, byte for byte.
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
