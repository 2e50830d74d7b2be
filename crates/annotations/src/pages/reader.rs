//! The text, with the notes beside it.

use maud::{Markup, html};

use super::layout;
use super::margin::{self, Margin};
use super::text;
use crate::model::{Group, User, WORLD};

pub fn reader(url: &str, user: Option<&User>, groups: &[Group], margin: &Margin) -> Markup {
    let main = html! {
        main #main .reader tabindex="-1" data-url=(url) data-user=[user.map(|user| &user.name)] {
            article #text aria-labelledby="title" {
                header {
                    p.book { (text::BOOK) }
                    h1 #title { span.chapter { (text::CHAPTER) ". " } (text::TITLE) }
                    p.by { (text::BY) }
                }
                // No whitespace between the paragraphs: positions count the characters of this element.
                div #body .prose { @for paragraph in text::paragraphs() { p { (paragraph) } } }
            }
            aside #notes aria-label="Notes" {
                div.notes-head {
                    (choice(groups, margin))
                    @if user.is_none() {
                        p.enter { a href="/account" { "Sign up" } " / " a href="/account" { "Log in" } }
                    }
                    button.quiet.close #close type="button" { "Close" }
                }
                (find(margin))
                @if user.is_some() { (compose(groups)) }
                div #margin aria-live="off" { (margin::margin(user, margin)) }
            }
            div #bar .bar hidden role="toolbar" aria-label="The selected passage" {
                @match user {
                    Some(_) => button.primary #annotate type="button" data-key="a"
                        data-does="Annotate the selection" aria-keyshortcuts="a" { "Annotate" },
                    None => a.button.primary href="/account" { "Log in to annotate" },
                }
            }
            button.primary.open-notes #open type="button" hidden aria-controls="notes"
                aria-expanded="false" {
                "Notes " span.count { (margin.counts.annotations + margin.counts.page_notes) }
            }
        }
    };
    layout::around(text::TITLE, user, &main)
}

/// The choice of the group whose notes are shown.
fn choice(groups: &[Group], margin: &Margin) -> Markup {
    let chosen = margin.filter.group.as_deref();
    html! {
        form.choice method="get" action="/" {
            label.visually-hidden for="group" { "Group" }
            select #group name="group" {
                option value="" selected[chosen.is_none()] { "All groups" }
                @for group in groups {
                    option value=(group.id) selected[chosen == Some(group.id.as_str())] { (group.name) }
                }
            }
            button.no-script type="submit" { "Show" }
        }
    }
}

fn find(margin: &Margin) -> Markup {
    let filter = &margin.filter;
    html! {
        form #find .find method="get" action="/" role="search" {
            input type="hidden" name="tab" value=(margin.tab.as_str());
            label.visually-hidden for="q" { "Search the notes" }
            input #q type="text" name="q" value=(filter.q.as_deref().unwrap_or_default())
                placeholder="Search the notes" maxlength="200" autocomplete="off" data-key="/"
                data-does="Search" aria-keyshortcuts="/";
            button type="submit" { "Search" }
        }
    }
}

/// The form for a new note; the script shows it.
fn compose(groups: &[Group]) -> Markup {
    html! {
        button.quiet.new-note #page-note type="button" hidden data-key="n"
            data-does="Write a page note" aria-keyshortcuts="n" { "New page note" }
        form #compose .card.compose hidden aria-label="New note" {
            blockquote #compose-quote hidden {}
            label.visually-hidden for="compose-text" { "Your note" }
            textarea #compose-text name="text" rows="4" maxlength="65536" placeholder="Your note" {}
            label.visually-hidden for="compose-tags" { "Tags, with commas between them" }
            input #compose-tags type="text" name="tags" placeholder="Tags, with commas"
                autocomplete="off" maxlength="400";
            div.row {
                label.visually-hidden for="compose-group" { "Who may read it" }
                select #compose-group name="group" {
                    @for group in groups {
                        option value=(group.id) selected[group.id == WORLD] { (group.name) }
                    }
                }
                button.primary type="submit" { "Save" }
                button type="button" data-cancel { "Cancel" }
            }
            p.alert hidden role="alert" {}
        }
    }
}
