//! A pass: reads, writes, reads again, and completes only the jobs whose rows it saw in the store.

use leasehold::mirror::{ItemError, Mirror};
use leasehold_testing::ScriptedTarget;

use super::fixture::{Margin, bare};
use crate::fixture::{run, until};
use crate::logs::Logs;

#[tokio::test]
async fn pass_writes_saved_changed_and_deleted_rows_and_completes_their_jobs() {
    let margin = Margin::new().await;
    margin.write(&["a", "b", "c"]).await;
    assert_eq!(margin.jobs().await, 3, "one job per row");
    assert_eq!(margin.pass().await.completed, 3);
    margin.assert_equal().await;
    margin.sql("update margin.note set body = 'second' where id = 'a'").await;
    margin.sql("delete from margin.note where id = 'b'").await;
    assert_eq!(margin.pass().await.completed, 2);
    margin.assert_equal().await;
    let [(first, false), (second, false)] = margin.target.history("a")[..] else {
        panic!("{:?}", margin.target.history("a"))
    };
    assert!(second > first);
    let [(written, false), (gone, true)] = margin.target.history("b")[..] else {
        panic!("{:?}", margin.target.history("b"))
    };
    assert!(gone > written, "a deletion is a version");
    assert_eq!(margin.jobs().await, 0);
}

#[tokio::test]
async fn pass_does_not_rewrite_a_row_that_the_store_has() {
    let margin = Margin::new().await;
    margin.write(&["a"]).await;
    margin.pass().await;
    margin.sql("select leasehold_internal.reindex_mirror('notes', array['a'])").await;
    assert_eq!(margin.pass().await.completed, 1);
    assert_eq!(margin.target.history("a").len(), 1);
    margin
        .sql("select leasehold_internal.reindex_mirror('notes', array['a'], force => true)")
        .await;
    assert_eq!(margin.pass().await.completed, 1);
    let [(first, false), (again, false)] = margin.target.history("a")[..] else {
        panic!("{:?}", margin.target.history("a"))
    };
    assert_eq!(first, again, "asked for");
    let counted =
        "select coalesce(sum(n), 0) from leasehold_internal.tally where subject = 'notes' and ";
    for (word, n) in [("completed_up_to_date", 1), ("synced_missing", 1), ("forced", 1)] {
        assert_eq!(margin.count(&format!("{counted} what = '{word}'")).await, n, "{word}");
    }
    assert_eq!(margin.count(&format!("{counted} tag = 'mirror.notes'")).await, 1);
    assert_eq!(margin.count(&format!("{counted} tag = 'reindex'")).await, 2);
}

#[tokio::test]
async fn f5_written_row_keeps_its_job_until_the_store_shows_it() {
    let margin = Margin::new().await;
    margin.keep_deferred().await;
    margin.target.faults(|faults| faults.lag = true);
    margin.write(&["a"]).await;
    let first = margin.pass().await;
    assert_eq!((first.completed, first.deferred), (0, 1), "written, not seen");
    let waits = "select count(*) from leasehold.job where attempts = 0 and scheduled_at > now()
                  and last_error like 'written%'";
    assert_eq!(margin.count(waits).await, 1, "no attempt is used, and it waits");
    for _ in 0..3 {
        margin.due().await;
        assert_eq!(margin.pass().await.completed, 0);
    }
    margin.target.refresh();
    margin.due().await;
    assert_eq!(margin.pass().await.completed, 1);
    margin.target.faults(|faults| faults.lag = false);
    margin.assert_equal().await;
}

#[tokio::test]
async fn f3_retried_deletion_does_not_delete_a_row_that_was_saved_again() {
    let margin = Margin::new().await;
    margin.keep_deferred().await;
    // Above the clock: otherwise the clock alone would give the returning row a high enough version.
    margin.sql("insert into margin.note (id, version) values ('a', 9000000000000000)").await;
    margin.pass().await;
    margin.target.faults(|faults| faults.down = true);
    margin.sql("delete from margin.note where id = 'a'").await;
    assert_eq!(margin.pass().await.deferred, 1, "the deletion fails");
    margin.write(&["a"]).await;
    margin.target.faults(|faults| faults.down = false);
    margin.due().await;
    margin.pass().await;
    margin.assert_equal().await;
    let [(before, false), (after, false)] = margin.target.history("a")[..] else {
        panic!("{:?}", margin.target.history("a"))
    };
    assert_eq!(after, before + 2, "above the deletion");
    assert_eq!(margin.jobs().await, 0);
}

#[tokio::test]
async fn f11_refused_document_is_buried_with_the_reason_and_stops_no_other() {
    let margin = Margin::new().await;
    margin.target.faults(|faults| {
        faults.items.insert("b".into(), ItemError::Refused("no such field".into()));
    });
    margin.write(&["a", "b", "c"]).await;
    let tally = margin.pass().await;
    assert_eq!((tally.completed, tally.dead), (2, 1));
    let dead = "select count(*) from leasehold_internal.dead_job
                 where cause = 'rejected' and last_error = 'no such field' and kwargs->>'key' = 'b'";
    assert_eq!(margin.count(dead).await, 1);
    // The next change of the row is a new chance.
    margin.target.faults(|faults| faults.items.clear());
    margin.sql("update margin.note set body = 'better' where id = 'b'").await;
    assert_eq!(margin.pass().await.completed, 1);
    margin.assert_equal().await;
}

#[tokio::test]
async fn f11_busy_document_waits_longer_each_time_and_is_never_buried() {
    let margin = Margin::new().await;
    margin.target.faults(|faults| {
        faults.items.insert("a".into(), ItemError::Busy("come back later".into()));
    });
    margin.write(&["a"]).await;
    let mut waits = Vec::new();
    for _ in 0..30 {
        let tally = margin.pass().await;
        // More than one snooze, if the pass took longer than the wait.
        assert!(tally.completed == 0 && tally.deferred >= 1, "{tally:?}");
        let wait = "select extract(epoch from scheduled_at - now()) from leasehold.job";
        waits.push(margin.count(wait).await);
        margin.due().await;
    }
    assert!(waits[6] > waits[0] * 8, "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= 3600 * 12 / 10), "{waits:?}");
    margin.target.faults(|faults| faults.items.clear());
    assert_eq!(margin.pass().await.completed, 1, "after thirty failures");
    margin.assert_equal().await;
}

#[tokio::test]
async fn row_whose_document_fails_does_not_stop_other_rows() {
    let broken = "select n.id, n.version,
                         jsonb_build_object('body', 1 / (case when n.id = 'b' then 0 else 1 end))
                    from margin.note n where n.id = any($1)";
    let margin = Margin::new().await;
    margin.keep_deferred().await;
    let mirror = margin.mirror().document(broken);
    margin.write(&["a", "b", "c", "d"]).await;
    let tally = mirror.pass_once(&margin.engine).await.expect("a pass");
    assert_eq!((tally.completed, tally.deferred), (3, 1));
    let why = "select count(*) from leasehold.job where last_error like '%division by zero%'";
    assert_eq!(margin.count(why).await, 1);
}

#[tokio::test]
async fn job_without_a_key_of_the_table_is_buried_alone() {
    let margin = Margin::new().await;
    margin.write(&["a"]).await;
    margin
        .sql("insert into leasehold.job (queue, name, kwargs) values ('notes', 'mirror.notes', '{\"key\": null}')")
        .await;
    let tally = margin.pass().await;
    assert_eq!((tally.completed, tally.dead), (1, 1));
}

#[tokio::test]
async fn pass_writes_a_row_with_many_jobs_once() {
    let margin = Margin::new().await;
    margin.write(&["a"]).await;
    margin
        .sql("select leasehold_internal.reindex_mirror('notes', array['a', 'a', 'a', 'a'])")
        .await;
    assert_eq!(margin.pass().await.completed, 5);
    assert_eq!(margin.target.history("a").len(), 1);
}

#[tokio::test]
async fn row_is_removed_while_its_document_query_omits_it() {
    let margin = Margin::new().await;
    margin.write(&["a"]).await;
    margin.pass().await;
    // Another table decides it, so no version grows.
    margin.sql("update margin.author set hidden = true").await;
    margin.sql("select leasehold_internal.reindex_mirror('notes', array['a'])").await;
    margin.pass().await;
    assert!(margin.target.find("a").is_some_and(|held| held.deleted));
    assert!(margin.check().await.is_equal());
    margin.sql("update margin.author set hidden = false").await;
    margin.sql("select leasehold_internal.reindex_mirror('notes', array['a'])").await;
    margin.pass().await;
    margin.assert_equal().await;
}

#[tokio::test]
async fn job_inserted_by_hand_is_worked_from_the_default_queue() {
    let margin = Margin::with(&bare().job("index", "note_id")).await;
    margin.sql("alter table margin.note disable trigger user").await;
    margin.write(&["a"]).await;
    margin.sql("alter table margin.note enable trigger user").await;
    margin
        .sql(
            "set search_path = leasehold;
             insert into job (name, scheduled_at, priority, tag, kwargs)
             values ('index', now(), 1, 'storage.create_annotation', '{\"note_id\": \"a\"}')",
        )
        .await;
    let mirror = margin.mirror().job("index", "note_id");
    let worker = run(margin.engine.worker().queue("default", 100).mirror(mirror));
    until("the note is there", async || margin.target.find("a").is_some()).await;
    until("its job is over", async || margin.jobs().await == 0).await;
    worker.stop().await;
    margin.assert_equal().await;
}

#[tokio::test]
async fn job_gets_tag_and_priority_from_the_transaction_of_the_change() {
    let margin = Margin::new().await;
    margin
        .sql(
            "begin; set local leasehold.tag = 'rename_user'; set local leasehold.priority = '100';
             insert into margin.note (id) values ('a'); commit;
             insert into margin.note (id) values ('b')",
        )
        .await;
    let job = "select count(*) from leasehold.job where kwargs->>'key' =";
    assert_eq!(
        margin.count(&format!("{job} 'a' and tag = 'rename_user' and priority = 100")).await,
        1
    );
    assert_eq!(
        margin.count(&format!("{job} 'b' and tag = 'mirror.notes' and priority = 1")).await,
        1
    );
}

#[tokio::test]
async fn numbers_and_uuids_are_keys_too() {
    let margin = Margin::new().await;
    margin
        .sql(
            "create table margin.page (id bigint primary key, title text);
             create table margin.mark (id uuid primary key, word text);",
        )
        .await;
    let target = ScriptedTarget::new();
    let store = std::sync::Arc::new(target.clone());
    let pages = Mirror::new("pages", "margin.page")
        .document("select id, version, to_jsonb(p) from margin.page p where id = any($1::bigint[])")
        .verify_after(std::time::Duration::ZERO)
        .range(10)
        .target(store.clone());
    let marks = Mirror::new("marks", "margin.mark")
        .document(
            "select id::text, version, to_jsonb(m) from margin.mark m where id = any($1::uuid[])",
        )
        .verify_after(std::time::Duration::ZERO)
        .target(store);
    let mut client = margin.database.connect_directly().await;
    pages.install(&mut client).await.expect("installed");
    marks.install(&mut client).await.expect("installed");
    margin.sql("insert into margin.page select n, 'p' from generate_series(0, 24) n").await;
    let id = "936da01f-9abd-4d9d-80c7-02af85c822a8";
    margin.sql(&format!("insert into margin.mark values ('{id}', 'm')")).await;
    assert_eq!(pages.pass_once(&margin.engine).await.expect("a pass").completed, 25);
    assert!(target.find("0000000000000000024").is_some(), "in the order of numbers");
    margin.sql("delete from margin.page where id = 7").await;
    pages.pass_once(&margin.engine).await.expect("a pass");
    assert!(pages.check_once(&margin.engine).await.expect("a check").is_equal());
    assert_eq!(marks.pass_once(&margin.engine).await.expect("a pass").completed, 1);
    assert!(target.find(id).is_some());
    let negative = margin.client.batch_execute("insert into margin.page values (-1, 'x')").await;
    let refused =
        negative.expect_err("negative").as_db_error().expect("by us").message().to_owned();
    assert!(refused.contains("negative"), "{refused}");
}

#[tokio::test]
async fn a36_counted_deferral_is_a_warning_in_the_log() {
    let margin = Margin::new().await;
    let busy = ItemError::Busy("the shard moves".into());
    margin.target.faults(|faults| drop(faults.items.insert("a".into(), busy)));
    margin.write(&["a"]).await;
    let logs = Logs::collect();
    margin.pass().await;
    assert!(logs.has("WARN", "attempt 1 failed, next in"), "{}", logs.text());
    assert!(logs.has("WARN", "the shard moves"), "{}", logs.text());
}
