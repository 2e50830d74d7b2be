//! Saves and a pass over the same row, in every order that PostgreSQL allows: no change is lost.

use leasehold_testing::stepper::{Exploration, Run, Script, Stepper};
use tokio_postgres::Client;

use super::fixture::Margin;
use crate::fixture::{count, sql};

const FUNCTIONS: &str = include_str!("../../../functions/mirror/changes.sql");

/// A note whose job is due.
const WORLD: &str = "
    truncate margin.note, leasehold.job, leasehold_internal.lease, leasehold_internal.idempotency_key,
        leasehold_internal.mirror_gone, leasehold_internal.history, margin.seen;
    insert into margin.note (id, body) values ('a', 'first')";

fn save(name: &str) -> Script {
    Script::new(name)
        .sql(format!("begin; update margin.note set body = '{name}' where id = 'a'"))
        .sql("commit")
}

/// What a pass does: claim, read the row, complete.
fn pass() -> Script {
    Script::new("pass")
        .sql("select * from leasehold.claim('w', 'notes', 10)")
        .sql("insert into margin.seen select version from margin.note where id = 'a'")
        .sql(
            "select leasehold.complete_many(l.job_ids, l.lease_generation)
               from leasehold_internal.lease l where l.ended_at is null",
        )
}

/// Checks that a pass whose jobs are over read the last version, or that a job still waits.
async fn nothing_swallowed(client: &Client) -> Result<(), String> {
    let version = count(client, "select version from margin.note").await;
    let seen = count(client, "select coalesce(max(version), 0) from margin.seen").await;
    let jobs = count(client, "select count(*) from leasehold.job").await;
    if seen >= version || jobs > 0 {
        return Ok(());
    }
    Err(format!("version {version} is lost: {seen} was seen, and no job waits"))
}

async fn explore(margin: &Margin) -> Exploration {
    sql(&margin.client, "create table if not exists margin.seen (version bigint)").await;
    Stepper::new(margin.database.direct_config())
        .explore(
            || vec![save("one"), save("two"), pass()],
            async |client: &Client| sql(client, WORLD).await,
            async |client: &Client, _: &Run| nothing_swallowed(client).await,
        )
        .await
        .expect("an exploration")
}

#[tokio::test]
async fn f4_no_order_of_saves_and_passes_loses_a_change() {
    let margin = Margin::new().await;
    explore(&margin).await.assert_all_held();
}

#[tokio::test]
async fn f4_sabotage_change_that_joins_a_running_job_is_found() {
    let margin = Margin::new().await;
    // The function without its check of `held`, and with a lock that waits.
    let sabotaged = FUNCTIONS.replace(
        "where j.id = known and not j.held and j.lost_count = 0",
        "where j.id = known and j.lost_count = 0",
    );
    assert_ne!(sabotaged, FUNCTIONS);
    sql(&margin.client, &sabotaged).await;
    let seen = explore(&margin).await;
    assert!(!seen.failures.is_empty(), "the exploration sees nothing");
}
