//! What stands in the margin: tabs with counts, filters that are on, and the notes with their replies.

use jiff::Timestamp;
use maud::{Markup, html};

use crate::model::{Annotation, Counts, Filter, IndexState, Kind, User, WORLD};

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    Annotations,
    PageNotes,
}

impl Tab {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Annotations => "annotations",
            Self::PageNotes => "notes",
        }
    }
}

/// Everything in the margin.
pub struct Margin {
    pub tab: Tab,
    pub filter: Filter,
    pub counts: Counts,
    pub index: IndexState,
    pub more: bool,
    pub more_replies: bool,
    pub notes: Vec<Annotation>,
    pub replies: Vec<Annotation>,
    /// What some of the replies answered, and is not there any more.
    pub gone: Vec<String>,
    pub viewer: Option<i64>,
    pub now: Timestamp,
}

impl Margin {
    fn is_filtered(&self) -> bool {
        self.filter.is_narrow() || self.filter.group.is_some()
    }

    /// The address of this page with other filters.
    fn link(&self, tab: Tab, change: impl FnOnce(&mut Filter)) -> String {
        let mut filter = self.filter.clone();
        change(&mut filter);
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("tab", tab.as_str());
        for (name, value) in [
            ("q", &filter.q),
            ("user", &filter.user),
            ("tag", &filter.tag),
            ("group", &filter.group),
        ] {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        format!("/?{}", query.finish())
    }

    /// Notes in the order of the text; notes about the page by their age.
    fn ordered(&self) -> Vec<&Annotation> {
        let mut notes: Vec<_> = self.notes.iter().collect();
        if self.tab == Tab::Annotations {
            notes.sort_by_key(|note| (position(note), note.created_at));
        }
        notes
    }

    /// The conversation below a note, oldest first.
    fn replies_to(&self, id: &str) -> Vec<&Annotation> {
        let mut replies: Vec<_> =
            self.replies.iter().filter(|reply| reply.root.as_deref() == Some(id)).collect();
        replies.sort_by_key(|reply| reply.created_at);
        replies
    }
}

/// Where in the text a note is; those that do not say come last.
fn position(note: &Annotation) -> u64 {
    let selectors = note.selectors.as_array();
    let start =
        selectors.into_iter().flatten().find_map(|selector| selector.get("start")?.as_u64());
    start.unwrap_or(u64::MAX)
}

pub fn margin(user: Option<&User>, margin: &Margin) -> Markup {
    html! {
        (tabs(margin))
        (notices(margin))
        (filters(margin))
        @if margin.notes.is_empty() && margin.gone.is_empty() {
            p.hint.none {
                @if margin.is_filtered() { "Nothing fits." }
                @else if margin.tab == Tab::PageNotes { "Nobody has written about the whole page." }
                @else { "Nobody has annotated this text. Select a passage to begin." }
            }
        }
        ol.cards {
            @for note in margin.ordered() {
                li {
                    (card(margin, note, user.is_some()))
                    (replies(margin, note.id.as_str(), user.is_some()))
                }
            }
            @for id in &margin.gone {
                li.left-behind {
                    p.hint { "The note that was answered here is deleted." }
                    (replies(margin, id, user.is_some()))
                }
            }
        }
        @if margin.more { p.hint { "There is more than fits here: search, or choose a filter." } }
        @if margin.more_replies { p.hint { "Only the newest replies are shown here: there are too many." } }
    }
}

/// The conversation below a note.
fn replies(margin: &Margin, id: &str, can_reply: bool) -> Markup {
    let replies = margin.replies_to(id);
    html! {
        @if !replies.is_empty() {
            ol.replies aria-label="Replies" {
                @for reply in replies { li { (card(margin, reply, can_reply)) } }
            }
        }
    }
}

fn tabs(margin: &Margin) -> Markup {
    let tab = |tab: Tab, words: &str, count: i64| {
        html! {
            li {
                a href=(margin.link(tab, |_| ())) data-tab=(tab.as_str())
                    aria-current=[(tab == margin.tab).then_some("true")] {
                    (words) " " span.count { (count) }
                }
            }
        }
    };
    html! {
        ul.tabs aria-label="Kinds of notes" {
            (tab(Tab::Annotations, "Annotations", margin.counts.annotations))
            (tab(Tab::PageNotes, "Page Notes", margin.counts.page_notes))
        }
    }
}

fn notices(margin: &Margin) -> Markup {
    html! {
        @match margin.index {
            IndexState::Ok => {}
            IndexState::Behind => p.notice.index {
                "The search is catching up. Your own notes are all here; some of others may be missing."
            },
            IndexState::Down => p.notice.index {
                "The search index is away; this comes from the database, and nothing is lost."
            },
        }
    }
}

fn filters(margin: &Margin) -> Markup {
    let filter = &margin.filter;
    html! {
        @if filter.is_narrow() {
            ul.filters aria-label="Filters" {
                @if let Some(q) = &filter.q {
                    li { a href=(margin.link(margin.tab, |f| f.q = None)) data-drop="q" {
                        "“" (q) "”" span aria-hidden="true" { " ×" } span.visually-hidden { ", remove" } } }
                }
                @if let Some(user) = &filter.user {
                    li { a href=(margin.link(margin.tab, |f| f.user = None)) data-drop="user" {
                        "by " (user) span aria-hidden="true" { " ×" } span.visually-hidden { ", remove" } } }
                }
                @if let Some(tag) = &filter.tag {
                    li { a href=(margin.link(margin.tab, |f| f.tag = None)) data-drop="tag" {
                        "#" (tag) span aria-hidden="true" { " ×" } span.visually-hidden { ", remove" } } }
                }
            }
        }
    }
}

fn card(margin: &Margin, note: &Annotation, can_reply: bool) -> Markup {
    let own = margin.viewer == Some(note.user_id);
    html! {
        article.card.{ "is-" (note.kind.as_str()) } id={ "note-" (note.id) } tabindex="-1"
            data-note=(note.id) data-version=(note.version) data-group=(note.group)
            data-selectors=[selectors(note)] {
            p.who {
                a href=(margin.link(margin.tab, |f| f.user = Some(note.user_name.clone())))
                    data-add="user" data-value=(note.user_name) { (note.user_name) }
                @if !note.display_name.is_empty() { " " span.aside { (note.display_name) } }
                " " (age(note.created_at, margin.now))
                @if note.group != WORLD { " " span.badge { (note.group_name) } }
            }
            @if note.kind == Kind::Annotation {
                blockquote { button.passage type="button" data-show { (note.quote) } }
            }
            @if !note.text.is_empty() { div.said { (note.text) } }
            @if !note.tags.is_empty() {
                ul.tags aria-label="Tags" {
                    @for tag in &note.tags {
                        li { a href=(margin.link(margin.tab, |f| f.tag = Some(tag.clone())))
                            data-add="tag" data-value=(tag) { (tag) } }
                    }
                }
            }
            @if can_reply {
                ul.does aria-label="What you can do" {
                    li { button.link type="button" data-do="reply" { "Reply" } }
                    @if own {
                        li { button.link type="button" data-do="edit" { "Edit" } }
                        li { button.link type="button" data-do="delete" { "Delete" } }
                    }
                }
            }
        }
    }
}

/// How the script finds the passage in the text.
fn selectors(note: &Annotation) -> Option<String> {
    (note.kind == Kind::Annotation).then(|| note.selectors.to_string())
}

/// `8 mins ago`, for people and for machines.
fn age(at: Timestamp, now: Timestamp) -> Markup {
    html! {
        time datetime=(at.strftime("%Y-%m-%dT%H:%M:%SZ")) title=(at.strftime("%-d %b %Y, %H:%M UTC")) {
            (age_words(now.as_second() - at.as_second(), at))
        }
    }
}

fn age_words(seconds: i64, at: Timestamp) -> String {
    let some = |n: i64, word: &str| format!("{n} {word}{} ago", if n == 1 { "" } else { "s" });
    match seconds {
        ..60 => "just now".to_owned(),
        60..3600 => some(seconds / 60, "min"),
        3600..86_400 => some(seconds / 3600, "hour"),
        86_400..2_592_000 => some(seconds / 86_400, "day"),
        _ => at.strftime("%-d %b %Y").to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_in_words() {
        let at = Timestamp::UNIX_EPOCH;
        let words = [0, 59, 60, 480, 7200, 86_400, 2_592_000].map(|age| age_words(age, at));
        assert_eq!(
            words,
            [
                "just now",
                "just now",
                "1 min ago",
                "8 mins ago",
                "2 hours ago",
                "1 day ago",
                "1 Jan 1970"
            ]
        );
    }
}
