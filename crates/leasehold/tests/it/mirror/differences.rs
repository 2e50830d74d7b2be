//! When a waiting job excuses a difference, and which check may strike one off.

use jiff::Timestamp;
use serde_json::json;

use super::fixture::Margin;

/// Records that the document of a key differs, as found by a round that began at `began`, with the
/// version that the store holds. Returns how many differences count, and how many jobs were made.
async fn noted(margin: &Margin, began: Timestamp, key: &str, kind: &str) -> (i32, i32) {
    let held = margin.target.find(key).map(|held| held.version);
    let sql = "select different, made from leasehold_internal.mirror_differs('notes', $1, array[$2::text],
               array[$3::text], array[9::bigint], array[$4::bigint])";
    let row = margin.client.query_one(sql, &[&began, &key, &kind, &held]).await.expect("noted");
    (row.get(0), row.get(1))
}

async fn now(margin: &Margin) -> Timestamp {
    margin.client.query_one("select clock_timestamp()", &[]).await.expect("a time").get(0)
}

async fn forget_differences(margin: &Margin) {
    margin.sql("delete from leasehold_internal.mirror_difference").await;
}

#[tokio::test]
async fn change_before_the_round_is_a_difference_despite_later_changes() {
    let margin = Margin::new().await;
    margin.write(&["a"]).await;
    margin.pass().await;
    margin.sql("update margin.note set body = 'w' where id = 'a'").await;
    // Its job runs for long.
    margin.sql("select leasehold.claim('w', 'notes')").await;
    let began = now(&margin).await;
    margin.sql("update margin.note set body = 'x' where id = 'a'").await;
    assert_eq!(margin.jobs().await, 2);
    assert_eq!(noted(&margin, began, "a", "stale").await, (1, 0), "and a worker has it");
    // A statement that changes many rows leaves no marks.
    forget_differences(&margin).await;
    margin.sql("delete from leasehold.job; delete from leasehold_internal.idempotency_key").await;
    margin.write_many(1, 101).await;
    margin.sql("update margin.note set body = 'x'").await;
    margin.pass().await;
    let began = now(&margin).await;
    margin.sql("update margin.note set body = 'y'").await;
    assert_eq!(noted(&margin, began, "a", "stale").await, (0, 0));
    let later = now(&margin).await;
    assert_eq!(noted(&margin, later, "a", "stale").await, (1, 0));
}

#[tokio::test]
async fn row_with_only_a_reindex_job_is_a_difference() {
    let margin = Margin::new().await;
    margin.write(&["a"]).await;
    margin.pass().await;
    let began = now(&margin).await;
    margin.sql("select leasehold_internal.reindex_mirror('notes', array['a'])").await;
    margin.target.tamper("a", 1, Some(json!({})));
    assert_eq!(
        noted(&margin, began, "a", "stale").await,
        (1, 0),
        "nothing changed, and no second job is needed"
    );
    margin.pass().await;
    margin.assert_equal().await;
    assert_eq!(noted(&margin, began, "a", "stale").await, (1, 1));
}

#[tokio::test]
async fn f15_row_without_an_earlier_change_is_a_difference_despite_later_changes() {
    let margin = Margin::new().await;
    margin.write(&["a"]).await;
    margin.write_many(1, 120).await;
    margin.pass().await;
    let old = margin.target.snapshot();
    // The job of this change is gone: buried, cancelled, or the store was set back behind it.
    margin.sql("update margin.note set body = 'second'").await;
    margin.pass().await;
    margin.target.rewind(&old);
    let began = now(&margin).await;
    margin.sql("update margin.note set body = 'third' where id = 'a'").await;
    assert_eq!(noted(&margin, began, "a", "stale").await, (1, 0), "the second is missing");
    forget_differences(&margin).await;
    margin.sql("update margin.note set body = 'fourth'").await;
    assert_eq!(noted(&margin, began, "a", "stale").await, (1, 0), "two changes are on their way");
    assert_eq!(noted(&margin, began, "n00007", "stale").await, (1, 0), "one of many at once");
    let published = "select count(*) from leasehold_internal.mirror where leasehold_internal.publish_check('notes', $1, 1, 0) >= $1";
    let row = margin.client.query_one(published, &[&began]).await.expect("published");
    assert_eq!(row.get::<_, i64>(0), 0, "not equal as of then");
    margin.pass().await;
    margin.assert_equal().await;
}

#[tokio::test]
async fn f15_row_is_excused_if_the_store_holds_the_version_before_its_change() {
    let margin = Margin::new().await;
    margin.write(&["a", "b", "c", "d"]).await;
    margin.pass().await;
    margin.sql("delete from margin.note where id = 'd'").await;
    margin.pass().await;
    let began = now(&margin).await;
    margin.sql("update margin.note set body = 'x' where id = 'a'").await;
    margin.sql("update margin.note set body = 'y' where id = 'a'").await;
    margin.sql("delete from margin.note where id = 'b'").await;
    margin.write(&["d", "new"]).await;
    for (key, kind) in [("a", "stale"), ("b", "ghost"), ("d", "missing"), ("new", "missing")] {
        assert_eq!(noted(&margin, began, key, kind).await, (0, 0), "{key}");
    }
    // A document that should have been gone before the round is not excused by a row that came since.
    margin.target.tamper("d", 1, Some(json!({})));
    assert_eq!(noted(&margin, began, "d", "stale").await, (1, 0));
    // Nor does a job that a trigger of an earlier release made: it does not record what was before.
    margin.sql("select leasehold_internal.mirror_changed('notes', array['c'])").await;
    assert_eq!(noted(&margin, began, "c", "stale").await, (1, 0));
}

#[tokio::test]
async fn f15_check_that_stalled_keeps_differences_that_another_noted_since() {
    let margin = Margin::new().await;
    let stalled = now(&margin).await;
    let note = "insert into leasehold_internal.mirror_difference (mirror, key, kind) values ('notes', 'a', 'stale')";
    margin.sql(note).await;
    let left = "select count(*) from leasehold_internal.mirror_difference";
    let equal = "select leasehold_internal.mirror_equal('notes', null, null, '{}', $1)";
    let seen = "select leasehold_internal.mirror_seen('notes', array['a'], $1)";
    for struck in [equal, seen] {
        margin.client.query(struck, &[&stalled]).await.expect("asked");
        assert_eq!(margin.count(left).await, 1, "it was noted after the look");
    }
    for struck in [equal, seen] {
        let looked = now(&margin).await;
        margin.client.query(struck, &[&looked]).await.expect("asked");
        assert_eq!(margin.count(left).await, 0);
        margin.sql(note).await;
    }
}

#[tokio::test]
async fn f15_round_begins_anew_when_the_store_searches_another_set() {
    let margin = Margin::new().await;
    margin.sql("select leasehold_internal.mirror_serves('notes', 'one')").await;
    let take = "select token, after, round_started_at from leasehold_internal.claim_check('notes')";
    let end = "select leasehold_internal.end_check('notes', $1, $2, 10, 0, interval '0')";
    let first = margin.client.query_one(take, &[]).await.expect("a range");
    let began: Timestamp = first.get(2);
    let ended =
        margin.client.query_one(end, &[&first.get::<_, i64>(0), &"m"]).await.expect("ended");
    assert!(ended.get::<_, bool>(0));
    let second = margin.client.query_one(take, &[]).await.expect("a range");
    assert_eq!(second.get::<_, Option<&str>>(1), Some("m"), "half of it is compared");
    margin.sql("select leasehold_internal.mirror_adopts('notes', 'one', 'two')").await;
    let none: Option<&str> = None;
    let ended = margin.client.query_one(end, &[&second.get::<_, i64>(0), &none]).await.expect("no");
    assert!(!ended.get::<_, bool>(0), "what it compared is lost");
    let third = margin.client.query_one(take, &[]).await.expect("a range");
    assert_eq!(third.get::<_, Option<&str>>(1), None, "from the start");
    assert!(third.get::<_, Timestamp>(2) > began);
    // An ordered check that began before proves nothing either; one that began afterwards does.
    let publish = "select leasehold_internal.publish_check('notes', $1, 10, 0)";
    for (began, equal) in [(began, false), (now(&margin).await, true)] {
        let row = margin.client.query_one(publish, &[&began]).await.expect("published");
        assert_eq!(row.get::<_, Option<Timestamp>>(0).is_some(), equal);
    }
}
