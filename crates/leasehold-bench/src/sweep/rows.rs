//! Inserts the rows directly into the tables: expired pastes, their contents, a few survivors.
//!
//! The rows are as if the service had uploaded them a month ago. Meanwhile secondary indexes are dropped
//! and then rebuilt, and triggers are off.

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use leasehold::database::Session;

use super::layout::{KEY, Layout, SURVIVES};

const CHUNK: u64 = 100_000;

/// Inserts everything into the tables `pastes` and `contents` of a schema.
pub async fn lay(
    session: &Session,
    schema: &str,
    layout: &Layout,
    bar: &ProgressBar,
) -> Result<()> {
    session.batch_execute("set statement_timeout = 0; set lock_timeout = 0").await?;
    // Triggers guard the states of live rows; these rows are inserted as already uploaded and expired.
    session
        .batch_execute("set session_replication_role = replica")
        .await
        .context("laying rows needs a superuser; leave DATABASE_URL out to use a private server")?;
    let tables = [format!("{schema}.contents"), format!("{schema}.pastes")];
    let mut indexes = Vec::new();
    for table in &tables {
        indexes.extend(drop_indexes(session, table).await?);
    }
    session.batch_execute(&groups(schema, layout)).await.context("shared contents")?;
    let alone = layout.rows / 10 * 7;
    for from in (0..alone).step_by(CHUNK as usize) {
        let to = (from + CHUNK).min(alone);
        session.batch_execute(&contents(schema, layout, from, to)).await.context("contents")?;
        bar.inc(to - from);
    }
    for from in (0..layout.rows).step_by(CHUNK as usize) {
        let to = (from + CHUNK).min(layout.rows);
        session.batch_execute(&pastes(schema, layout, from, to)).await.context("pastes")?;
        bar.inc(to - from);
    }
    session.batch_execute(&survivors(schema, layout)).await.context("survivors")?;
    for index in indexes {
        session.batch_execute(&index).await.with_context(|| index.clone())?;
    }
    session
        .batch_execute(&format!(
            "select setval(pg_get_serial_sequence('{schema}.contents', 'content_id'), \
             (select max(content_id) from {schema}.contents)); \
             reset session_replication_role"
        ))
        .await?;
    // After a month, a table is vacuumed and has statistics.
    for table in &tables {
        session.batch_execute(&format!("vacuum (freeze, analyze) {table}")).await?;
    }
    ensure_laid(session, schema, layout).await
}

/// Drops the indexes that back no constraint. Returns the statements that create them again.
async fn drop_indexes(session: &Session, table: &str) -> Result<Vec<String>> {
    let rows = session
        .query_typed(
            "select indexrelid::regclass::text, pg_get_indexdef(indexrelid) from pg_index \
              where indrelid = $1::text::regclass and not indisprimary \
                and not exists (select from pg_constraint where conindid = indexrelid)",
            &[(&table, tokio_postgres::types::Type::TEXT)],
        )
        .await?;
    let mut made_by = Vec::with_capacity(rows.len());
    for row in &rows {
        session.batch_execute(&format!("drop index {}", row.get::<_, String>(0))).await?;
        made_by.push(row.get(1));
    }
    Ok(made_by)
}

/// SQL for the hash and the object of a content, from its id `content_id`.
fn hash_and_object(layout: &Layout) -> String {
    let size = layout.object_size;
    format!(
        "encode(sha256(convert_to(rpad('content ' || content_id, {size}), 'UTF8')), 'hex') \
           as content_hash, \
         left(encode(sha256(convert_to('object ' || content_id, 'UTF8')), 'hex'), 32)::uuid \
           as object_id"
    )
}

/// Inserts contents from a query that returns `content_id` and `n`, the number of its pastes.
fn insert_contents(schema: &str, layout: &Layout, from: &str) -> String {
    let (named, size) = (hash_and_object(layout), layout.object_size);
    format!(
        "insert into {schema}.contents \
           (content_id, size, ref_count, state, changed_at, content_hash, object_id) \
         overriding system value \
         select content_id, {size}, n, 'LIVE', now() - interval '31 days', {named} from ({from}) one"
    )
}

/// SQL for the content of paste `i`, with `s` its number if it is a shared one: see [`super::layout`].
fn content_of(layout: &Layout) -> String {
    let (groups, shared) = (layout.groups(), content_of_shared(layout));
    format!("case when i % 10 >= 3 then {groups} + 1 + i / 10 * 7 + i % 10 - 3 else {shared} end")
}

fn content_of_shared(layout: &Layout) -> String {
    let spread = layout.spread;
    format!(
        "case when s % 2 = 0 then 1 + s / 2 % {spread} \
              else 1 + {spread} + s / 2 / 1000 * 100 + s / 2 % 1000 % 100 end"
    )
}

fn groups(schema: &str, layout: &Layout) -> String {
    let (shared, content) = (layout.rows / 10 * 3, content_of_shared(layout));
    let every =
        format!("select {content} as content_id from generate_series(0::bigint, {shared} - 1) s");
    let counted = format!(
        "select content_id, count(*) + (content_id % {SURVIVES} = 1)::int as n \
           from ({every}) every group by content_id order by content_id"
    );
    insert_contents(schema, layout, &counted)
}

fn contents(schema: &str, layout: &Layout, from: u64, to: u64) -> String {
    let first = layout.groups() + 1;
    let alone = format!(
        "select {first} + u as content_id, 1 as n from generate_series({from}::bigint, {to} - 1) u"
    );
    insert_contents(schema, layout, &alone)
}

/// Inserts pastes from a query that returns `code`, `content_id` and `expires`. The SQL computes their
/// other columns: a join would read all contents for each chunk.
fn insert_pastes(schema: &str, layout: &Layout, from: &str) -> String {
    let named = hash_and_object(layout);
    format!(
        "insert into {schema}.pastes (short_code, content_hash, s3_url, status, deletion_status, \
           content_id, created_at, expires_at) \
         select left(encode(sha256(convert_to(code, 'UTF8')), 'hex'), 22), content_hash, \
           'bench://' || {KEY}, 'PROCESSED', 'NOT_EXPIRED', content_id, \
           expires - interval '30 days', expires \
         from (select code, content_id, expires, {named} from ({from}) meant) paste"
    )
}

/// A cohort created within a day with a lifetime of thirty days: rows lie in the order of their expiry.
fn pastes(schema: &str, layout: &Layout, from: u64, to: u64) -> String {
    let (rows, content) = (layout.rows, content_of(layout));
    // Between two days and one day ago: `now()` advances by minutes while rows are inserted.
    let cohort = format!(
        "select 'paste ' || i as code, {content} as content_id, \
           now() - interval '1 day' * (2 - i::float8 / {rows}) as expires \
         from (select i, i / 10 * 3 + i % 10 as s \
                 from generate_series({from}::bigint, {to} - 1) i) each"
    );
    insert_pastes(schema, layout, &cohort)
}

fn survivors(schema: &str, layout: &Layout) -> String {
    let groups = layout.groups();
    let kept = format!(
        "select 'survivor ' || c as code, c as content_id, now() + interval '30 days' as expires \
         from generate_series(1::bigint, {groups}, {SURVIVES}) c"
    );
    insert_pastes(schema, layout, &kept)
}

/// Checks the rows: the layout and the SQL compute the same numbers twice, and must agree.
async fn ensure_laid(session: &Session, schema: &str, layout: &Layout) -> Result<()> {
    let rows = session
        .query_typed(
            &format!(
                "select (select count(*) from {schema}.pastes where expires_at < now()), \
                        (select count(*) from {schema}.pastes where expires_at > now()), \
                        (select count(*) from {schema}.contents), \
                        (select sum(ref_count)::bigint from {schema}.contents)"
            ),
            &[],
        )
        .await?;
    let row = rows.first().context("no counts")?;
    let found: [i64; 4] = [row.get(0), row.get(1), row.get(2), row.get(3)];
    let (rows, survivors) = (layout.rows as i64, layout.survivors() as i64);
    let meant = [rows, survivors, layout.contents() as i64, rows + survivors];
    ensure!(found == meant, "laid {found:?} instead of {meant:?} rows");
    Ok(())
}
