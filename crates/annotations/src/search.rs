//! Searching: the index says which notes match, Postgres says what they are and who may see them.
//!
//! # What is true
//! - Nothing is shown that Postgres does not show to this person at this moment: an index that is
//!   old, restored or wrong can hide something for a while, and can never leak.
//! - What somebody just saved is among what they find, whatever the index knows: their own rows that
//!   changed since index and table were last seen equal come from Postgres.
//! - A person is found by their present name from the commit of a rename on: until the index is known
//!   to have followed, it is asked for their former names as well, which are nobody else's.
//! - A search does not wait for an index that is much slower than usual, and does not ask while the
//!   breaker is open. Then Postgres answers alone. Once somebody has waited in vain, the index must be
//!   quicker than Postgres, until it has answered again: an outage costs a few people their patience,
//!   not everybody.
//!
//! # What can go wrong
//! - The index lacks what others saved lately: `behind`. They see it as soon as the index has it.
//! - Somebody takes more than twenty names before the index has followed, or it has not followed a week
//!   after the work of a rename: what it has under the oldest of these names is not found by the new one.
//! - The index is down: words are looked for in the newest 20,000 notes of the filter only.

use std::time::Instant;

use futures_util::future::try_join_all;
use jiff::Timestamp;
use tokio_postgres::types::Type;

use crate::error::Refused;
use crate::find::Reach;
use crate::id::AnnotationId;
use crate::index::{self, Hits, Query};
use crate::mirror::{self, Mirrored};
use crate::model::{Annotation, Cursor, Filter, Found, IndexState};
use crate::service::Annotations;

/// The most that one answer has.
pub const LARGEST_PAGE: usize = 200;

impl Annotations {
    pub async fn search(
        &self,
        viewer: Option<i64>,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Found, Refused> {
        let limit = limit.clamp(1, LARGEST_PAGE);
        let Some(mirrored) = &self.0.mirrored else {
            return self.search_alone(viewer, filter, cursor, limit, IndexState::Down).await;
        };
        let scope = self.scope(viewer, filter).await?;
        let settings = self.settings();
        let patience = mirrored.pace.patience(settings.index_patience, settings.index_limit);
        // On its own: whether the index answers at all is of interest when nobody waits any more.
        let (this, queries) = (self.clone(), questions(filter, scope, cursor, limit));
        let trusted = mirrored.breaker.is_trusted();
        let asking = tokio::spawn(async move { this.ask(&queries).await });
        let alone = || self.search_alone(viewer, filter, cursor, limit, IndexState::Down);
        let hits = if trusted {
            match tokio::time::timeout(patience, asking).await {
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
            Some(hits) => self.shown(mirrored, viewer, filter, cursor, limit, hits).await,
            None => alone().await,
        }
    }

    /// By Postgres alone.
    async fn search_alone(
        &self,
        viewer: Option<i64>,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
        index: IndexState,
    ) -> Result<Found, Refused> {
        let reach = Reach { before: cursor, most: limit + 1, ..Reach::default() };
        let mut rows = self.find(viewer, filter, reach).await?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(Cursor::of);
        Ok(Found { rows, next, index })
    }

    /// The index's answer to one question or several; `None`: it has none, in time.
    async fn ask(&self, queries: &[Query]) -> Option<Hits> {
        let mirrored = self.0.mirrored.as_ref()?;
        let started = Instant::now();
        let question = mirrored.breaker.ask(started).ok()?;
        let asking = try_join_all(queries.iter().map(|query| mirrored.index.search(query)));
        let answer = tokio::time::timeout(self.settings().index_limit, asking).await;
        let hits = match answer {
            Ok(Ok(answers)) => {
                mirrored.pace.saw(started.elapsed());
                Some(Hits::merged(answers, queries.first().map_or(0, Query::size)))
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "the index did not answer a search");
                None
            }
            Err(_) => None,
        };
        if question.tell(hits.is_some(), Instant::now()) {
            tracing::warn!("the search index does not answer; Postgres answers alone");
        }
        hits
    }

    /// What the index found, as Postgres shows it, with the viewer's own fresh rows.
    async fn shown(
        &self,
        mirrored: &Mirrored,
        viewer: Option<i64>,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
        hits: Hits,
    ) -> Result<Found, Refused> {
        let state = mirrored.state(self).await;
        let next = hits.next.as_ref().and_then(place);
        let among: Vec<String> = hits.hits.into_iter().map(|hit| hit.id).collect();
        let mut rows = match among.is_empty() {
            true => Vec::new(),
            false => {
                let reach = Reach { among: Some(&among), most: limit, ..Reach::default() };
                self.find(viewer, filter, reach).await?
            }
        };
        if viewer.is_some() {
            let since = state.equal_as_of.unwrap_or(Timestamp::UNIX_EPOCH);
            // One more than fits: else nobody would know that there is a next page.
            let most = limit + 1;
            let reach = Reach { before: cursor, own_since: Some(since), most, ..Reach::default() };
            let own = self.find(viewer, filter, reach).await?;
            rows = merged(rows, own, next.as_ref());
        }
        let (rows, next) = cut(rows, next, limit);
        Ok(Found { rows, next, index: state.index })
    }

    /// Where a question may look, and under which names.
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
    /// Of the person who is looked for: those that the index may still have their notes under.
    former_names: Vec<String>,
}

/// One question for each name.
fn questions(filter: &Filter, scope: Scope, cursor: Option<&Cursor>, limit: usize) -> Vec<Query> {
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
            limit,
            after: cursor.map(|cursor| index::Cursor {
                updated: cursor.updated_at.as_microsecond(),
                id: cursor.id.as_str().to_owned(),
            }),
        })
        .collect()
}

fn place(cursor: &index::Cursor) -> Option<Cursor> {
    let id: AnnotationId = cursor.id.parse().ok()?;
    Some(Cursor { updated_at: Timestamp::from_microsecond(cursor.updated).ok()?, id })
}

fn key(row: &Annotation) -> (Timestamp, &str) {
    (row.updated_at, row.id.as_str())
}

/// Puts own rows among the found ones, newest first and each once. What lies behind the end of a
/// full page belongs to the next one.
fn merged(
    mut rows: Vec<Annotation>,
    own: Vec<Annotation>,
    end: Option<&Cursor>,
) -> Vec<Annotation> {
    let on_page =
        |row: &Annotation| end.is_none_or(|end| key(row) >= (end.updated_at, end.id.as_str()));
    for row in own {
        if on_page(&row) && !rows.iter().any(|known| known.id == row.id) {
            rows.push(row);
        }
    }
    rows.sort_by(|one, other| key(other).cmp(&key(one)));
    rows
}

/// A page of at most `limit` rows; what does not fit comes with the next one.
fn cut(
    mut rows: Vec<Annotation>,
    next: Option<Cursor>,
    limit: usize,
) -> (Vec<Annotation>, Option<Cursor>) {
    if rows.len() <= limit {
        return (rows, next);
    }
    rows.truncate(limit);
    let next = rows.last().map(Cursor::of);
    (rows, next)
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

    #[test]
    fn own_rows_stand_where_they_belong_and_once() {
        let found = vec![row(1, 50), row(2, 30)];
        let rows = merged(found, vec![row(3, 60), row(1, 50), row(4, 40)], None);
        assert_eq!(ids(&rows), [60, 50, 40, 30]);
    }

    #[test]
    fn own_rows_behind_a_full_page_wait_for_the_next_one() {
        let end = Cursor::of(&row(2, 30));
        let rows = merged(vec![row(1, 50), row(2, 30)], vec![row(3, 20)], Some(&end));
        assert_eq!(ids(&rows), [50, 30]);
    }

    #[test]
    fn what_is_cut_off_comes_with_the_next_page() {
        let (rows, next) = cut(vec![row(1, 50), row(2, 40), row(3, 30)], None, 2);
        assert_eq!(ids(&rows), [50, 40]);
        assert_eq!(next, Some(Cursor::of(&row(2, 40))));
    }
}
