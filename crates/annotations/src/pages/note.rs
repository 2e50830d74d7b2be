//! The page of one note, with all of its text and the replies to it.

use maud::{Markup, html};

use super::layout;
use super::margin::{Margin, card};
use crate::model::{Kind, User};

/// `margin.notes` has the note, `margin.replies` the replies of this page.
pub fn note(user: Option<&User>, margin: &Margin) -> Markup {
    let mut replies: Vec<_> = margin.replies.iter().collect();
    replies.sort_by_key(|reply| reply.created_at);
    let main = html! {
        @for note in &margin.notes {
            h1 { @if note.kind == Kind::Reply { "A reply" } @else { "A note" } " by " (note.user_name) }
            p.hint {
                "On " (note.url)
                @if let Some(root) = &note.root { " · " a href={ "/note/" (root) } { "The whole conversation" } }
            }
            (card(margin, note, false, true))
            @if !replies.is_empty() {
                h2 { "Replies" }
                @if let Some(next) = &margin.next {
                    p.pager { a href={ "/note/" (note.id) "?cursor=" (next) } { "Older replies" } }
                }
                ol.replies {
                    @for reply in &replies { li { (card(margin, reply, false, false)) } }
                }
            }
            @if margin.is_older { p.pager { a href={ "/note/" (note.id) } { "Newest replies" } } }
        }
        p.pager { a href="/" { "Back to the text" } }
    };
    layout::page("Note", user, &main)
}
