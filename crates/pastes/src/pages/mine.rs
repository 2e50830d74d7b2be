//! The pastes of this browser's owner.

use leasehold::duration;
use maud::{Markup, html};

use super::layout::{Nav, Page};
use super::model::{Mine, MinePaste, PasteState};
use super::parts;

/// Lists an owner's pastes, newest first, each with a form to delete it.
pub fn mine(mine: &Mine) -> Markup {
    let main = html! {
        h1 { "My pastes" }
        @if mine.pastes.is_empty() {
            div.panel.empty {
                p {
                    "No pastes yet. Tick “List under My pastes” when you save a paste, and this page "
                    "lists it until it expires."
                }
                p { a.button.primary href="/" { "New paste" } }
            }
        } @else {
            ul.mine { @for paste in &mine.pastes { (row(paste)) } }
            @if let Some(next) = &mine.next {
                p { a.button href=(next) rel="next" { "Older pastes" } }
            }
        }
    };
    Page::new("My pastes", main).at(Nav::Mine).render()
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
                        PasteState::Uploading => { span.badge { "uploading" } " " }
                        PasteState::Failed => { span.badge.bad { "upload failed" } " " }
                    }
                    @if paste.burn { span.badge { "burns after reading" } " " }
                    (language)
                    @if let Some(size) = paste.size { ", " (parts::size(size)) }
                    ", saved " (parts::moment(paste.created_at))
                    ", expires in " (duration::approximate(paste.life))
                }
            }
            // Two steps, with or without scripts: a deletion cannot be undone.
            details {
                summary { "Delete" span.visually-hidden { " " (paste.code) } }
                form method="post" action=(paste.links.delete) {
                    input type="hidden" name="paste" value=(paste.paste_id);
                    button.danger type="submit" {
                        "Delete permanently" span.visually-hidden { ": " (paste.code) }
                    }
                }
            }
        }
    }
}
