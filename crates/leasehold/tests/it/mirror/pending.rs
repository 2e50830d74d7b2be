//! What a job that waits says about a difference.

use serde_json::json;

use super::notes::Margin;

/// Notes a difference in the document of `a` as a round finds it that began a moment ago, and says
/// how many count.
async fn noted(margin: &Margin, began: jiff::Timestamp) -> (i32, i32) {
    let sql = "select different, made from leasehold.mirror_differs('notes', $1, array['a'],
               array['stale'], array[2::bigint], array[1::bigint])";
    let row = margin.client.query_one(sql, &[&began]).await.expect("noted");
    (row.get(0), row.get(1))
}

async fn now(margin: &Margin) -> jiff::Timestamp {
    margin.client.query_one("select clock_timestamp()", &[]).await.expect("a time").get(0)
}

#[tokio::test]
async fn a_change_from_before_the_round_is_a_difference_whatever_changed_since() {
    let margin = Margin::new().await;
    margin.write(&["a"]).await;
    // Its job runs, for long.
    margin.sql("select leasehold.claim('somebody', 'notes')").await;
    let began = now(&margin).await;
    margin.sql("update margin.note set body = 'x' where id = 'a'").await;
    assert_eq!(margin.jobs().await, 2);
    assert_eq!(noted(&margin, began).await, (1, 0), "and somebody is at it");
    margin.sql("delete from leasehold.job where held").await;
    margin.sql("delete from leasehold.mirror_difference").await;
    assert_eq!(noted(&margin, began).await, (0, 0), "the later one alone is no difference yet");
    // A statement that changes many rows leaves no marks.
    margin.sql("delete from leasehold.job; delete from leasehold.idempotency_key").await;
    margin.write_many(1, 101).await;
    margin.sql("update margin.note set body = 'y'").await;
    assert_eq!(noted(&margin, began).await, (0, 0));
    assert_eq!(noted(&margin, now(&margin).await).await, (1, 0));
}

#[tokio::test]
async fn a_row_that_is_only_to_be_looked_at_again_is_a_difference() {
    let margin = Margin::new().await;
    margin.write(&["a"]).await;
    margin.pass().await;
    let began = now(&margin).await;
    margin.sql("select leasehold.mirror_reindex('notes', array['a'])").await;
    margin.target.tamper("a", 1, Some(json!({})));
    assert_eq!(noted(&margin, began).await, (1, 0), "nothing changed, and no second job is needed");
    margin.pass().await;
    margin.assert_equal().await;
    assert_eq!(noted(&margin, began).await, (1, 1));
}
