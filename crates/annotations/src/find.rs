//! Finding in Postgres: what one person may see, newest first.
//!
//! # What is true
//! - Every row comes through `annotations.find`, which asks what the viewer may read. There is no
//!   other way to a row.

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::error::Refused;
use crate::id::AnnotationId;
use crate::model::{Annotation, Counts, Cursor, Filter, Kind};
use crate::service::Annotations;

/// Words of a question that are looked for.
const MOST_WORDS: usize = 12;

/// How far a question to Postgres goes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Reach<'a> {
    pub before: Option<&'a Cursor>,
    /// Only the viewer's own that changed after this.
    pub own_since: Option<Timestamp>,
    /// Only these; words were looked for by whoever chose them.
    pub among: Option<&'a [String]>,
    pub most: usize,
}

impl Annotations {
    /// One note, if this person may see it.
    pub async fn read(
        &self,
        viewer: Option<i64>,
        id: &AnnotationId,
    ) -> Result<Annotation, Refused> {
        let among = [id.as_str().to_owned()];
        let reach = Reach { among: Some(&among), most: 1, ..Reach::default() };
        let rows = self.find(viewer, &Filter::default(), reach).await?;
        rows.into_iter().next().ok_or(Refused::NotFound)
    }

    /// How many notes of a page this person may see.
    pub async fn counts(&self, viewer: Option<i64>, url: &str) -> Result<Counts, Refused> {
        let sql = "select * from annotations.counts($1, $2)";
        let row = self.row(sql, &[(&viewer, Type::INT8), (&url, Type::TEXT)]).await?;
        Ok(Counts { annotations: row.get(0), page_notes: row.get(1), replies: row.get(2) })
    }

    /// Which of these notes are not there for this person, such as deleted ones.
    pub(crate) async fn gone(
        &self,
        viewer: Option<i64>,
        ids: &[String],
    ) -> Result<Vec<String>, Refused> {
        let sql = "select w.id from unnest($2::text[]) with ordinality as w (id, place) \
                   where not exists (select from annotations.shown s where s.id = w.id \
                       and s.group_id = any ((select annotations.readable($1))::text[])) \
                   order by w.place";
        let rows = self.rows(sql, &[(&viewer, Type::INT8), (&ids, Type::TEXT_ARRAY)]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    pub(crate) async fn find(
        &self,
        viewer: Option<i64>,
        filter: &Filter,
        reach: Reach<'_>,
    ) -> Result<Vec<Annotation>, Refused> {
        let words = match reach.among {
            Some(_) => None,
            None => filter.q.as_deref().map(words),
        };
        let references = filter.references.as_ref().map(AnnotationId::as_str);
        let before_at = reach.before.map(|cursor| cursor.updated_at);
        let before_id = reach.before.map(|cursor| cursor.id.as_str());
        let most = i32::try_from(reach.most).unwrap_or(i32::MAX);
        let rows = self
            .rows(
                include_str!("../queries/find.sql"),
                &[
                    (&viewer, Type::INT8),
                    (&filter.url, Type::TEXT),
                    (&filter.user, Type::TEXT),
                    (&filter.group, Type::TEXT),
                    (&filter.tag, Type::TEXT),
                    (&filter.kind, Type::TEXT),
                    (&references, Type::TEXT),
                    (&words, Type::TEXT_ARRAY),
                    (&before_at, Type::TIMESTAMPTZ),
                    (&before_id, Type::TEXT),
                    (&reach.own_since, Type::TIMESTAMPTZ),
                    (&reach.among, Type::TEXT_ARRAY),
                    (&most, Type::INT4),
                ],
            )
            .await?;
        Ok(rows.iter().filter_map(annotation).collect())
    }
}

/// The words of a question, a few at most.
pub(crate) fn words(q: &str) -> Vec<String> {
    q.split_whitespace().take(MOST_WORDS).map(str::to_owned).collect()
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
