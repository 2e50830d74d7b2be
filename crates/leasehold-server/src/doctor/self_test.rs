//! The self-test: one job from enqueue to history, in its own queue, with each step verified.
//!
//! # What can go wrong
//! - A trigger, a rule or a row policy makes a write match nothing. Postgres reports no error then, so
//!   only reading the row again shows it.
//! - Doctor is stopped half-way: the queue `leasehold-doctor-…` stays behind; its job expires within a
//!   minute, and no worker works that queue.

use leasehold::admin::diagnosis as sql;
use tokio_postgres::types::Type;

use super::finding::Finding;
use crate::cli::Db;
use crate::exit::Failure;

const CHECK: &str = "self-test";
const NAME: &str = "leasehold.self_test";

/// Why a step of the test failed.
enum Trouble {
    Vanished(String),
    Database(Failure),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Database(failure)
    }
}

pub async fn run(db: &Db) -> Finding {
    // A role that could not follow, claim or complete the job would leave it behind, to expire and raise an alarm.
    for right in sql::TEST_RIGHTS {
        match db.query(right, &[]).await {
            Err(failure) if failure.is_denied() => return Finding::unknown(CHECK, &failure),
            _ => {}
        }
    }
    let queue = format!("leasehold-doctor-{}", uuid::Uuid::new_v4().simple());
    let result = live(db, &queue).await;
    let removed = remove_rows(db, &queue).await;
    // A row policy rejects an insert with the same code as missing rights.
    let policies = "select from pg_class c join pg_namespace n on n.oid = c.relnamespace \
                    where n.nspname in ('leasehold', 'leasehold_internal') and c.relrowsecurity";
    let may_be_policy = db.query(policies, &[]).await.is_ok_and(|rows| !rows.is_empty());
    match (result, removed) {
        (Err(Trouble::Vanished(step)), _) => Finding::fail(
            CHECK,
            format!(
                "{step}: writes vanish without an error, so jobs are lost or run again and again"
            ),
            "remove triggers, rules and row policies from the tables of schema leasehold",
        ),
        (Err(Trouble::Database(failure)), _) if failure.is_denied() && !may_be_policy => {
            Finding::unknown(CHECK, &failure)
        }
        (Err(Trouble::Database(failure)), _) => Finding::fail(
            CHECK,
            format!("the test job failed: {failure}"),
            "correct what the message of the server names",
        ),
        (Ok(()), Err(failure)) => Finding::warn(
            CHECK,
            format!("passed, but the rows of queue {queue} could not be removed: {failure}"),
            "they do no harm; delete them as the owner of the schema",
        ),
        (Ok(()), Ok(())) => Finding::ok(CHECK, "enqueue, claim, renew and complete work"),
    }
}

fn must(holds: bool, step: &str) -> Result<(), Trouble> {
    if holds { Ok(()) } else { Err(Trouble::Vanished(step.to_owned())) }
}

/// Runs the steps. Each commits by itself, and a separate statement verifies it.
async fn live(db: &Db, queue: &str) -> Result<(), Trouble> {
    let seen = async |statement: &str, id: i64| -> Result<bool, Failure> {
        Ok(!db.query(statement, &[(&id, Type::INT8)]).await?.is_empty())
    };
    let enqueued =
        db.query(sql::TEST_ENQUEUE, &[(&NAME, Type::TEXT), (&queue, Type::TEXT)]).await?;
    let id: Option<i64> = enqueued.first().and_then(|row| row.get(0));
    let id = id.ok_or_else(|| Trouble::Vanished("enqueue returned no id".to_owned()))?;
    must(seen(sql::TEST_WAITS, id).await?, "the enqueued job is missing")?;

    let claimed = db.query(sql::TEST_CLAIM, &[(&queue, Type::TEXT)]).await?;
    let generation: Option<i64> =
        claimed.first().filter(|row| row.get::<_, i64>(0) == id).map(|row| row.get(1));
    let generation =
        generation.ok_or_else(|| Trouble::Vanished("the claim returned no job".to_owned()))?;
    must(seen(sql::TEST_RUNS, id).await?, "the claimed job is not held")?;
    must(seen(sql::TEST_LEASE, generation).await?, "the lease of the claim is missing")?;

    let until = sql::TEST_LEASE_END;
    let before: String = db.one(until, &[(&generation, Type::INT8)]).await?.get(0);
    let renewed = db.one(sql::TEST_RENEW, &[(&generation, Type::INT8)]).await?;
    must(renewed.get::<_, &str>(0) == "renewed", "the renewal was refused")?;
    let after: String = db.one(until, &[(&generation, Type::INT8)]).await?.get(0);
    must(before != after, "the renewed lease ends no later")?;

    let completed =
        db.one(sql::TEST_COMPLETE, &[(&id, Type::INT8), (&generation, Type::INT8)]).await?;
    must(completed.get(0), "the job could not be completed")?;
    must(!seen(sql::TEST_EXISTS, id).await?, "the completed job is still there")?;
    must(seen(sql::TEST_HISTORY, id).await?, "the completed job is not in the history")
}

/// Removes all rows of the test. Rows that the role may not delete do no harm.
async fn remove_rows(db: &Db, queue: &str) -> Result<(), Failure> {
    for remove in sql::TEST_REMOVE {
        db.query(remove, &[(&queue, Type::TEXT)]).await?;
    }
    Ok(())
}
