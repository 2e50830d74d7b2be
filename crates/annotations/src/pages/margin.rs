//! The margin: tabs with counts, active filters, and the notes with their replies.

use std::time::Duration;

use jiff::Timestamp;
use leasehold::duration;
use maud::{Markup, html};

use crate::model::{Annotation, Counts, Cursor, Filter, IndexState, Kind, User, WORLD};

/// The most characters of a quote in the margin, which shows four lines of it.
const LONGEST_QUOTE: usize = 500;

/// The tab that is open.
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

/// The model of the margin.
pub struct Margin {
    pub tab: Tab,
    pub filter: Filter,
    pub counts: Counts,
    pub index: IndexState,
    /// The breaker is open: searches do not ask the index for a while.
    pub away: bool,
    /// There are newer notes on another page.
    pub is_older: bool,
    /// The cursor of the older notes, as it is in a link.
    pub next: Option<String>,
    pub more_replies: bool,
    pub notes: Vec<Annotation>,
    pub replies: Vec<Annotation>,
    /// Ids of notes that some of the replies answered and the viewer cannot see, such as deleted ones.
    pub gone: Vec<String>,
    pub viewer: Option<i64>,
    pub now: Timestamp,
}

/// Where a page ends that does not show everything.
#[derive(Debug, Default)]
pub struct Kept {
    pub notes: Option<Cursor>,
    pub replies: Option<Cursor>,
}

impl Margin {
    /// Drops the oldest notes so that the rest has at most `most` bytes of HTML, and likewise the oldest
    /// replies. Keeps at least one of each.
    pub fn fit(&mut self, most: usize) -> Kept {
        let kept = |list: &[Annotation]| {
            let mut bytes = 0;
            list.iter()
                .position(|note| {
                    bytes += card(self, note, true, false).into_string().len();
                    bytes > most
                })
                .map_or(list.len(), |first| first.max(1))
        };
        let (notes, replies) = (kept(&self.notes), kept(&self.replies));
        Kept { notes: cut(&mut self.notes, notes), replies: cut(&mut self.replies, replies) }
    }

    fn is_filtered(&self) -> bool {
        self.filter.is_narrow() || self.filter.group.is_some()
    }

    /// Returns the address of this page with other filters, from its beginning.
    pub(super) fn link(&self, tab: Tab, change: impl FnOnce(&mut Filter)) -> String {
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

    /// Returns notes in the order of the text; notes about the page by their age.
    fn ordered(&self) -> Vec<&Annotation> {
        let mut notes: Vec<_> = self.notes.iter().collect();
        if self.tab == Tab::Annotations {
            notes.sort_by_key(|note| (position(note), note.created_at));
        }
        notes
    }

    /// Returns the conversation below a note, oldest first.
    fn replies_to(&self, id: &str) -> Vec<&Annotation> {
        let mut replies: Vec<_> =
            self.replies.iter().filter(|reply| reply.root.as_deref() == Some(id)).collect();
        replies.sort_by_key(|reply| reply.created_at);
        replies
    }
}

/// Shortens a list, and returns the cursor at its new end.
fn cut(list: &mut Vec<Annotation>, to: usize) -> Option<Cursor> {
    if list.len() <= to {
        return None;
    }
    list.truncate(to);
    list.last().map(Cursor::of)
}

/// Returns where in the text a note is; notes without a position come last.
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
                @if margin.is_filtered() { "No notes match." }
                @else if margin.tab == Tab::PageNotes { "No notes about the whole page yet." }
                @else { "No annotations yet. Select a passage to begin." }
            }
        }
        ol.cards {
            @for note in margin.ordered() {
                li {
                    (card(margin, note, user.is_some(), false))
                    (replies(margin, note.id.as_str(), user.is_some()))
                    @if margin.more_replies {
                        p.more { a href={ "/note/" (note.id) } { "All replies" span.visually-hidden { " to " (note.user_name) } } }
                    }
                }
            }
            @for id in &margin.gone {
                li.left-behind {
                    p.hint { "The note that these replies answer was deleted." }
                    (replies(margin, id, user.is_some()))
                }
            }
        }
        @if margin.more_replies { p.hint { "Only the newest replies are shown." } }
        (pager(margin))
    }
}

/// The links to older notes, and back.
fn pager(margin: &Margin) -> Markup {
    let first = margin.link(margin.tab, |_| ());
    html! {
        @if margin.is_older || margin.next.is_some() {
            p.pager {
                @if margin.is_older { a href=(first) data-cursor="" { "Newest notes" } " " }
                @if let Some(next) = &margin.next {
                    a href={ (first) "&cursor=" (next) } data-cursor=(next) { "Older notes" }
                }
            }
        }
    }
}

/// The conversation below a note.
fn replies(margin: &Margin, id: &str, can_reply: bool) -> Markup {
    let replies = margin.replies_to(id);
    html! {
        @if !replies.is_empty() {
            ol.replies aria-label="Replies" {
                @for reply in replies { li { (card(margin, reply, can_reply, false)) } }
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
        // No notice for an index that was late once: Postgres has found the notes. None either for an index that
        // is behind, unless this search depends on it: without words, user or tag Postgres has counted the notes.
        @if margin.away || margin.index == IndexState::Behind && margin.filter.is_narrow() {
            p.notice.index { "Search is catching up. Your notes are safe." }
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

/// One note. `whole`: with all of its quote.
pub(super) fn card(margin: &Margin, note: &Annotation, can_reply: bool, whole: bool) -> Markup {
    let own = margin.viewer == Some(note.user_id);
    let quote = match note.quote.char_indices().nth(LONGEST_QUOTE) {
        Some((end, _)) if !whole => format!("{}…", note.quote.get(..end).unwrap_or_default()),
        _ => note.quote.clone(),
    };
    html! {
        article.card.{ "is-" (note.kind.as_str()) } id={ "note-" (note.id) } tabindex="-1"
            data-note=(note.id) data-version=(note.version) data-group=(note.group)
            data-selectors=[selectors(note).filter(|_| !whole)] data-cut[note.cut] {
            p.who {
                a href=(margin.link(margin.tab, |f| f.user = Some(note.user_name.clone())))
                    data-add="user" data-value=(note.user_name) { (note.user_name) }
                @if !note.display_name.is_empty() { " " span.aside { (note.display_name) } }
                " " (age(note.created_at, margin.now))
                @if note.group != WORLD { " " span.badge { (note.group_name) } }
            }
            @if note.kind == Kind::Annotation {
                blockquote {
                    @if whole { (quote) } @else { button.passage type="button" data-show { (quote) } }
                }
            }
            @if !note.text.is_empty() { div.said { (note.text) } }
            @if note.cut {
                p.more { a href={ "/note/" (note.id) } data-more { "Show the whole note" } }
            }
            @if !note.tags.is_empty() {
                ul.tags aria-label="Tags" {
                    @for tag in &note.tags {
                        li { a href=(margin.link(margin.tab, |f| f.tag = Some(tag.clone())))
                            data-add="tag" data-value=(tag) { (tag) } }
                    }
                }
            }
            @if can_reply {
                ul.does aria-label="Actions" {
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

/// Returns `8 minutes ago`, with the exact time for programs.
fn age(at: Timestamp, now: Timestamp) -> Markup {
    html! {
        time datetime=(at.strftime("%Y-%m-%dT%H:%M:%SZ")) title=(at.strftime("%-d %b %Y, %H:%M UTC")) {
            (age_words(now.as_second() - at.as_second(), at))
        }
    }
}

fn age_words(seconds: i64, at: Timestamp) -> String {
    match u64::try_from(seconds).unwrap_or_default() {
        ..60 => "just now".to_owned(),
        age @ ..2_592_000 => format!("{} ago", duration::approximate(Duration::from_secs(age))),
        _ => at.strftime("%-d %b %Y").to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_is_shown_in_words() {
        let at = Timestamp::UNIX_EPOCH;
        let words =
            [0, 59, 60, 480, 7200, 86_400, 259_200, 2_592_000].map(|age| age_words(age, at));
        assert_eq!(
            words,
            [
                "just now",
                "just now",
                "1 minute ago",
                "8 minutes ago",
                "2 hours ago",
                "24 hours ago",
                "3 days ago",
                "1 Jan 1970"
            ]
        );
    }
}
