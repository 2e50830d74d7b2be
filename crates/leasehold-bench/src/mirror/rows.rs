//! Inserts annotations directly into the tables, without jobs: as after the loss of an index.

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use leasehold::database::Session;

const CHUNK: u64 = 50_000;
/// Users and pages that the annotations belong to.
const USERS: u64 = 1_000;
const PAGES: u64 = 2_000;
/// The author of the first `of_one` annotations.
pub const PROLIFIC: &str = "prolific";

/// Runs statements with triggers off, so that the mirror does not see their changes.
pub async fn without_triggers(session: &Session, sql: &str) -> Result<()> {
    let all = format!("begin; set local session_replication_role = replica; {sql}; commit");
    session
        .batch_execute(&all)
        .await
        .context("laying rows needs a superuser; leave DATABASE_URL out to use a private server")
}

/// Inserts annotations; `of_one` of them belong to one user.
pub async fn lay(session: &Session, docs: u64, of_one: u64, bar: &ProgressBar) -> Result<()> {
    session
        .batch_execute(&format!(
            "insert into annotations.user_account (name) \
               select 'reader' || i from generate_series(1, {USERS}) i; \
             insert into annotations.user_account (name) values ('{PROLIFIC}'); \
             insert into annotations.document (url, title) \
               select 'https://example.com/page/' || i, 'Page ' || i \
                 from generate_series(1, {PAGES}) i"
        ))
        .await?;
    for from in (0..docs).step_by(CHUNK as usize) {
        let to = (from + CHUNK).min(docs);
        without_triggers(session, &insert(from, to)).await?;
        bar.inc(to - from);
    }
    let given = format!(
        "update annotations.annotation set user_id = {USERS} + 1 where id in \
           (select left(md5('annotation ' || i), 22) from generate_series(0, {of_one} - 1) i)"
    );
    without_triggers(session, &given).await?;
    session.batch_execute("vacuum (analyze) annotations.annotation").await?;
    Ok(())
}

/// Returns an INSERT of annotations with these numbers, with some 300 bytes of text each.
pub fn insert(from: u64, to: u64) -> String {
    format!(
        "insert into annotations.annotation \
           (id, document_id, user_id, group_id, kind, quote, text, tags, created_at, updated_at) \
         select left(md5('annotation ' || i), 22), 1 + i % {PAGES}, 1 + i % {USERS}, '__world__', \
                'annotation', 'thirty or forty windmills, number ' || i, \
                'At this point they came in sight of them, and as soon as he saw them he said to his \
                 squire: fortune is arranging matters for us better than we could have shaped our \
                 desires ourselves. ' || md5(i::text) || ' ' || md5('more ' || i), \
                array['windmill', 'chapter ' || i % 60], \
                now() - make_interval(secs => i * 7 % 5000000), \
                now() - make_interval(secs => i * 7 % 5000000) \
           from generate_series({from}, {to} - 1) i"
    )
}
