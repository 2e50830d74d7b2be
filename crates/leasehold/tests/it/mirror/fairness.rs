//! Fair shares: neither jobs that fail again and again nor a flood of other work keeps a job out.

use std::time::Duration;

use leasehold::events::Event;
use leasehold::mirror::ItemError;
use leasehold::{Finished, JobId};
use leasehold_testing::target::Operation;

use super::barriers::{Call, StopsAt};
use super::fixture::{Margin, bare};
use crate::fixture::{run, until};
use crate::support::wait_for;

/// Returns how many jobs were claimed before one of `wanted` was claimed and completed.
async fn claimed_before(margin: &Margin, slots: usize, wanted: &[i64]) -> i64 {
    margin.sql("delete from leasehold_internal.lease").await;
    let mut worker =
        run(margin.engine.worker().queue("notes", slots).mirror(margin.mirror().without_check()));
    wait_for(&mut worker.events, |event| match event {
        Event::Finished { job: JobId(id), finished: Finished::Completed, .. }
            if wanted.contains(id) =>
        {
            Some(())
        }
        _ => None,
    })
    .await;
    worker.stop().await;
    // Every claim draws a new and greater generation.
    let sql = "select coalesce(sum(cardinality(l.job_ids)), 0)::bigint from leasehold_internal.lease l
                where l.lease_generation < (select min(h.lease_generation) from leasehold_internal.history h
                                             where h.job_ids && $1)";
    margin.client.query_one(sql, &[&wanted]).await.expect("a count").get(0)
}

async fn ids(margin: &Margin, what: &str) -> Vec<i64> {
    let sql = format!("select coalesce(array_agg(id), '{{}}') from leasehold.job where {what}");
    margin.client.query_one(&sql, &[]).await.expect("ids").get(0)
}

#[tokio::test]
async fn x23_2500_failing_jobs_do_not_starve_a_fresh_one() {
    let margin = Margin::new().await;
    margin.write_many(1, 2500).await;
    margin.target.faults(|faults| {
        for n in 1..=2500 {
            faults.items.insert(format!("n{n:05}"), ItemError::Busy("not today".into()));
        }
    });
    assert!(margin.pass().await.deferred >= 2500);
    // All of them are due again, and have been for longer than the fresh one.
    margin.sql("update leasehold.job set scheduled_at = now() - interval '1 hour'").await;
    margin.write(&["fresh"]).await;
    let fresh = ids(&margin, "kwargs->>'key' = 'fresh'").await;
    let before = claimed_before(&margin, 100, &fresh).await;
    assert!(before <= 100, "{before} others were claimed before it");
}

#[tokio::test]
async fn x23_stream_of_fresh_jobs_does_not_starve_deferred_ones() {
    let margin = Margin::new().await;
    margin.target.faults(|faults| faults.down = true);
    margin.write(&["a", "b"]).await;
    margin.pass().await;
    margin.target.faults(|faults| faults.down = false);
    let late = ids(&margin, "true").await;
    margin.sql("update leasehold.job set scheduled_at = now()").await;
    margin.write_many(1, 5000).await;
    let before = claimed_before(&margin, 100, &late).await;
    assert!(before <= 200, "{before} fresh ones were claimed before it");
}

#[tokio::test]
async fn f10_full_reindex_does_not_delay_a_new_save() {
    let margin = Margin::new().await;
    margin.write_many(1, 20_000).await;
    margin.sql("delete from leasehold.job").await;
    margin
        .sql("select leasehold_internal.reindex_mirror('notes', array(select id from margin.note), 'reindex_all', 1000)")
        .await;
    margin.write(&["live"]).await;
    let live = ids(&margin, "kwargs->>'key' = 'live'").await;
    let before = claimed_before(&margin, 200, &live).await;
    assert!(before <= 200, "{before} of the others were claimed before it: one claim at most");
}

/// Returns how many rows each call asked the store about, the fewest first.
fn looked_at(margin: &Margin) -> Vec<usize> {
    let keys = |call| match call {
        Operation::Held(keys) => Some(keys),
        _ => None,
    };
    let mut looked: Vec<usize> = margin.target.log().into_iter().filter_map(keys).collect();
    looked.sort_unstable();
    looked
}

#[tokio::test]
async fn f10_pass_checks_user_changes_apart_from_bulk_work() {
    let margin = Margin::new().await;
    margin.write_many(1, 30).await;
    margin.sql("update leasehold.job set priority = 100, tag = 'rename'").await;
    margin.write(&["live"]).await;
    assert_eq!(margin.pass().await.completed, 31);
    // One call before the write and one after it.
    assert_eq!(looked_at(&margin), [1, 1, 30, 30]);
}

#[tokio::test]
async fn f10_bulk_work_gathers_for_the_next_pass_while_users_are_active() {
    let margin = Margin::new().await;
    // The first pass of bulk work waits until all jobs are claimed. Calls 0 and 1 belong to the pass
    // before it.
    let (store, barrier) = StopsAt::new(&margin.target, Call::Held, 2);
    let limit = Duration::from_secs(600);
    let mirror = bare().limit(limit).without_check().target(store);
    margin.write(&["live"]).await;
    assert_eq!(mirror.pass_once(&margin.engine).await.expect("a pass").completed, 1);
    let worker = run(margin.engine.worker().mirror(mirror));
    for part in 0..4 {
        let first = 5 * part + 1;
        margin
            .sql(&format!(
                "begin; set local leasehold.priority = '100'; set local leasehold.tag = 'rename';
                 insert into margin.note (id) select 'n' || n from generate_series({first}, {first} + 4) n;
                 commit; select leasehold_internal.wake('notes')"
            ))
            .await;
        until("claimed", async || {
            margin.count("select count(*) from leasehold.job where not held").await == 0
        })
        .await;
        if part == 0 {
            barrier.reached().await;
        }
    }
    barrier.open();
    until("done", async || margin.jobs().await == 0).await;
    worker.stop().await;
    let most = looked_at(&margin).last().copied();
    assert!(most >= Some(10), "{most:?}: parts that were claimed one by one, worked together");
    margin.assert_equal().await;
}
