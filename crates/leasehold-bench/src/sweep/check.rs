//! What must be true when the sweep has ended, counted in the database and in the store.

use std::collections::HashSet;

use anyhow::{Context, Result};
use futures_util::{StreamExt, pin_mut};
use leasehold::database::Session;

use super::layout::KEY;
use super::store::Target;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Contents whose counter differs from the number of their pastes that are not deleted.
    pub wrong_counters: i64,
    /// Pastes that have expired and are not deleted.
    pub not_deleted: i64,
    /// Doomed contents: their object should be gone.
    pub doomed: i64,
    /// Contents whose object was deleted.
    pub gone: i64,
    pub live_contents: u64,
    pub objects_left: u64,
    /// Living contents whose object is not in the store.
    pub missing_objects: u64,
}

impl Checked {
    pub fn ref_count_exact(&self) -> bool {
        self.wrong_counters == 0
    }

    /// True if the store holds the objects of living contents and nothing else.
    pub fn store_exact(&self) -> bool {
        self.missing_objects == 0 && self.objects_left == self.live_contents
    }
}

/// Counts everything. Call it when no process uses the database any more.
pub async fn check(session: &Session, target: &mut Target) -> Result<Checked> {
    session.batch_execute("set statement_timeout = 0").await?;
    let wrong_counters = count(
        session,
        "select count(*) from pastes.contents c \
           full join (select content_id, count(*) as pastes from pastes.pastes \
                       where deletion_status <> 'DELETED' group by content_id) p using (content_id) \
          where coalesce(c.ref_count, -1) <> coalesce(p.pastes, 0)",
    )
    .await?;
    let not_deleted = count(
        session,
        "select count(*) from pastes.pastes \
          where deletion_status <> 'DELETED' and expires_at < now() - interval '12 hours'",
    )
    .await?;
    let doomed =
        count(session, "select count(*) from pastes.contents where state = 'DOOMED'").await?;
    let gone = count(session, "select count(*) from pastes.contents where state = 'GONE'").await?;
    let keys = living_keys(session).await?;
    let live_contents = keys.len() as u64;
    let (objects_left, missing_objects) = target.left(keys).await?;
    Ok(Checked {
        wrong_counters,
        not_deleted,
        doomed,
        gone,
        live_contents,
        objects_left,
        missing_objects,
    })
}

pub async fn count(session: &Session, sql: &str) -> Result<i64> {
    let rows = session.query_typed(sql, &[]).await.with_context(|| sql.to_owned())?;
    Ok(rows.first().context("no count")?.get(0))
}

async fn living_keys(session: &Session) -> Result<HashSet<String>> {
    let sql = format!("select {KEY} from pastes.contents where state = 'LIVE'");
    let rows = session.query_raw(&sql, std::iter::empty::<i32>()).await?;
    pin_mut!(rows);
    let mut keys = HashSet::new();
    while let Some(row) = rows.next().await {
        keys.insert(row?.get(0));
    }
    Ok(keys)
}
