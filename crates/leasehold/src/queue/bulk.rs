//! Bulk enqueue: many jobs of one kind by binary COPY, in the caller's transaction.

use std::pin::pin;

use bytes::{BufMut, Bytes, BytesMut};
use tokio_postgres::CopyInSink;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use crate::error::EnqueueError;
use crate::job::Job;

const COPY: &str =
    "copy leasehold.job (queue, name, kwargs, priority, tag, max_attempts) from stdin (format binary)";

/// Stores every job of `jobs`; all of them or none. They are due at once and carry no key: COPY
/// cannot look for duplicates. Answers how many there were.
///
/// The fastest way in. For keys or due times enqueue drafts, or call `leasehold.enqueue_many`.
pub async fn enqueue_many<J: Job>(
    on: &impl CopyIn,
    jobs: impl IntoIterator<Item = J>,
    tag: &str,
) -> Result<u64, EnqueueError> {
    let policy = J::policy();
    let sink = on.copy_jobs(COPY).await?;
    let types = [Type::TEXT, Type::TEXT, Type::JSONB, Type::INT4, Type::TEXT, Type::INT4];
    let mut writer = pin!(BinaryCopyInWriter::new(sink, &types));
    let mut text = Vec::with_capacity(256);
    for job in jobs {
        text.clear();
        serde_json::to_writer(&mut text, &job)?;
        let row: [&(dyn ToSql + Sync); 6] =
            [&J::QUEUE, &J::NAME, &JsonText(&text), &policy.priority, &tag, &policy.max_attempts];
        writer.as_mut().write(&row).await?;
    }
    Ok(writer.finish().await?)
}

/// So many jobs travel in one statement.
const CHUNK: usize = 1000;

/// The same by arrays, for sessions that cannot COPY. Call it inside a transaction: it sends
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
        let texts: Vec<Vec<u8>> = jobs
            .by_ref()
            .take(CHUNK)
            .map(|job| serde_json::to_vec(&job))
            .collect::<Result<_, _>>()?;
        let texts: Vec<JsonText<'_>> = texts.iter().map(|text| JsonText(text)).collect();
        let names = vec![J::NAME; texts.len()];
        let rows = on
            .query_typed(
                "select count(*) from leasehold.enqueue_many(names => $1, kwargs => $2, \
                 queue => $3, priority => $4, tag => $5, max_attempts => $6)",
                &[
                    (&names, Type::TEXT_ARRAY),
                    (&texts, Type::JSONB_ARRAY),
                    (&J::QUEUE, Type::TEXT),
                    (&policy.priority, Type::INT4),
                    (&tag, Type::TEXT),
                    (&policy.max_attempts, Type::INT4),
                ],
            )
            .await?;
        let count: i64 = rows.first().map_or(0, |row| row.get(0));
        stored += u64::try_from(count).unwrap_or(0);
    }
    Ok(stored)
}

/// What can take a COPY: a connection or a transaction.
pub trait CopyIn {
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

/// JSON text as jsonb, without a detour through a tree of values.
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
