//! Versions: the newer one stays, and they grow in the order of commits.

use std::time::Duration;

use super::fixture::Margin;
use crate::fixture::until;

#[tokio::test]
async fn f1_late_write_does_not_replace_a_newer_one() {
    let margin = Margin::new().await;
    margin.keep_deferred().await;
    margin.write(&["a"]).await;
    margin.target.faults(|faults| faults.delay_writes = true);
    assert_eq!(margin.pass().await.deferred, 1, "the first write is under way");
    assert_eq!(margin.target.delayed(), 1);
    margin.target.faults(|faults| faults.delay_writes = false);
    margin.sql("update margin.note set body = 'second' where id = 'a'").await;
    margin.due().await;
    assert_eq!(margin.pass().await.completed, 1);
    margin.target.land(false);
    margin.assert_equal().await;
    assert!(margin.target.fallen().is_empty());
    assert!(margin.check().await.is_equal());
}

#[tokio::test]
async fn f1_check_finds_a_store_that_ignores_versions() {
    let margin = Margin::new().await;
    margin.keep_deferred().await;
    margin.write(&["a"]).await;
    margin.target.faults(|faults| faults.delay_writes = true);
    margin.pass().await;
    margin.target.faults(|faults| {
        faults.delay_writes = false;
        faults.ignore_versions = true;
    });
    margin.sql("update margin.note set body = 'second' where id = 'a'").await;
    margin.due().await;
    assert_eq!(margin.pass().await.completed, 1);
    margin.target.land(false);
    assert_eq!(margin.target.fallen(), ["a"], "what versions are for");
    assert_eq!(margin.check().await.differences, 1);
    margin.pass().await;
    margin.assert_equal().await;
}

#[tokio::test]
async fn f2_deletion_survives_earlier_writes_that_arrive_later() {
    let margin = Margin::new().await;
    margin.keep_deferred().await;
    margin.write(&["a"]).await;
    margin.target.faults(|faults| faults.delay_writes = true);
    margin.pass().await;
    margin.target.faults(|faults| faults.delay_writes = false);
    // The store has never seen the document; the deletion is still written.
    margin.sql("delete from margin.note where id = 'a'").await;
    margin.due().await;
    assert_eq!(margin.pass().await.completed, 1);
    margin.target.land(false);
    margin.assert_equal().await;
    assert!(matches!(margin.target.history("a")[..], [(_, true)]), "only the deletion was taken");
    // The tombstone is kept for a day, and the store forgets it first.
    assert_eq!(margin.mirror().purge_once(&margin.engine).await.expect("a purge"), 0);
    assert_eq!(margin.target.deletions(), 1);
    margin
        .sql("update leasehold_internal.mirror_gone set gone_at = now() - interval '25 hours'")
        .await;
    margin.target.faults(|faults| faults.down = true);
    assert!(margin.mirror().purge_once(&margin.engine).await.is_err());
    assert_eq!(
        margin.count("select count(*) from leasehold_internal.mirror_gone").await,
        1,
        "kept"
    );
    margin.target.faults(|faults| faults.down = false);
    assert_eq!(margin.mirror().purge_once(&margin.engine).await.expect("a purge"), 1);
    assert_eq!(margin.target.deletions(), 0);
    assert_eq!(margin.count("select count(*) from leasehold_internal.mirror_gone").await, 0);
}

#[tokio::test]
async fn f2_check_repairs_a_store_that_forgets_deletions() {
    let margin = Margin::new().await;
    margin.keep_deferred().await;
    margin.write(&["a"]).await;
    margin.target.faults(|faults| faults.delay_writes = true);
    margin.pass().await;
    margin.target.faults(|faults| faults.delay_writes = false);
    margin.sql("delete from margin.note where id = 'a'").await;
    margin.due().await;
    margin.pass().await;
    assert_eq!(margin.target.deletions(), 1);
    // The store forgets the deletion before the write that was under way arrives.
    margin.target.faults(|faults| faults.forget_after = Some(Duration::ZERO));
    margin.target.land(false);
    margin.target.faults(|faults| faults.forget_after = None);
    assert_eq!(margin.target.documents().len(), 1, "a ghost");
    let report = margin.check().await;
    assert_eq!((report.differences, report.repairs), (1, 1));
    let noted = "select count(*) from leasehold_internal.mirror_difference where key = 'a' and kind = 'ghost'";
    assert_eq!(margin.count(noted).await, 1);
    margin.pass().await;
    margin.assert_equal().await;
    assert!(margin.check().await.is_equal());
    assert_eq!(margin.count("select count(*) from leasehold_internal.mirror_difference").await, 0);
}

#[tokio::test]
async fn f13_versions_grow_in_the_order_of_commits() {
    let margin = Margin::new().await;
    margin.write(&["a"]).await;
    let mut writers = Vec::new();
    for writer in 0..8 {
        let client = margin.database.connect_directly().await;
        writers.push(tokio::spawn(async move {
            let mut seen = Vec::new();
            for n in 0..25 {
                // A version that the statement sets itself is overruled.
                let sql = format!(
                    "update margin.note set body = '{writer} {n}', version = 1 where id = 'a' returning version"
                );
                seen.push(client.query_one(&sql, &[]).await.expect("changed").get::<_, i64>(0));
            }
            seen
        }));
    }
    let mut all = Vec::new();
    for writer in writers {
        let seen = writer.await.expect("a writer");
        assert!(seen.is_sorted(), "{seen:?}");
        all.extend(seen);
    }
    let changes = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!((changes, all.len()), (200, 200), "each change has a version of its own");
    let last = margin.count("select version from margin.note").await;
    assert_eq!(all.last(), Some(&last), "and the last one the highest");
}

#[tokio::test]
async fn f13_row_saved_again_starts_above_its_deletion_even_after_waiting_for_it() {
    let margin = Margin::new().await;
    // Above the clock: otherwise the clock alone would give it a high enough version.
    margin.sql("insert into margin.note (id, version) values ('a', 9000000000000000)").await;
    margin.sql("update margin.note set body = 'x'").await;
    let other = margin.database.connect_directly().await;
    margin.sql("begin; delete from margin.note where id = 'a'").await;
    let waiting = tokio::spawn(async move {
        let sql = "insert into margin.note (id, body) values ('a', 'again')";
        other.batch_execute(sql).await.expect("inserted");
    });
    let looker = margin.database.connect_directly().await;
    until("the insert waits", async || {
        let sql = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'
                    and query like 'insert into margin.note%' and datname = current_database()";
        crate::fixture::count(&looker, sql).await == 1
    })
    .await;
    margin.sql("commit").await;
    waiting.await.expect("inserted");
    let gone = margin.count("select version from leasehold_internal.mirror_gone").await;
    assert_eq!(gone, 9_000_000_000_000_002, "above the change");
    assert_eq!(margin.count("select version from margin.note").await, gone + 1);
    margin.pass().await;
    margin.assert_equal().await;
}

#[tokio::test]
async fn restored_table_gets_versions_above_those_of_the_store() {
    let margin = Margin::new().await;
    margin.write(&["a", "b", "c"]).await;
    margin.sql("update margin.note set body = 'x'; update margin.note set body = 'y'").await;
    margin.pass().await;
    // As after a restore: versions fall, rows that were written since are gone, and no trigger fires.
    margin
        .sql(
            "alter table margin.note disable trigger user;
             update margin.note set version = 1, body = 'old' where id = 'a';
             delete from margin.note where id = 'c';
             alter table margin.note enable trigger user",
        )
        .await;
    let report = margin.check().await;
    assert_eq!(report.differences, 2);
    margin.pass().await;
    margin.assert_equal().await;
    assert!(margin.target.fallen().is_empty(), "no version fell");
    assert!(margin.check().await.is_equal());
}

#[tokio::test]
async fn f13_writes_after_a_restore_are_above_all_earlier_writes() {
    let margin = Margin::new().await;
    margin.write(&["edited", "deleted", "gone"]).await;
    margin.sql("create table margin.backup as select * from margin.note where id <> 'gone'").await;
    margin.sql("update margin.note set body = 'lost with the restore'").await;
    margin.write(&["reused"]).await;
    margin.pass().await;
    margin.assert_equal().await;
    // Back to the backup, as a restore does it: no trigger fires.
    margin
        .sql(
            "alter table margin.note disable trigger user;
             truncate margin.note; insert into margin.note select * from margin.backup;
             alter table margin.note enable trigger user",
        )
        .await;
    // As many changes as were lost: a counter would be where it was.
    margin.sql("update margin.note set body = 'after it' where id = 'edited'").await;
    margin.sql("delete from margin.note where id = 'deleted'").await;
    margin.sql("insert into margin.note (id, body) values ('reused', 'other')").await;
    margin.pass().await;
    let found = margin.target.documents();
    let body = |key: &str| {
        let one = found.iter().find(|(of, ..)| of == key);
        one.map(|(_, _, document)| document["body"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(body("edited").as_deref(), Some("after it"));
    assert_eq!(body("reused").as_deref(), Some("other"));
    assert_eq!(body("deleted"), None);
    // The check finds the rest.
    assert_eq!(margin.check().await.differences, 1, "the row that the backup did not have");
    margin.pass().await;
    margin.assert_equal().await;
    assert!(margin.target.fallen().is_empty(), "no version fell");
}

#[tokio::test]
async fn higher_version_of_the_caller_is_kept() {
    let margin = Margin::new().await;
    margin.sql("insert into margin.note (id, version) values ('a', 9000000000000000)").await;
    assert_eq!(margin.count("select version from margin.note").await, 9_000_000_000_000_000);
    margin.sql("update margin.note set body = 'x'").await;
    assert_eq!(margin.count("select version from margin.note").await, 9_000_000_000_000_001);
}

#[tokio::test]
async fn change_of_the_key_of_a_mirrored_row_is_refused() {
    let margin = Margin::new().await;
    margin.write(&["a"]).await;
    let moved = margin.client.batch_execute("update margin.note set id = 'b'").await;
    let error = moved.expect_err("refused");
    let refusal = error.as_db_error().expect("by us");
    assert!(refusal.hint().is_some_and(|hint| hint.contains("Delete the row")), "{refusal:?}");
}
