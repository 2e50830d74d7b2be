//! Broken functions, each in the test's own database: they prove that the judge can fail.
//!
//! The broken text is made from the real one, so a sabotage that no longer fits fails here.

use leasehold::migrate::FUNCTIONS;
use leasehold_testing::stepper::Script;

use super::ops::*;
use super::{World, explore, explore_asking, stage};
use crate::sql::Sql;

/// Replaces a piece of one file of functions and installs the result.
async fn install(sql: &Sql, file: &str, pieces: &[(&str, &str)]) {
    let (_, text) = FUNCTIONS.iter().find(|(name, _)| *name == file).expect("a file of that name");
    let mut broken = (*text).to_owned();
    for (piece, other) in pieces {
        assert!(broken.contains(piece), "{file} has changed: {piece}");
        broken = broken.replace(piece, other);
    }
    sql.run(&broken).await;
}

/// Explores with the installed functions and asserts that the judge reports `rule`.
async fn accused(sql: &Sql, world: World, rule: &str, scripts: impl Fn() -> Vec<Script>) {
    let seen = explore(sql, world, scripts).await;
    assert!(seen.orders > 1);
    assert!(
        seen.failures.iter().any(|failure| failure.why.contains(rule)),
        "{} orders, and {rule} was never named: {:?}",
        seen.orders,
        seen.failures.iter().map(|failure| &failure.why).collect::<Vec<_>>()
    );
}

const FENCE: &str = "j.lease_generation = generation and j.held";

#[tokio::test]
async fn sabotage_finish_that_checks_the_id_alone_is_found() {
    let sql = stage().await;
    for file in ["queue/finish", "queue/fail"] {
        install(&sql, file, &[(FENCE, "j.held")]).await;
    }
    for finish in [COMPLETE, RETRY, SNOOZE, DEFER, RELEASE, BURY] {
        accused(&sql, World::Plain, "J4: ended the attempt", || {
            vec![finish.short_script(""), worker()]
        })
        .await;
    }
}

#[tokio::test]
async fn sabotage_fence_of_attempts_is_found() {
    let sql = stage().await;
    install(&sql, "queue/finish", &[(FENCE, "j.attempts = 1 and j.held")]).await;
    // After a snooze and another claim, the job is in its first attempt once more.
    accused(&sql, World::Plain, "J4: ended the attempt", || {
        vec![SNOOZE.short_script(""), COMPLETE.short_script(""), worker()]
    })
    .await;
}

#[tokio::test]
async fn sabotage_reclaim_in_two_steps_is_found() {
    let sql = stage().await;
    let two_steps = || {
        Script::new("expire")
            .sql(
                "begin; set local il.actor = 'expire'; \
                  select set_config('il.gone', coalesce(string_agg(j.id::text, ','), ''), true) \
                    from leasehold.job j join leasehold_internal.lease l using (lease_generation) \
                   where j.held and l.lease_expires_at < statement_timestamp()",
            )
            .sql(
                "update leasehold.job set held = false \
                   where id = any(string_to_array(current_setting('il.gone'), ',')::bigint[])",
            )
            .sql("commit")
    };
    accused(&sql, World::Plain, "J6: took job 1 from a lease that had not run out", || {
        vec![two_steps(), worker()]
    })
    .await;
}

#[tokio::test]
async fn sabotage_reclaim_that_ignores_renewals_is_found() {
    let sql = stage().await;
    let skip = "and l.lease_expires_at < statement_timestamp()";
    install(&sql, "queue/reclaim", &[(skip, "")]).await;
    accused(&sql, World::Plain, "J6: took job 1 from a lease that had not run out", || {
        vec![RENEW.short_script(""), EXPIRE.short_script("")]
    })
    .await;
}

#[tokio::test]
async fn sabotage_claim_that_reads_before_it_locks_is_found() {
    let sql = stage().await;
    install(
        &sql,
        "queue/claim",
        &[
            ("               for update skip locked) due", "               ) due"),
            ("           for update skip locked\n", ""),
            (
                "where j.ctid = any (array(select p.row_at from picked p)) and not j.held",
                "where j.id in (select o.id from leasehold.job o, picked p where o.ctid = p.row_at)",
            ),
        ],
    )
    .await;
    accused(&sql, World::Plain, "J6: job 2 was taken from its holder", || {
        vec![CLAIM_NEXT.short_script(""), CLAIM_NEXT.short_script("other ")]
    })
    .await;
}

#[tokio::test]
async fn sabotage_claim_of_jobs_that_are_not_due_is_found() {
    let sql = stage().await;
    install(&sql, "queue/claim", &[("and j.scheduled_at <= statement_timestamp()", "")]).await;
    accused(&sql, World::Plain, "J11", || {
        let later = Script::new("later")
            .sql("update leasehold.job set scheduled_at = now() + interval '1 hour' where id = 2");
        vec![later, CLAIM_NEXT.short_script("")]
    })
    .await;
}

#[tokio::test]
async fn sabotage_renewal_of_an_ended_lease_is_found() {
    let sql = stage().await;
    install(
        &sql,
        "queue/renew",
        &[
            ("coalesce(l.ended_at, 'infinity') = 'infinity'", "true"),
            (
                "set lease_expires_at = statement_timestamp() + l.lease",
                "set lease_expires_at = statement_timestamp() + l.lease, ended_at = null",
            ),
        ],
    )
    .await;
    accused(&sql, World::Plain, "J4: a lease that had ended came back", || {
        vec![RENEW.short_script(""), EXPIRE.short_script("")]
    })
    .await;
}

#[tokio::test]
async fn sabotage_snooze_that_reads_before_it_locks_is_found() {
    let sql = stage().await;
    let lock = format!(
        "select j.cancel_requested, j.queue, j.limit_key into unwanted, from_queue, key from leasehold.job j\n     where j.id = job_id and {FENCE}\n       for update;"
    );
    install(&sql, "queue/finish", &[(&lock, &lock.replace("       for update", ""))]).await;
    accused(&sql, World::Plain, "asked to stop and waits", || {
        vec![CANCEL.short_script(""), SNOOZE.short_script("")]
    })
    .await;
}

#[tokio::test]
async fn sabotage_enqueue_that_ignores_the_job_of_its_key_is_found() {
    let sql = stage().await;
    // The window of the world's key is over; both enqueues see no job behind it.
    install(
        &sql,
        "queue/enqueue",
        &[("or exists (select from leasehold.job j where j.id = known.job_id) then", "then")],
    )
    .await;
    accused(&sql, World::Plain, "J3: 2 living jobs", || {
        vec![ENQUEUE.short_script(""), ENQUEUE.short_script("other "), COMPLETE.short_script("")]
    })
    .await;
}

#[tokio::test]
async fn sabotage_redrive_that_ignores_keys_is_found() {
    let sql = stage().await;
    install(&sql, "operator/jobs", &[("and (d.idempotency_key is null", "and (true")]).await;
    accused(&sql, World::Plain, "J3", || {
        vec![REDRIVE.short_script(""), ENQUEUE_DEAD.short_script("")]
    })
    .await;
}

#[tokio::test]
async fn sabotage_prune_of_open_leases_is_found() {
    let sql = stage().await;
    install(
        &sql,
        "housekeeping/prune",
        &[("and l.ended_at < statement_timestamp() - coalesce(keep, interval '2 minutes')", "")],
    )
    .await;
    accused(&sql, World::Plain, "L1", || vec![PRUNE.short_script(""), CLAIM.short_script("")])
        .await;
}

#[tokio::test]
async fn sabotage_burial_without_a_dead_job_is_found() {
    let sql = stage().await;
    let file = "since, error) end)) x\n    )";
    install(&sql, "queue/fail", &[(file, "since, error) end)) x where false\n    )")]).await;
    accused(&sql, World::Plain, "J1: job 1 left its table", || {
        vec![BURY.short_script(""), CLAIM.short_script("")]
    })
    .await;
}

#[tokio::test]
async fn sabotage_finish_that_always_returns_true_is_found() {
    let sql = stage().await;
    install(
        &sql,
        "batches/results",
        &[(
            "return exists (select from leasehold.complete_many(",
            "return true or exists (select from leasehold.complete_many(",
        )],
    )
    .await;
    let seen = explore_asking(&sql, World::Plain, 1, &["complete"], || {
        vec![COMPLETE.script(""), EXPIRE.script("")]
    })
    .await;
    assert!(
        seen.failures.iter().any(|failure| failure.why.contains("J9")),
        "{} orders",
        seen.orders
    );
}
