//! Bulk enqueue: many jobs of one name by binary COPY, in the caller's transaction.

use std::collections::BTreeMap;
use std::pin::pin;

use bytes::{BufMut, Bytes, BytesMut};
use tokio_postgres::CopyInSink;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::check::kwargs_of;
use crate::error::EnqueueError;
use crate::job::Job;

/// Stores every job of `jobs`; all of them or none. They are due at once and carry no key: COPY cannot
/// detect duplicates. Returns how many there were. Workers find those with a limit key within about a
/// second: COPY sends no signal for the key.
///
/// The fastest way to enqueue. For keys or due times enqueue drafts, or call `leasehold.enqueue_many`.
pub async fn enqueue_many<J: Job>(
    on: &impl CopyIn,
    jobs: impl IntoIterator<Item = J>,
    tag: &str,
) -> Result<u64, EnqueueError> {
    let policy = J::policy();
    // Columns that are left out get the table's defaults, which costs less than sending them.
    let mut columns = vec!["queue", "name", "kwargs", "limit_key"];
    let mut types = vec![Type::TEXT, Type::TEXT, Type::JSONB, Type::TEXT];
    let mut rest: Vec<&(dyn ToSql + Sync)> = Vec::new();
    if policy.priority != 0 {
        columns.push("priority");
        types.push(Type::INT4);
        rest.push(&policy.priority);
    }
    if !tag.is_empty() {
        columns.push("tag");
        types.push(Type::TEXT);
        rest.push(&tag);
    }
    if policy.max_attempts.is_some() {
        columns.push("max_attempts");
        types.push(Type::INT4);
        rest.push(&policy.max_attempts);
    }
    let columns = columns.join(", ");
    let sink =
        on.copy_jobs(&format!("copy leasehold.job ({columns}) from stdin (format binary)")).await?;
    let mut writer = pin!(BinaryCopyInWriter::new(sink, &types));
    let mut text = Vec::with_capacity(256);
    for job in jobs {
        text.clear();
        serde_json::to_writer(&mut text, &job)?;
        if text == b"null" {
            // A unit struct; see `check::kwargs_of`.
            text = b"{}".to_vec();
        }
        let kwargs = JsonText(&text);
        let limit_key = job.limit_key();
        let mut row: Vec<&(dyn ToSql + Sync)> = vec![&J::QUEUE, &J::NAME, &kwargs, &limit_key];
        row.extend(&rest);
        writer.as_mut().write(&row).await?;
    }
    Ok(writer.finish().await?)
}

/// Jobs per statement.
const CHUNK: usize = 1000;

/// Like [`enqueue_many`], by arrays, for sessions that cannot COPY. Call it in a transaction: it sends
/// several statements.
pub async fn enqueue_many_by_array<J: Job>(
    on: &tokio_postgres::Transaction<'_>,
    jobs: impl IntoIterator<Item = J>,
    tag: &str,
) -> Result<u64, EnqueueError> {
    let policy = J::policy();
    let mut stored = 0;
    let mut jobs = jobs.into_iter().peekable();
    while jobs.peek().is_some() {
        // One statement per limit key.
        let mut by_key: BTreeMap<Option<String>, Vec<Vec<u8>>> = BTreeMap::new();
        for job in jobs.by_ref().take(CHUNK) {
            let text = kwargs_of(&job)?.get().as_bytes().to_vec();
            by_key.entry(job.limit_key()).or_default().push(text);
        }
        for (limit_key, texts) in by_key {
            let texts: Vec<JsonText<'_>> = texts.iter().map(|text| JsonText(text)).collect();
            let names = vec![J::NAME; texts.len()];
            let rows = on
                .query_typed(
                    "select count(*) from leasehold.enqueue_many(names => $1, kwargs => $2, \
                 queue => $3, priority => $4, tag => $5, max_attempts => $6, limit_key => $7)",
                    &[
                        (&names, Type::TEXT_ARRAY),
                        (&texts, Type::JSONB_ARRAY),
                        (&J::QUEUE, Type::TEXT),
                        (&policy.priority, Type::INT4),
                        (&tag, Type::TEXT),
                        (&policy.max_attempts, Type::INT4),
                        (&limit_key, Type::TEXT),
                    ],
                )
                .await?;
            let count: i64 = rows.first().map_or(0, |row| row.get(0));
            stored += u64::try_from(count).unwrap_or(0);
        }
    }
    Ok(stored)
}

/// A target of COPY: a connection or a transaction.
pub trait CopyIn {
    /// Starts the COPY.
    fn copy_jobs(
        &self,
        sql: &str,
    ) -> impl Future<Output = Result<CopyInSink<Bytes>, tokio_postgres::Error>> + Send;
}

impl CopyIn for tokio_postgres::Client {
    async fn copy_jobs(&self, sql: &str) -> Result<CopyInSink<Bytes>, tokio_postgres::Error> {
        self.copy_in(sql).await
    }
}

impl CopyIn for tokio_postgres::Transaction<'_> {
    async fn copy_jobs(&self, sql: &str) -> Result<CopyInSink<Bytes>, tokio_postgres::Error> {
        self.copy_in(sql).await
    }
}

/// JSON text sent as jsonb, without parsing it into a tree of values.
#[derive(Debug)]
struct JsonText<'a>(&'a [u8]);

impl ToSql for JsonText<'_> {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.put_u8(1); // the version of jsonb's binary form
        out.put_slice(self.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }

    to_sql_checked!();
}
