//! Pages that only show a message.

use leasehold::duration;
use maud::{Markup, html};

use super::layout::Page;
use super::model::{Done, ErrorView};

/// Shows what failed, and what to do next.
pub fn error(view: &ErrorView) -> Markup {
    let main = html! {
        section.panel aria-labelledby="error-title" {
            h1 #error-title { (view.title) }
            p { (view.message) }
            @if let Some(after) = view.retry_after {
                p { "Try again in " (duration::approximate(after)) "." }
            }
            p.hint { "Status " (view.status) }
            p { a.button href="/" { "New paste" } }
        }
    };
    Page::new(&view.title, main).render()
}

/// Shows that a request was carried out.
pub fn done(view: &Done) -> Markup {
    let main = html! {
        section.panel aria-labelledby="done-title" {
            h1 #done-title { (view.title) }
            p { (view.message) }
            p { a.button.primary href="/" { "New paste" } " " a.button href="/mine" { "My pastes" } }
        }
    };
    Page::new(&view.title, main).render()
}
