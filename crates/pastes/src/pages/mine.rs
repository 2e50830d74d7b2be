//! The pastes of this browser's owner.

use maud::{Markup, html};

use super::layout::{Page, Place};
use super::model::{Mine, MinePaste, PasteState};
use super::parts;

/// Lists an owner's pastes, newest first, each with a form to delete it.
pub fn mine(mine: &Mine) -> Markup {
    let main = html! {
        h1 { "My pastes" }
        @if mine.pastes.is_empty() {
            div.panel.empty {
                p {
                    "Nothing here yet. Tick “List it under Mine” when you save, and this browser "
                    "lists what it saved until it ends."
                }
                p { a.button.primary href="/" { "New paste" } }
            }
        } @else {
            ul.mine { @for paste in &mine.pastes { (row(paste)) } }
            @if let Some(next) = &mine.next {
                p { a.button href=(next) rel="next" { "Older ones" } }
            }
        }
    };
    Page::new("My pastes", main).at(Place::Mine).render()
}

fn row(paste: &MinePaste) -> Markup {
    let language = paste.language.as_deref().map_or("Plain text", parts::language);
    html! {
        li {
            div.mine-what {
                h2 { a href=(paste.links.page) { (paste.code) } }
                p {
                    @match paste.state {
                        PasteState::Ready => {}
                        PasteState::Uploading => { span.badge { "being saved" } " " }
                        PasteState::Failed => { span.badge.bad { "could not be saved" } " " }
                    }
                    @if paste.burn { span.badge { "read once" } " " }
                    (language)
                    @if let Some(size) = paste.size { ", " (parts::size(size)) }
                    ", saved " (parts::moment(paste.created_at))
                    ", ends in " (parts::span(paste.life))
                }
            }
            // Two steps, with or without scripts: a deletion cannot be undone.
            details {
                summary { "Delete" span.visually-hidden { " " (paste.code) } }
                form method="post" action=(paste.links.delete) {
                    input type="hidden" name="paste" value=(paste.paste_id);
                    button.danger type="submit" {
                        "Delete for good" span.visually-hidden { ": " (paste.code) }
                    }
                }
            }
        }
    }
}
