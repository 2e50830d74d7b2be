//! Every pair of operations on a job, in every order that PostgreSQL allows.
//!
//! The stepper runs the orders, `trail.sql` records what happened in each, `check.rs` judges it.
//! `sabotage.rs` breaks the functions and asserts that the judge notices.

mod check;
mod entry;
mod ops;
mod sabotage;

use leasehold_testing::stepper::{Exploration, Run, Script, Stepper};
use tokio_postgres::Client;

use crate::sql::Sql;
use ops::*;

const TRAIL: &str = include_str!("trail.sql");

/// The state of the jobs when a run begins; see `build_world`.
#[derive(Clone, Copy)]
enum World {
    Plain,
    LastAttempt,
    CancelAsked,
    /// The waiting job has lost a worker: it shares no lease with a fresh one.
    Lost,
}

impl World {
    fn sql(self) -> String {
        let (last, asked, losses) = match self {
            World::Plain => (false, false, 0),
            World::LastAttempt => (true, false, 0),
            World::CancelAsked => (false, true, 0),
            World::Lost => (false, false, 1),
        };
        format!("select public.build_world({last}, {asked}, {losses}::smallint)")
    }
}

/// A database with a trail and a world.
async fn stage() -> Sql {
    let sql = Sql::new().await;
    sql.run(TRAIL).await;
    sql.run("alter sequence leasehold.job_id_seq restart with 1000").await;
    sql
}

/// `asked` names scripts of one op each; the result of their step `step` is compared with the trail.
async fn explore_asking(
    sql: &Sql,
    world: World,
    step: usize,
    asked: &[&str],
    scripts: impl Fn() -> Vec<Script>,
) -> Exploration {
    let build = world.sql();
    Stepper::new(sql.database.direct_config())
        .explore(
            scripts,
            async |client: &Client| client.batch_execute(&build).await.expect("a world"),
            async |client: &Client, run: &Run| {
                let (mut wrong, doers) = check::judge(client).await;
                for name in asked {
                    if let Ok(answer) = run.outcome(name, step) {
                        wrong.extend(check::result_agrees(name, answer.value(), &doers).err());
                    }
                }
                if run.count_errors("40P01") > 0 {
                    wrong.push("C6: a deadlock".to_owned());
                }
                if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
            },
        )
        .await
        .expect("an exploration")
}

async fn explore(sql: &Sql, world: World, scripts: impl Fn() -> Vec<Script>) -> Exploration {
    explore_asking(sql, world, 1, &[], scripts).await
}

/// Runs two ops in all their orders.
async fn pair(sql: &Sql, world: World, one: Op, other: Op) -> Exploration {
    // The trail cannot tell two ops of the same name apart.
    let (asked, role): (&[&str], _) =
        if one == other { (&[], "other ") } else { (&[one.name, other.name], "") };
    let seen =
        explore_asking(sql, world, 1, asked, || vec![one.script(""), other.script(role)]).await;
    seen.assert_all_held();
    seen
}

/// Runs three or more scripts together, each in two steps.
async fn together(sql: &Sql, world: World, scripts: impl Fn() -> Vec<Script>) {
    explore(sql, world, scripts).await.assert_all_held();
}

/// Runs every pair of these ops, each also with itself, in two steps each.
async fn pairs(world: World, ops: &[Op]) {
    let sql = stage().await;
    let (mut orders, mut waited) = (0, 0);
    for (first, one) in ops.iter().enumerate() {
        for other in &ops[first..] {
            let (asked, role): (&[&str], _) =
                if one == other { (&[], "other ") } else { (&[one.name, other.name], "") };
            let scripts = || vec![one.short_script(""), other.short_script(role)];
            let seen = explore_asking(&sql, world, 0, asked, scripts).await;
            seen.assert_all_held();
            orders += seen.orders;
            waited += seen.waited;
        }
    }
    println!("{orders} orders, {waited} with a wait");
    assert!(waited > 0, "ops that never wait for each other show little");
}

/// The ops on the running job.
const HOLDERS: [Op; 12] = [
    CLAIM,
    CLAIM_NEXT,
    RENEW,
    EXPIRE,
    COMPLETE,
    RETRY,
    SNOOZE,
    DEFER,
    CANCEL,
    FINISH_CANCELLED,
    BURY,
    RELEASE,
];

#[tokio::test]
async fn every_pair_keeps_the_invariants_in_every_order() {
    pairs(World::Plain, &ALL).await;
}

#[tokio::test]
async fn every_pair_keeps_the_invariants_on_the_last_attempt() {
    pairs(World::LastAttempt, &HOLDERS).await;
}

#[tokio::test]
async fn every_pair_keeps_the_invariants_of_a_job_with_a_cancel_request() {
    pairs(World::CancelAsked, &HOLDERS).await;
}

#[tokio::test]
async fn a28_every_pair_keeps_the_invariants_beside_a_job_that_lost_a_worker() {
    pairs(World::Lost, &HOLDERS).await;
}

#[tokio::test]
async fn a4_renewal_and_reclaim_keep_the_invariants_in_every_order() {
    let sql = stage().await;
    let seen = pair(&sql, World::Plain, RENEW, EXPIRE).await;
    assert_eq!((seen.orders, seen.waited), (20, 0), "neither ever waits for the other");
}

#[tokio::test]
async fn a7_reclaim_and_finish_keep_the_invariants_in_every_order() {
    let sql = stage().await;
    for finish in [COMPLETE, BURY, FINISH_CANCELLED] {
        pair(&sql, World::Plain, EXPIRE, finish).await;
    }
}

#[tokio::test]
async fn a19_cancel_and_finish_keep_the_invariants_in_every_order() {
    let sql = stage().await;
    for finish in [COMPLETE, RETRY, SNOOZE, DEFER, RELEASE, BURY, FINISH_CANCELLED] {
        let seen = pair(&sql, World::Plain, CANCEL, finish).await;
        assert!(seen.waited > 0, "both write the row");
    }
}

#[tokio::test]
async fn a20_snooze_deferral_and_retry_meet_a_reclaim_in_every_order() {
    let sql = stage().await;
    for finish in [SNOOZE, DEFER, RETRY, RELEASE] {
        pair(&sql, World::Plain, EXPIRE, finish).await;
        pair(&sql, World::LastAttempt, EXPIRE, finish).await;
    }
}

#[tokio::test]
async fn a21_redrive_burial_and_claim_keep_the_invariants_in_every_order() {
    let sql = stage().await;
    pair(&sql, World::Plain, BURY, REDRIVE).await;
    together(&sql, World::Plain, || {
        vec![BURY.short_script(""), REDRIVE.short_script(""), worker()]
    })
    .await;
}

#[tokio::test]
async fn a22_prune_redrive_and_claim_keep_the_invariants_in_every_order() {
    let sql = stage().await;
    pair(&sql, World::Plain, REDRIVE, PRUNE).await;
    for three in [[REDRIVE, PRUNE, CLAIM_NEXT], [REDRIVE, PRUNE, CLAIM], [PRUNE, EXPIRE, COMPLETE]]
    {
        together(&sql, World::Plain, || three.map(|op| op.short_script("")).to_vec()).await;
    }
}

#[tokio::test]
async fn a1_old_worker_new_worker_and_housekeeper_keep_the_invariants_in_every_order() {
    let sql = stage().await;
    for finish in [COMPLETE, RETRY, SNOOZE, DEFER, BURY, RELEASE, FINISH_CANCELLED] {
        together(&sql, World::Plain, || {
            vec![finish.short_script(""), EXPIRE.short_script(""), worker()]
        })
        .await;
    }
}

#[tokio::test]
async fn every_triple_keeps_the_invariants_in_every_order() {
    let sql = stage().await;
    for three in [
        [CLAIM, EXPIRE, COMPLETE],
        [RENEW, EXPIRE, COMPLETE],
        [CANCEL, COMPLETE, EXPIRE],
        [CANCEL, SNOOZE, EXPIRE],
        [RENEW, CLAIM, RETRY],
        [REDRIVE, ENQUEUE_DEAD, PRUNE],
        [ENQUEUE, COMPLETE, CLAIM],
        [SNOOZE, CLAIM_NEXT, CANCEL],
        [DEFER, CLAIM_NEXT, CANCEL],
        [CLAIM_NEXT, CLAIM, CANCEL_WAITING],
        [REDRIVE, CLAIM_NEXT, BURY],
    ] {
        together(&sql, World::Plain, || three.map(|op| op.short_script("")).to_vec()).await;
    }
    together(&sql, World::Plain, || {
        vec![ENQUEUE.short_script(""), ENQUEUE.short_script("other "), COMPLETE.short_script("")]
    })
    .await;
}
