//! The page with a text and the notes beside it.

use std::collections::HashSet;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use leasehold_http::headers::RESOURCE;

use super::api::{INDEX, filter_in};
use super::errors::Failure;
use super::session::page;
use super::web::{Answer, Shared, Viewer, query};
use crate::model::{Annotation, Filter, Found, IndexState, Kind};
use crate::pages::{self, Margin, Tab};
use crate::search::LARGEST_PAGE;

/// The most replies that are read for a page.
const MOST_REPLIES: usize = 1000;
/// How often they are searched for. The index may be full of replies that Postgres does not show, such as
/// those of somebody who left: they must not keep a request busy until it has passed them all.
const MOST_ROUNDS: usize = MOST_REPLIES / LARGEST_PAGE + 2;

/// `GET /`
pub async fn reader(State(web): State<Shared>, request: Request) -> Answer {
    web.admit_read(&request)?;
    let viewer = web.viewer(request.headers()).await?;
    let mut filter = filter_in(&request)?;
    let here = format!("{}/", web.base_url);
    filter.url = Some(here.clone());
    let margin = margin(&web, &viewer, filter, tab_in(&request)).await?;
    let groups = web.annotations.groups(viewer.id()).await?;
    let index = margin.index;
    let markup = pages::reader(&here, viewer.user.as_ref(), &groups, &margin);
    let mut response = page(markup);
    response.headers_mut().insert(INDEX, HeaderValue::from_static(index.as_str()));
    Ok(response)
}

/// `GET /margin`: only the notes, for a page that is open.
pub async fn fragment(State(web): State<Shared>, request: Request) -> Answer {
    web.admit_read(&request)?;
    let viewer = web.viewer(request.headers()).await?;
    let filter = filter_in(&request)?;
    if filter.url.is_none() {
        return Err(Failure::malformed("url says which page it is about."));
    }
    let margin = margin(&web, &viewer, filter, tab_in(&request)).await?;
    let mut response = page(pages::margin(viewer.user.as_ref(), &margin));
    response.headers_mut().insert(INDEX, HeaderValue::from_static(margin.index.as_str()));
    Ok(response)
}

fn tab_in(request: &Request) -> Tab {
    match query(request, "tab").as_deref() {
        Some("notes") => Tab::PageNotes,
        _ => Tab::Annotations,
    }
}

/// Everything that stands in the margin: the notes of the tab, and the replies to them.
async fn margin(
    web: &Shared,
    viewer: &Viewer,
    filter: Filter,
    tab: Tab,
) -> Result<Margin, Failure> {
    let notes = &web.annotations;
    let url = filter.url.clone().unwrap_or_default();
    let kind = match tab {
        Tab::Annotations => Kind::Annotation,
        Tab::PageNotes => Kind::PageNote,
    };
    let of_tab = Filter { kind: Some(kind.as_str()), ..filter.clone() };
    let found = notes.search(viewer.id(), &of_tab, None, LARGEST_PAGE).await?;
    // Replies to what is shown, whoever wrote them and whatever they say.
    let replies = replies(web, viewer, &url).await?;
    let without = match tab == Tab::Annotations && !filter.is_narrow() {
        true => beginnings(&replies.rows, &found.rows, filter.group.as_deref()),
        false => Vec::new(),
    };
    let gone = match without.is_empty() {
        true => without,
        false => notes.gone(viewer.id(), &without).await?,
    };
    let counts = notes.counts(viewer.id(), &url).await?;
    let index = match (found.index, replies.index) {
        (IndexState::Down, _) | (_, IndexState::Down) => IndexState::Down,
        (IndexState::Behind, _) | (_, IndexState::Behind) => IndexState::Behind,
        _ => IndexState::Ok,
    };
    Ok(Margin {
        tab,
        filter,
        counts,
        index,
        more: found.next.is_some(),
        more_replies: replies.next.is_some(),
        notes: found.rows,
        replies: replies.rows,
        gone,
        viewer: viewer.id(),
        now: jiff::Timestamp::now(),
    })
}

/// The replies of a page, the newest first, up to a bound; `next`: there may be more.
async fn replies(web: &Shared, viewer: &Viewer, url: &str) -> Result<Found, Failure> {
    let kind = Some(Kind::Reply.as_str());
    let filter = Filter { url: Some(url.to_owned()), kind, ..Filter::default() };
    let notes = &web.annotations;
    let mut all = notes.search(viewer.id(), &filter, None, LARGEST_PAGE).await?;
    for _ in 1..MOST_ROUNDS {
        if all.rows.len() >= MOST_REPLIES {
            break;
        }
        let Some(next) = all.next.take() else { break };
        let more = notes.search(viewer.id(), &filter, Some(&next), LARGEST_PAGE).await?;
        all.rows.extend(more.rows);
        all.next = more.next;
        all.index = all.index.max(more.index);
    }
    Ok(all)
}

/// What conversations began with that is not shown, in the order of their newest replies.
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
pub async fn embed(State(web): State<Shared>, request: Request) -> Answer {
    web.admit_read(&request)?;
    let mut response = axum::response::Response::new(axum::body::Body::from(crate::assets::EMBED));
    let map = response.headers_mut();
    map.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/javascript; charset=utf-8"));
    map.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    // Any page may load it; what it may ask for is another question.
    map.insert(RESOURCE, HeaderValue::from_static("cross-origin"));
    Ok(response)
}
