//! The page with a text and the notes beside it, and the page of one note.
//!
//! # Invariants
//! - A page has a bound in notes and in bytes of HTML. What does not fit is a link away: older notes,
//!   the rest of a long text, all replies to a note.

use std::collections::HashSet;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use leasehold_http::body::hold_memory;
use leasehold_http::headers::CROSS_ORIGIN_RESOURCE_POLICY;

use super::api::{INDEX, filter_in};
use super::errors::Failure;
use super::session::page;
use super::web::{HandlerResult, Shared, Viewer, id_in, query};
use crate::model::{Annotation, Counts, Cursor, Filter, Found, Kind, Page};
use crate::pages::{self, Margin, Tab};
use crate::search::LARGEST_PAGE;

/// The most replies of a page; the rest is on the pages of the notes.
const MOST_REPLIES: usize = 100;
/// The most replies on the page of a note.
const CONVERSATION: usize = 50;
/// The most bytes of a page's notes, and of its replies.
const BYTES: usize = 1024 * 1024;
/// The most characters of a text on a page.
const PREVIEW: usize = 2000;

/// `GET /`
pub async fn reader(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_read(&request)?;
    let cursor = web.cursor(&request)?;
    let held = web.room(&request).await?;
    let viewer = web.viewer(request.headers()).await?;
    let mut filter = filter_in(&request)?;
    let here = format!("{}/", web.base_url);
    filter.url = Some(here.clone());
    let margin = margin(&web, &viewer, filter, cursor, tab_in(&request)).await?;
    let groups = web.annotations.groups(viewer.id()).await?;
    let index = margin.index;
    let markup = pages::reader(&here, viewer.user.as_ref(), &groups, &margin);
    let mut response = page(markup);
    response.headers_mut().insert(INDEX, HeaderValue::from_static(index.as_str()));
    Ok(hold_memory(response, held))
}

/// `GET /margin`: only the notes, for a page that is already open.
pub async fn fragment(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_read(&request)?;
    let cursor = web.cursor(&request)?;
    let held = web.room(&request).await?;
    let viewer = web.viewer(request.headers()).await?;
    let filter = filter_in(&request)?;
    if filter.url.is_none() {
        return Err(Failure::malformed("url is missing; it names the page."));
    }
    let margin = margin(&web, &viewer, filter, cursor, tab_in(&request)).await?;
    let mut response = page(pages::margin(viewer.user.as_ref(), &margin));
    response.headers_mut().insert(INDEX, HeaderValue::from_static(margin.index.as_str()));
    Ok(hold_memory(response, held))
}

/// `GET /note/{key}`: all of one note, and the replies to it.
pub async fn note(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_read(&request)?;
    let id = id_in(&request, 1)?;
    let cursor = web.cursor(&request)?;
    let held = web.room(&request).await?;
    let viewer = web.viewer(request.headers()).await?;
    let note = web.annotations.read(viewer.id(), &id).await?;
    let filter = Filter { references: Some(id), ..Filter::default() };
    let page_of =
        Page { cursor: cursor.as_ref(), limit: CONVERSATION, bytes: BYTES, preview: Some(PREVIEW) };
    let replies = web.annotations.search_page(viewer.id(), &filter, page_of).await?;
    let mut margin = Margin {
        tab: Tab::Annotations,
        filter: Filter::default(),
        counts: Counts::default(),
        index: replies.index,
        away: replies.away,
        is_older: cursor.is_some(),
        next: None,
        more_replies: false,
        notes: vec![note],
        replies: replies.rows,
        gone: Vec::new(),
        viewer: viewer.id(),
        now: jiff::Timestamp::now(),
    };
    let kept = margin.fit(BYTES);
    let cut = kept.replies.map(|end| Cursor { alone: replies.alone, ..end });
    margin.next = cut.or(replies.next).map(|next| web.sealed(&next));
    let index = margin.index;
    let mut response = page(pages::note(viewer.user.as_ref(), &margin));
    response.headers_mut().insert(INDEX, HeaderValue::from_static(index.as_str()));
    Ok(hold_memory(response, held))
}

fn tab_in(request: &Request) -> Tab {
    match query(request, "tab").as_deref() {
        Some("notes") => Tab::PageNotes,
        _ => Tab::Annotations,
    }
}

/// Returns what the margin shows: the notes of the tab, and the replies to them.
async fn margin(
    web: &Shared,
    viewer: &Viewer,
    filter: Filter,
    cursor: Option<Cursor>,
    tab: Tab,
) -> Result<Margin, Failure> {
    let notes = &web.annotations;
    let url = filter.url.clone().unwrap_or_default();
    let kind = match tab {
        Tab::Annotations => Kind::Annotation,
        Tab::PageNotes => Kind::PageNote,
    };
    let of_tab = Filter { kind: Some(kind.as_str()), ..filter.clone() };
    let counts = notes.counts(viewer.id(), &url).await?;
    let page =
        Page { cursor: cursor.as_ref(), limit: LARGEST_PAGE, bytes: BYTES, preview: Some(PREVIEW) };
    let found = notes.search_counted(viewer.id(), &of_tab, page, Some(&counts)).await?;
    // All replies to the notes that are shown; the filter does not apply to them.
    let replies = replies(web, viewer, &url, &counts).await?;
    let first = cursor.is_none();
    let without = match tab == Tab::Annotations && !filter.is_narrow() && first {
        true => beginnings(&replies.rows, &found.rows, filter.group.as_deref()),
        false => Vec::new(),
    };
    let gone = match without.is_empty() {
        true => without,
        false => notes.gone(viewer.id(), &without).await?,
    };
    let mut margin = Margin {
        tab,
        filter,
        counts,
        index: found.index.max(replies.index),
        away: found.away || replies.away,
        is_older: !first,
        next: None,
        more_replies: replies.next.is_some(),
        notes: found.rows,
        replies: replies.rows,
        gone,
        viewer: viewer.id(),
        now: jiff::Timestamp::now(),
    };
    let kept = margin.fit(BYTES);
    let cut = kept.notes.map(|end| Cursor { alone: found.alone, ..end });
    margin.next = cut.or(found.next).map(|next| web.sealed(&next));
    margin.more_replies |= kept.replies.is_some();
    Ok(margin)
}

/// Returns the newest replies of a page, up to a bound; `next`: there may be more.
async fn replies(
    web: &Shared,
    viewer: &Viewer,
    url: &str,
    counts: &Counts,
) -> Result<Found, Failure> {
    let kind = Some(Kind::Reply.as_str());
    let filter = Filter { url: Some(url.to_owned()), kind, ..Filter::default() };
    let notes = &web.annotations;
    let page = Page { cursor: None, limit: MOST_REPLIES, bytes: BYTES, preview: Some(PREVIEW) };
    Ok(notes.search_counted(viewer.id(), &filter, page, Some(counts)).await?)
}

/// Returns the roots of conversations that are not shown, in the order of their newest replies.
fn beginnings(replies: &[Annotation], shown: &[Annotation], group: Option<&str>) -> Vec<String> {
    let shown: HashSet<&str> = shown.iter().map(|note| note.id.as_str()).collect();
    let mut seen = HashSet::new();
    replies
        .iter()
        .filter(|reply| group.is_none_or(|group| reply.group == group))
        .filter_map(|reply| reply.root.as_deref())
        .filter(|root| !shown.contains(root) && seen.insert(*root))
        .map(str::to_owned)
        .collect()
}

/// `GET /embed.js`: for pages of other origins, which the settings must allow.
pub async fn embed(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_read(&request)?;
    let mut response = axum::response::Response::new(axum::body::Body::from(crate::assets::EMBED));
    let map = response.headers_mut();
    map.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/javascript; charset=utf-8"));
    map.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    // Any page may load the script; what it may request is decided per origin.
    map.insert(CROSS_ORIGIN_RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
    Ok(response)
}
