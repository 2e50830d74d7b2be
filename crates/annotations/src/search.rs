//! Searching: the index returns which notes match; Postgres returns their content, and decides who may
//! see them.
//!
//! # Invariants
//! - A search shows only notes that Postgres shows to this user at this moment: an index that is old,
//!   restored or wrong can hide a note for a while, and can never leak one.
//! - Users find what they just saved, even while the index lacks it: their own rows that changed since index
//!   and table were last seen equal come from Postgres.
//! - A user is found by the new name from the commit of a rename on: until the index is known to have
//!   followed, searches also ask it for the former names, which no other user can have.
//! - A search does not wait for an index that is much slower than usual, and does not ask it while the
//!   breaker is open. Then Postgres serves searches alone. After a search has timed out on the index, the index
//!   must be quicker than Postgres until it has responded again: an outage delays a few searches, not
//!   all.
//!
//! # What can go wrong
//! - The index lacks notes that other users saved lately: `behind`. Searches find these notes as soon as
//!   the index has them.
//! - A user is renamed more than twenty times before the index has followed, or the index has not
//!   followed a week after the rename's bulk operation: the new name does not find notes that the index
//!   has under the oldest of these names.
//! - The index is down: Postgres searches for words in the newest 20,000 notes of the filter, or 16 MiB
//!   of them. The response then has a next page, which searches further.

use std::time::Instant;

use futures_util::future::try_join_all;
use jiff::Timestamp;
use tokio_postgres::types::Type;

use crate::error::Refused;
use crate::find::{Reach, Rows};
use crate::id::AnnotationId;
use crate::index::{self, Hits, Query, SearchIndex};
use crate::mirror::{self, Mirrored};
use crate::model::{Annotation, Counts, Cursor, Filter, Found, IndexState, Page};
use crate::service::Annotations;

/// The most notes of one response.
pub const LARGEST_PAGE: usize = 200;
/// The most bytes of the notes of one response.
pub const LARGEST_ANSWER: usize = 2 * 1024 * 1024;
/// How often one response asks the index. The index may be full of notes that Postgres does not show,
/// such as those of a deleted account, and an empty response with a next page is useless.
const MOST_ROUNDS: usize = 4;

impl Annotations {
    pub async fn search(
        &self,
        viewer: Option<i64>,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Found, Refused> {
        let page = Page { cursor, limit, bytes: LARGEST_ANSWER, preview: None };
        self.search_page(viewer, filter, page).await
    }

    /// Like `search_page`, for notes that Postgres has counted. An index that returns fewer and no next
    /// page is behind; so is one that returns only notes that Postgres does not show. Postgres serves
    /// the page then.
    pub async fn search_counted(
        &self,
        viewer: Option<i64>,
        filter: &Filter,
        page: Page<'_>,
        counts: Option<&Counts>,
    ) -> Result<Found, Refused> {
        let found = self.search_page(viewer, filter, page).await?;
        let expected = counts.and_then(|counts| filter.expected(counts)).unwrap_or(0);
        let lacks = i64::try_from(found.rows.len()).is_ok_and(|rows| rows < expected)
            && (found.next.is_none() || found.rows.is_empty());
        match lacks && page.cursor.is_none() && found.index != IndexState::Down {
            true => self.search_alone(viewer, filter, page, IndexState::Behind).await,
            false => Ok(found),
        }
    }

    /// Returns one page of a search.
    pub async fn search_page(
        &self,
        viewer: Option<i64>,
        filter: &Filter,
        page: Page<'_>,
    ) -> Result<Found, Refused> {
        let limit = page.limit.clamp(1, LARGEST_PAGE);
        if page.cursor.is_some_and(|cursor| cursor.alone) {
            let page = Page { limit, ..page };
            return self.search_alone(viewer, filter, page, IndexState::Behind).await;
        }
        let mut found = self.search_once(viewer, filter, Page { limit, ..page }).await?;
        for _ in 1..MOST_ROUNDS {
            // Postgres alone has already read as much as one response may cost.
            let searches_on = found.rows.is_empty() && found.index != IndexState::Down;
            let Some(next) = found.next.take_if(|_| searches_on) else { break };
            let page = Page { cursor: Some(&next), limit, ..page };
            found = self.search_once(viewer, filter, page).await?;
        }
        Ok(found)
    }

    async fn search_once(
        &self,
        viewer: Option<i64>,
        filter: &Filter,
        page: Page<'_>,
    ) -> Result<Found, Refused> {
        let Some(mirrored) = &self.0.mirrored else {
            return self.search_alone(viewer, filter, page, IndexState::Down).await;
        };
        let scope = self.scope(viewer, filter).await?;
        let settings = self.settings();
        let wait = mirrored.latency.wait(settings.index_timeout, settings.index_limit);
        // In its own task: whether the index responds matters even after this search has stopped waiting.
        let (this, queries) = (self.clone(), queries(filter, scope, page));
        let trusted = mirrored.breaker.is_trusted();
        let asking = tokio::spawn(async move { this.ask(&queries).await });
        let alone = || self.search_alone(viewer, filter, page, IndexState::Down);
        let hits = if trusted {
            match tokio::time::timeout(wait, asking).await {
                Ok(answer) => answer.ok().flatten(),
                Err(_) => {
                    mirrored.breaker.doubt();
                    None
                }
            }
        } else {
            tokio::select! {
                biased;
                Ok(Some(hits)) = asking => Some(hits),
                found = alone() => return found,
            }
        };
        match hits {
            Some(hits) => self.shown(mirrored, viewer, filter, page, hits).await,
            None => alone().await,
        }
    }

    /// Searches in Postgres alone.
    async fn search_alone(
        &self,
        viewer: Option<i64>,
        filter: &Filter,
        page: Page<'_>,
        index: IndexState,
    ) -> Result<Found, Refused> {
        let reach = Reach { before: page.cursor, ..Reach::of(page) };
        let Rows { rows, end } = self.find(viewer, filter, reach).await?;
        let away = self.0.mirrored.as_ref().is_some_and(|mirrored| mirrored.breaker.is_open());
        // An index that does not respond now may respond for the next page. One that lacks a note would
        // lack it there, too.
        let alone = index == IndexState::Behind;
        let next = end.map(|end| Cursor { alone, ..end });
        Ok(Found { rows, next, index, away, alone })
    }

    /// Asks the index one or several queries; `None`: it failed, was late, or the breaker is open.
    async fn ask(&self, queries: &[Query]) -> Option<Hits> {
        let mirrored = self.0.mirrored.as_ref()?;
        let started = Instant::now();
        let probe = mirrored.breaker.permit(started).ok()?;
        let asking = try_join_all(queries.iter().map(|query| mirrored.index.search(query)));
        let answer = tokio::time::timeout(self.settings().index_limit, asking).await;
        let hits = match answer {
            Ok(Ok(answers)) => {
                mirrored.latency.record(started.elapsed());
                Some(Hits::merged(answers, queries.first().map_or(0, Query::size)))
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "a query to the search index failed");
                None
            }
            Err(_) => None,
        };
        if probe.report(hits.is_some(), Instant::now()) {
            tracing::warn!(
                "the breaker of the search index opened after repeated failures; Postgres serves searches alone"
            );
        }
        hits
    }

    /// Returns what Postgres shows of the index's hits, with the viewer's own recent rows.
    async fn shown(
        &self,
        mirrored: &Mirrored,
        viewer: Option<i64>,
        filter: &Filter,
        page: Page<'_>,
        hits: Hits,
    ) -> Result<Found, Refused> {
        let state = mirrored.state(self).await;
        let next = hits.next.as_ref().and_then(service_cursor);
        let among: Vec<String> = hits.hits.into_iter().map(|hit| hit.id).collect();
        let found = match among.is_empty() {
            true => Rows::default(),
            false => {
                let reach = Reach { among: Some(&among), ..Reach::of(page) };
                self.find(viewer, filter, reach).await?
            }
        };
        let own = match viewer {
            Some(_) => {
                let since = state.equal_as_of.unwrap_or(Timestamp::UNIX_EPOCH);
                let reach =
                    Reach { before: page.cursor, own_since: Some(since), ..Reach::of(page) };
                self.find(viewer, filter, reach).await?
            }
            None => Rows::default(),
        };
        let (rows, next) = merged(found, own, next, page.limit);
        Ok(Found { rows, next, index: state.index, away: false, alone: false })
    }

    /// Returns the groups to search in, and the former names of the user in the filter.
    async fn scope(&self, viewer: Option<i64>, filter: &Filter) -> Result<Scope, Refused> {
        let params = [
            (&viewer as _, Type::INT8),
            (&filter.group as _, Type::TEXT),
            (&filter.user as _, Type::TEXT),
            (&mirror::NAME as _, Type::TEXT),
        ];
        let row = self.row(include_str!("../queries/scope.sql"), &params).await?;
        Ok(Scope {
            groups: row.get::<_, Option<Vec<String>>>(0).unwrap_or_default(),
            former_names: row.get(1),
        })
    }
}

struct Scope {
    groups: Vec<String>,
    /// Names under which the index may still have notes of the user in the filter.
    former_names: Vec<String>,
}

/// Returns one query per name.
fn queries(filter: &Filter, scope: Scope, page: Page<'_>) -> Vec<Query> {
    let former = scope.former_names.into_iter().map(Some);
    std::iter::once(filter.user.clone())
        .chain(former)
        .map(|user| Query {
            url: filter.url.clone(),
            user,
            groups: Some(scope.groups.clone()),
            tag: filter.tag.clone(),
            kind: filter.kind.map(str::to_owned),
            reference: filter.references.as_ref().map(|id| id.as_str().to_owned()),
            words: filter.q.clone(),
            limit: page.limit,
            after: page.cursor.map(|cursor| index::Cursor {
                updated: cursor.updated_at.as_microsecond(),
                id: cursor.id.as_str().to_owned(),
            }),
        })
        .collect()
}

fn service_cursor(cursor: &index::Cursor) -> Option<Cursor> {
    let id: AnnotationId = cursor.id.parse().ok()?;
    let updated_at = Timestamp::from_microsecond(cursor.updated).ok()?;
    Some(Cursor { updated_at, id, alone: false })
}

fn key(row: &Annotation) -> (Timestamp, &str) {
    (row.updated_at, row.id.as_str())
}

/// Merges own rows into the found ones, newest first and without duplicates: at most `limit`. After the
/// newest position where one of the lists ends, rows of that list may be missing: everything after it
/// belongs to the next page.
fn merged(
    found: Rows,
    own: Rows,
    next: Option<Cursor>,
    limit: usize,
) -> (Vec<Annotation>, Option<Cursor>) {
    let ends = [next, found.end, own.end].into_iter().flatten();
    let end = ends.max_by(|one, other| {
        (one.updated_at, one.id.as_str()).cmp(&(other.updated_at, other.id.as_str()))
    });
    let mut rows = found.rows;
    for row in own.rows {
        if !rows.iter().any(|known| known.id == row.id) {
            rows.push(row);
        }
    }
    if let Some(end) = &end {
        rows.retain(|row| key(row) >= (end.updated_at, end.id.as_str()));
    }
    rows.sort_by(|one, other| key(other).cmp(&key(one)));
    if rows.len() <= limit {
        return (rows, end);
    }
    rows.truncate(limit);
    let end = rows.last().map(Cursor::of);
    (rows, end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Kind;

    fn row(id: u8, at: i64) -> Annotation {
        Annotation {
            id: format!("{id:0>22}").parse().expect("an id"),
            kind: Kind::PageNote,
            parent: None,
            root: None,
            quote: String::new(),
            selectors: serde_json::Value::Null,
            text: String::new(),
            cut: false,
            tags: Vec::new(),
            created_at: Timestamp::UNIX_EPOCH,
            updated_at: Timestamp::from_microsecond(at).expect("a time"),
            version: 1,
            user_id: 1,
            user_name: String::new(),
            display_name: String::new(),
            group: String::new(),
            group_name: String::new(),
            url: String::new(),
            title: String::new(),
        }
    }

    fn ids(rows: &[Annotation]) -> Vec<i64> {
        rows.iter().map(|row| row.updated_at.as_microsecond()).collect()
    }

    fn list(rows: &[(u8, i64)], end: Option<(u8, i64)>) -> Rows {
        let rows = rows.iter().map(|(id, at)| row(*id, *at)).collect();
        Rows { rows, end: end.map(|(id, at)| Cursor::of(&row(id, at))) }
    }

    #[test]
    fn merge_puts_own_rows_in_order_and_once() {
        let own = list(&[(3, 60), (1, 50), (4, 40)], None);
        let (rows, next) = merged(list(&[(1, 50), (2, 30)], None), own, None, 10);
        assert_eq!((ids(&rows), next), (vec![60, 50, 40, 30], None));
    }

    #[test]
    fn merge_leaves_own_rows_after_the_end_to_the_next_page() {
        let end = Cursor::of(&row(2, 30));
        let found = list(&[(1, 50), (2, 30)], None);
        let (rows, next) = merged(found, list(&[(3, 20)], None), Some(end.clone()), 10);
        assert_eq!((ids(&rows), next), (vec![50, 30], Some(end)));
    }

    #[test]
    fn f19_list_that_ends_early_ends_the_page() {
        let found = list(&[(1, 50), (2, 30)], None);
        let (rows, next) = merged(found, list(&[(3, 60), (4, 40)], Some((4, 40))), None, 10);
        assert_eq!((ids(&rows), next), (vec![60, 50, 40], Some(Cursor::of(&row(4, 40)))));
        let found = list(&[(1, 50)], Some((1, 50)));
        let (rows, next) = merged(found, list(&[(3, 20)], None), None, 10);
        assert_eq!((ids(&rows), next), (vec![50], Some(Cursor::of(&row(1, 50)))));
    }

    #[test]
    fn merge_continues_with_the_rows_that_it_cut_off() {
        let found = list(&[(1, 50), (2, 40), (3, 30)], None);
        let (rows, next) = merged(found, Rows::default(), None, 2);
        assert_eq!((ids(&rows), next), (vec![50, 40], Some(Cursor::of(&row(2, 40)))));
    }
}
