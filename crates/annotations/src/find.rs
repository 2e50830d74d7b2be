//! Finding in Postgres: the notes that one user may see, newest first.
//!
//! # Invariants
//! - Every row comes from `annotations.search_notes`, which checks what the viewer may read. There is no
//!   other way to a row.
//! - Searches by words have their own sessions, and so have searches of Postgres alone by tag,
//!   conversation or kind: other requests do not queue behind them, and Postgres ends them before their
//!   caller cancels.

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::error::Refused;
use crate::id::AnnotationId;
use crate::index::query::Words;
use crate::model::{Annotation, Counts, Cursor, Filter, Kind, Page};
use crate::service::Annotations;

/// What a query to Postgres covers.
#[derive(Clone, Copy, Default)]
pub(crate) struct Reach<'a> {
    pub before: Option<&'a Cursor>,
    /// Only the viewer's own notes that changed after this.
    pub own_since: Option<Timestamp>,
    /// Only these ids. The caller has already searched for the words.
    pub among: Option<&'a [String]>,
    pub most: usize,
    pub bytes: Option<usize>,
    pub preview: Option<usize>,
}

impl Reach<'_> {
    /// Covers one page.
    pub fn of(page: Page<'_>) -> Self {
        let Page { limit: most, bytes, preview, .. } = page;
        Self { most, bytes: Some(bytes), preview, ..Self::default() }
    }
}

/// What Postgres found.
#[derive(Default)]
pub(crate) struct Rows {
    pub rows: Vec<Annotation>,
    /// There may be more after this position.
    pub end: Option<Cursor>,
}

/// Returns whether Postgres may have to read many notes to find the newest that match. An index returns
/// them in order by page, user and group; not by tag, conversation and kind.
fn is_costly(filter: &Filter, reach: Reach<'_>) -> bool {
    let narrow = reach.among.is_some() || reach.own_since.is_some();
    let filtered = filter.tag.is_some() || filter.references.is_some() || filter.kind.is_some();
    filtered && !narrow
}

impl Annotations {
    /// Returns a note, if this user may see it.
    pub async fn read(
        &self,
        viewer: Option<i64>,
        id: &AnnotationId,
    ) -> Result<Annotation, Refused> {
        let among = [id.as_str().to_owned()];
        let reach = Reach { among: Some(&among), most: 1, ..Reach::default() };
        let found = self.find(viewer, &Filter::default(), reach).await?;
        found.rows.into_iter().next().ok_or(Refused::NotFound)
    }

    /// Returns how many notes of a page this user may see.
    pub async fn counts(&self, viewer: Option<i64>, url: &str) -> Result<Counts, Refused> {
        let sql = "select * from annotations.counts($1, $2)";
        let row = self.row(sql, &[(&viewer, Type::INT8), (&url, Type::TEXT)]).await?;
        Ok(Counts { annotations: row.get(0), page_notes: row.get(1), replies: row.get(2) })
    }

    /// Returns the ids among these that this user cannot see, such as those of deleted notes.
    pub(crate) async fn gone(
        &self,
        viewer: Option<i64>,
        ids: &[String],
    ) -> Result<Vec<String>, Refused> {
        let sql = "select w.id from unnest($2::text[]) with ordinality as w (id, position) \
                   where not exists (select from annotations.shown s where s.id = w.id \
                       and s.group_id = any ((select annotations.readable($1))::text[])) \
                   order by w.position";
        let rows = self.rows(sql, &[(&viewer, Type::INT8), (&ids, Type::TEXT_ARRAY)]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    pub(crate) async fn find(
        &self,
        viewer: Option<i64>,
        filter: &Filter,
        reach: Reach<'_>,
    ) -> Result<Rows, Refused> {
        let asked = match reach.among {
            Some(_) => None,
            None => filter.q.as_deref().and_then(Words::parse),
        };
        let terms = match asked.as_ref().map(Words::terms) {
            // The query has words, but none that a note can match.
            Some(None) => return Ok(Rows::default()),
            Some(Some(terms)) => Some(terms),
            None => None,
        };
        let words = terms.as_ref().map(|terms| &terms.words);
        let phrases = terms.as_ref().map(|terms| &terms.phrases);
        let references = filter.references.as_ref().map(AnnotationId::as_str);
        let before_at = reach.before.map(|cursor| cursor.updated_at);
        let before_id = reach.before.map(|cursor| cursor.id.as_str());
        let most = i32::try_from(reach.most).unwrap_or(i32::MAX);
        let bytes = reach.bytes.and_then(|bytes| i64::try_from(bytes).ok());
        let preview = reach.preview.and_then(|preview| i32::try_from(preview).ok());
        let sql = include_str!("../queries/search_notes.sql");
        let params = [
            (&viewer as _, Type::INT8),
            (&filter.url as _, Type::TEXT),
            (&filter.user as _, Type::TEXT),
            (&filter.group as _, Type::TEXT),
            (&filter.tag as _, Type::TEXT),
            (&filter.kind as _, Type::TEXT),
            (&references as _, Type::TEXT),
            (&words as _, Type::TEXT_ARRAY),
            (&phrases as _, Type::TEXT_ARRAY),
            (&before_at as _, Type::TIMESTAMPTZ),
            (&before_id as _, Type::TEXT),
            (&reach.own_since as _, Type::TIMESTAMPTZ),
            (&reach.among as _, Type::TEXT_ARRAY),
            (&most as _, Type::INT4),
            (&bytes as _, Type::INT8),
            (&preview as _, Type::INT4),
        ];
        let rows = match terms {
            Some(_) => self.word_rows(sql, &params).await?,
            None if is_costly(filter, reach) => self.filter_rows(sql, &params).await?,
            None => self.rows(sql, &params).await?,
        };
        let mut found = Rows::default();
        for row in &rows {
            match row.get::<_, bool>("is_end") {
                true => found.end = end_cursor(row),
                false => found.rows.extend(annotation(row)),
            }
        }
        Ok(found)
    }
}

fn end_cursor(row: &Row) -> Option<Cursor> {
    let id: Option<&str> = row.get("id");
    Some(Cursor { updated_at: row.get("updated_at"), id: id?.parse().ok()?, alone: false })
}

fn annotation(row: &Row) -> Option<Annotation> {
    let (id, kind): (&str, &str) = (row.get("id"), row.get("kind"));
    Some(Annotation {
        id: id.parse().ok()?,
        kind: Kind::of(kind)?,
        parent: row.get("parent_id"),
        root: row.get("root_id"),
        quote: row.get("quote"),
        selectors: row.get("selectors"),
        text: row.get("text"),
        cut: row.get("is_cut"),
        tags: row.get("tags"),
        created_at: row.get("created_at"),
        updated_at: row.get("updated_at"),
        version: row.get("version"),
        user_id: row.get("user_id"),
        user_name: row.get("user_name"),
        display_name: row.get("display_name"),
        group: row.get("counted_group"),
        group_name: row.get("group_name"),
        url: row.get("url"),
        title: row.get("title"),
    })
}
