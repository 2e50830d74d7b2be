//! The check: compares everything, also what no change reported.

use std::time::Duration;

use leasehold::events::Event;
use leasehold::mirror::{ItemError, fingerprint};
use serde_json::json;

use super::barriers::{Call, StopsAt};
use super::fixture::{Margin, bare};
use crate::fixture::{run, until};
use crate::support::wait_for;

#[tokio::test]
async fn fingerprint_is_equal_in_sql_and_rust() {
    let margin = Margin::new().await;
    for (key, version) in
        [("a", 1), ("", 0), ("ä€", i64::MAX), ("0000000000000000042", 7), ("a:1", -3)]
    {
        let row = margin
            .client
            .query_one("select leasehold_internal.fingerprint($1, $2)", &[&key, &version])
            .await
            .expect("a fingerprint");
        let (a, b) = fingerprint(key, version);
        assert_eq!(row.get::<_, i64>(0), i64::from(a) << 26 | i64::from(b), "{key} {version}");
    }
}

#[tokio::test]
async fn check_finds_records_and_repairs_every_kind_of_drift() {
    let margin = Margin::new().await;
    margin.write_many(1, 50).await;
    margin.pass().await;
    assert!(margin.check().await.is_equal());
    margin.target.tamper("n00005", 0, None);
    margin.target.tamper("n00010", 1, None);
    margin.target.tamper("n00010", 0, Some(json!({ "body": "older" })));
    margin.target.tamper("a ghost before", 3, Some(json!({})));
    margin.target.tamper("n00010 and a ghost between", 3, Some(json!({})));
    margin.target.tamper("zz and a ghost after", 3, Some(json!({})));
    let mirror = margin.mirror().range(10);
    let report = mirror.check_once(&margin.engine).await.expect("a check");
    assert_eq!((report.rows, report.differences, report.repairs), (50, 5, 5));
    assert!(report.equal_as_of.is_some(), "as of the round before");
    for (kind, n) in [("missing", 1), ("stale", 1), ("ghost", 3)] {
        let noted = format!(
            "select count(*) from leasehold_internal.mirror_difference where kind = '{kind}'"
        );
        assert_eq!(margin.count(&noted).await, n, "{kind}");
    }
    let repairs =
        "select count(*) from leasehold.job where tag = 'mirror.repair' and priority = 50";
    assert_eq!(margin.count(repairs).await, 5);
    let again = mirror.check_once(&margin.engine).await.expect("a check");
    assert_eq!((again.differences, again.repairs), (5, 0), "a job is on its way");
    margin.pass().await;
    margin.assert_equal().await;
    assert_eq!(
        margin.count("select count(*) from leasehold_internal.mirror_difference").await,
        0,
        "seen equal"
    );
    let last = mirror.check_once(&margin.engine).await.expect("a check");
    assert!(last.is_equal() && last.equal_as_of > report.equal_as_of);
    let published =
        "select count(*) from leasehold_internal.mirror where differences = 0 and rows_compared = 50
                      and oldest_difference is null and repaired_total = 5 and rounds = 4";
    assert_eq!(margin.count(published).await, 1);
}

#[tokio::test]
async fn many_ghosts_are_listed_and_repaired_in_bounded_ranges() {
    let margin = Margin::new().await;
    margin.write(&["a", "n", "zz"]).await;
    margin.pass().await;
    // All ghosts are in one gap between two rows.
    for n in 0..12_000 {
        margin.target.tamper(&format!("n ghost {n:05}"), 3, Some(json!({})));
    }
    let report = margin.check().await;
    assert_eq!((report.rows, report.differences, report.repairs), (3, 12_000, 12_000));
    assert_eq!(report.ranges, 2, "a range ended where the list did");
    assert_eq!(
        margin.count("select count(*) from leasehold_internal.mirror_difference").await,
        12_000
    );
    margin.pass().await;
    margin.assert_equal().await;
    assert!(margin.check().await.is_equal());
    assert_eq!(margin.count("select count(*) from leasehold_internal.mirror_difference").await, 0);
}

#[tokio::test]
async fn f8_check_finds_rows_of_a_late_commit() {
    let margin = Margin::new().await;
    margin.write(&["a", "c"]).await;
    margin.pass().await;
    let slow = margin.database.connect_directly().await;
    slow.batch_execute("begin; insert into margin.note (id) values ('b')").await.expect("begun");
    assert!(margin.check().await.is_equal(), "it is not there yet");
    slow.batch_execute("set session_replication_role = replica").await.expect("no triggers");
    slow.batch_execute("insert into margin.note (id, version) values ('bb', 1); commit")
        .await
        .expect("over");
    margin.sql("delete from leasehold.job").await;
    let report = margin.check().await;
    assert_eq!((report.differences, report.repairs), (2, 2), "both, although no job names them");
    margin.pass().await;
    margin.assert_equal().await;
}

#[tokio::test]
async fn f9_check_ignores_rows_that_change_during_the_check() {
    let margin = Margin::new().await;
    margin.write_many(1, 30).await;
    margin.pass().await;
    // Stops between the first and the second comparison, for as long as the test takes.
    let (store, barrier) = StopsAt::new(&margin.target, Call::Held, 1);
    let mirror = bare().limit(Duration::from_secs(600)).target(store);
    // The rows are changed and written, but the check reads a store that shows nothing new yet.
    margin.target.faults(|faults| faults.lag = true);
    margin.write(&["during"]).await;
    margin.sql("delete from margin.note where id = 'n00007'").await;
    let checking = tokio::spawn({
        let (mirror, engine) = (mirror.clone(), margin.engine.clone());
        async move { mirror.check_once(&engine).await.expect("a check") }
    });
    barrier.reached().await;
    margin.target.faults(|faults| faults.lag = false);
    margin.pass().await;
    barrier.open();
    let report = checking.await.expect("a check");
    assert_eq!((report.differences, report.repairs), (0, 0), "{report:?}");
    margin.assert_equal().await;
    assert_eq!(margin.target.history("during").len(), 1);
}

#[tokio::test]
async fn f9_rows_of_a_large_change_whose_jobs_wait_get_no_second_job() {
    let margin = Margin::new().await;
    margin.write_many(1, 300).await;
    margin.pass().await;
    margin.sql("update margin.note set body = 'second'").await;
    assert_eq!(margin.jobs().await, 300);
    // One of the jobs is lost: only this row has no job on its way.
    margin.sql("delete from leasehold.job where kwargs ->> 'key' = 'n00042'").await;
    let report = margin.check().await;
    assert_eq!((report.differences, report.repairs), (300, 1), "{report:?}");
    assert_eq!(margin.jobs().await, 300);
    margin.pass().await;
    margin.assert_equal().await;
    assert_eq!(margin.count("select count(*) from leasehold_internal.mirror_difference").await, 0);
}

#[tokio::test]
async fn differences_are_removed_within_their_range_only() {
    let margin = Margin::new().await;
    let note = "insert into leasehold_internal.mirror_difference (mirror, key, kind)
                select 'notes', k, 'stale' from unnest(array['a', 'b', 'c', 'd', 'e']) k";
    for (range, left) in [
        ("null, 'b', '{}'", "c,d,e"),
        ("'a', 'c', '{}'", "a,d,e"),
        ("'c', null, '{}'", "a,b,c"),
        ("null, null, '{}'", ""),
        ("'a', 'd', array['c', 'x']", "a,c,e"),
    ] {
        margin.sql(&format!("delete from leasehold_internal.mirror_difference; {note}")).await;
        margin
            .sql(&format!(
                "select leasehold_internal.mirror_equal('notes', {range}, clock_timestamp())"
            ))
            .await;
        let sql = "select coalesce(string_agg(key, ',' order by key), '') \
                   from leasehold_internal.mirror_difference";
        let row = margin.client.query_one(sql, &[]).await.expect("what is left");
        assert_eq!(row.get::<_, String>(0), left, "{range}");
    }
}

#[tokio::test]
async fn f14_check_repairs_a_store_restored_from_an_old_copy() {
    let margin = Margin::new().await;
    margin.write_many(1, 200).await;
    margin.pass().await;
    let old = margin.target.snapshot();
    margin.write_many(201, 100).await;
    margin.sql("update margin.note set body = 'x' where id < 'n00050'").await;
    margin.sql("delete from margin.note where id between 'n00100' and 'n00120'").await;
    margin.pass().await;
    margin.assert_equal().await;
    margin.target.rewind(&old);
    let report = margin.check().await;
    assert_eq!(report.differences, 100 + 49 + 21);
    margin.pass().await;
    margin.assert_equal().await;
    assert!(margin.check().await.is_equal());
}

#[tokio::test]
async fn check_finds_rows_older_than_the_mirror() {
    let margin = Margin::new().await;
    margin.sql("alter table margin.note disable trigger user").await;
    margin.write_many(1, 40).await;
    margin.sql("alter table margin.note enable trigger user").await;
    assert_eq!(margin.check().await.differences, 40);
    margin.pass().await;
    margin.assert_equal().await;
    margin.sql("truncate margin.note").await;
    assert_eq!(margin.check().await.differences, 40, "a table that was emptied");
    margin.pass().await;
    margin.assert_equal().await;
}

#[tokio::test]
async fn refused_document_stays_a_difference_without_more_jobs() {
    let margin = Margin::new().await;
    margin.target.faults(|faults| {
        faults.items.insert("a".into(), ItemError::Refused("no such field".into()));
    });
    margin.write(&["a", "b"]).await;
    margin.pass().await;
    for _ in 0..5 {
        assert_eq!(margin.check().await.differences, 1);
        // The repair counts as less than a minute ago, however slow this machine is.
        margin
            .sql("update leasehold_internal.mirror_difference set repaired_at = now() + interval '1 hour'")
            .await;
        margin.pass().await;
    }
    assert_eq!(
        margin.count("select count(*) from leasehold_internal.dead_job").await,
        2,
        "one repair was tried"
    );
    margin
        .sql("update leasehold_internal.mirror_difference set repaired_at = now() - interval '2 minutes'")
        .await;
    assert_eq!(margin.check().await.repairs, 1, "and another one a while later");
    assert_eq!(
        margin
            .count("select count(*) from leasehold_internal.mirror where equal_as_of is null")
            .await,
        1
    );
}

#[tokio::test]
async fn changes_since_the_start_of_a_round_are_not_differences() {
    let margin = Margin::new().await;
    margin.write(&["a"]).await;
    margin.pass().await;
    // A note is saved half-way through a round; its job is not due yet.
    margin.sql("update leasehold_internal.mirror set check_after = 'Z', round_started_at = now() - interval '1 second'").await;
    margin.write(&["b"]).await;
    margin.sql("update leasehold.job set scheduled_at = now() + interval '1 hour'").await;
    // The next round, which would find a difference, is far away.
    let mut worker = run(margin
        .engine
        .worker()
        .queue("other", 1)
        .mirror(margin.mirror().check_every(Duration::from_secs(3600))));
    let over = |event: &Event| match event {
        Event::MirrorChecked { differences, round_over: true, .. } => Some(*differences),
        _ => None,
    };
    let _ = wait_for(&mut worker.events, over).await;
    worker.stop().await;
    let noted = "select count(*) from leasehold_internal.mirror_difference";
    assert_eq!(margin.count(noted).await, 0);
    margin.due().await;
    assert_eq!(margin.pass().await.completed, 1, "b follows");
    margin.assert_equal().await;
}

#[tokio::test]
async fn workers_share_one_round_and_publish_it() {
    let margin = Margin::new().await;
    margin.write_many(1, 95).await;
    margin.pass().await;
    let mirror = || margin.mirror().range(10).check_every(Duration::from_millis(1));
    let mut workers: Vec<_> =
        (0..3).map(|_| run(margin.engine.worker().mirror(mirror()))).collect();
    let whole = "select count(*) from leasehold_internal.mirror where rounds >= 2 and rows_compared = 95 and equal_as_of is not null";
    until("two rounds", async || margin.count(whole).await == 1).await;
    margin.target.tamper("n00033", 1, None);
    until("it is repaired", async || margin.target.find("n00033").is_some()).await;
    until("and seen", async || {
        margin.count("select count(*) from leasehold_internal.mirror_difference").await == 0
    })
    .await;
    for worker in workers.drain(..) {
        worker.stop().await;
    }
    margin.assert_equal().await;
}

#[tokio::test]
async fn range_of_a_dead_worker_is_taken_by_another_worker() {
    let margin = Margin::new().await;
    margin.write(&["a"]).await;
    margin.pass().await;
    let take = "select count(*) from leasehold_internal.claim_check('notes')";
    assert_eq!(margin.count(take).await, 1);
    assert_eq!(margin.count(take).await, 0, "another worker has the range");
    margin
        .sql("update leasehold_internal.mirror set check_busy_until = now() - interval '1 second'")
        .await;
    let token = margin.count("select token from leasehold_internal.claim_check('notes')").await;
    let end = |token: i64| {
        format!(
            "select leasehold_internal.end_check('notes', {token}, null, 1, 0, interval '0')::int"
        )
    };
    assert_eq!(margin.count(&end(token - 1)).await, 0, "a worker that lost its range ends nothing");
    assert_eq!(margin.count(&end(token)).await, 1);
}

#[tokio::test]
async fn check_proves_nothing_while_the_store_is_down() {
    let margin = Margin::new().await;
    margin.write(&["a"]).await;
    margin.pass().await;
    let equal = margin.check().await.equal_as_of;
    margin.target.faults(|faults| faults.down = true);
    assert!(margin.mirror().check_once(&margin.engine).await.is_err());
    margin.target.faults(|faults| faults.down = false);
    let kept = margin
        .client
        .query_one("select equal_as_of from leasehold_internal.mirror", &[])
        .await
        .expect("a row");
    assert_eq!(kept.get::<_, Option<jiff::Timestamp>>(0), equal);
}

#[tokio::test(flavor = "multi_thread")]
async fn d14_check_that_keeps_failing_is_reported_and_stops_no_purge() {
    let margin = Margin::new().await;
    margin
        .sql("alter function leasehold_internal.claim_check(text) rename to claim_check_away")
        .await;
    let mut worker = run(margin.engine.worker().mirror(margin.mirror()));
    let error = wait_for(&mut worker.events, |event| match event {
        Event::DutyFailing { duty, error, .. } if duty == "check mirror notes" => {
            Some(error.clone())
        }
        _ => None,
    })
    .await;
    assert!(error.contains("claim_check"), "{error}");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c25_old_deletions_are_forgotten_while_check_and_marks_fail() {
    let margin = Margin::new().await;
    margin
        .sql("alter function leasehold_internal.claim_check(text) rename to claim_check_away")
        .await;
    margin
        .sql(
            "insert into leasehold_internal.mirror_gone (mirror, key, version, gone_at) \
             values ('notes', 'a', 1, now() - interval '25 hours')",
        )
        .await;
    let holder = margin.database.connect_directly().await;
    crate::fixture::sql(&holder, "begin; lock table leasehold_internal.idempotency_key").await;
    let worker = run(margin.engine.worker().mirror(margin.mirror()));
    let gone = "select count(*) from leasehold_internal.mirror_gone";
    until("it is forgotten", async || margin.count(gone).await == 0).await;
    worker.stop().await;
    crate::fixture::sql(&holder, "commit").await;
}

#[tokio::test]
async fn c25_marks_of_a_mirror_are_pruned_with_the_keys() {
    let margin = Margin::new().await;
    margin.write(&["a", "b", "c"]).await;
    let marks = "select count(*) from leasehold_internal.idempotency_key";
    let prune = "select removed from leasehold_internal.prune_kind('keys')";
    assert_eq!((margin.count(marks).await, margin.count(prune).await), (3, 0), "their jobs wait");
    // The next call does not read them again.
    let due = "select count(*) from leasehold_internal.idempotency_key \
               where greatest(holds_until, recheck_at) < statement_timestamp()";
    assert_eq!(margin.count(due).await, 0);
    margin.pass().await;
    margin.sql("update leasehold_internal.idempotency_key set recheck_at = now()").await;
    assert_eq!((margin.count(prune).await, margin.count(marks).await), (3, 0));
}
