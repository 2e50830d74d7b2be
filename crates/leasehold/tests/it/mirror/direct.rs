//! The direct path: writes sooner than the jobs do, and never holds up a caller.

use std::time::{Duration, Instant};

use super::fixture::Margin;
use crate::fixture::until;

#[tokio::test]
async fn direct_path_writes_saved_changed_and_deleted_rows_at_once() {
    let margin = Margin::new().await;
    let mirror = margin.mirror().verify_after(Duration::from_secs(60));
    let direct = mirror.direct_writer(&margin.engine);
    margin.write(&["a", "b"]).await;
    direct.changed(["a", "b"]);
    until("both are there", async || margin.target.documents().len() == 2).await;
    margin.sql("update margin.note set body = 'x' where id = 'a'; delete from margin.note where id = 'b'").await;
    direct.changed(["a", "b"]);
    until("both are followed", async || direct.written() == 4).await;
    margin.assert_equal().await;
    assert_eq!(direct.dropped(), 0);
    // The jobs are still there, and only verify.
    assert_eq!(margin.pass().await.completed, 2);
    assert_eq!(margin.target.history("a").len(), 2);
}

#[tokio::test]
async fn direct_path_writes_concurrent_keys_together() {
    let margin = Margin::new().await;
    let every = Duration::from_secs(5);
    let direct = margin.mirror().direct_every(every).direct_writer(&margin.engine);
    margin.write(&["a"]).await;
    margin.write_many(1, 20).await;
    let began = Instant::now();
    direct.changed(["a"]);
    until("the first one is written at once", async || direct.written() == 1).await;
    for n in 1..=20 {
        direct.changed([format!("n{n:05}")]);
        // A writer that does not wait for more keys would take it now.
        tokio::task::yield_now().await;
    }
    until("the others follow", async || direct.written() == 21).await;
    // In one more call, or, if this machine stalled, in as many as there was time for.
    let calls = u32::try_from(margin.target.log().len()).unwrap();
    let passed = began.elapsed();
    assert!(every * (calls - 1) <= passed, "{calls} calls within {passed:?}");
    margin.assert_equal().await;
}

#[tokio::test]
async fn full_direct_path_drops_and_counts_keys_without_waiting() {
    let margin = Margin::new().await;
    margin.target.faults(|faults| faults.slow = Some(Duration::from_secs(3600)));
    let direct = margin.mirror().direct(10).direct_writer(&margin.engine);
    margin.write_many(1, 2000).await;
    for n in 1..=2000 {
        direct.changed([format!("n{n:05}")]);
    }
    assert!(direct.dropped() >= 2000 - 10 - 1000, "{} dropped", direct.dropped());
    margin.target.faults(|faults| faults.slow = None);
    margin.pass().await;
    margin.assert_equal().await;
}

/// Sends a key to a store that is down, and another one within the second for which the store is then
/// left alone. Returns false if that second was over before the other key came: then it proves nothing.
async fn is_left_alone(margin: &Margin) -> bool {
    let direct = margin.mirror().direct_writer(&margin.engine);
    let mut before = Instant::now();
    direct.changed(["a"]);
    until("it was tried", async || {
        let is_tried = direct.dropped() == 1;
        if !is_tried {
            before = Instant::now();
        }
        is_tried
    })
    .await;
    let (closed, calls) = (direct.is_closed(), margin.target.log().len());
    direct.changed(["b"]);
    until("it was not", async || direct.dropped() == 2).await;
    let asked = margin.target.log().len() - calls;
    if before.elapsed() >= Duration::from_secs(1) {
        return false;
    }
    assert!(closed);
    assert_eq!(asked, 0, "the store got no call");
    true
}

#[tokio::test]
async fn direct_path_drops_keys_while_the_store_is_down() {
    let margin = Margin::new().await;
    margin.target.faults(|faults| faults.down = true);
    margin.write(&["a", "b"]).await;
    let mut late = 0;
    while !is_left_alone(&margin).await {
        late += 1;
        assert!(late < 50, "never within a second");
    }
    margin.target.faults(|faults| faults.down = false);
    margin.pass().await;
    margin.assert_equal().await;
}

#[tokio::test]
async fn f11_unknown_key_does_not_count_as_a_reply_of_the_store() {
    let margin = Margin::new().await;
    margin.keep_deferred().await;
    margin.target.faults(|faults| faults.down = true);
    let mirror = margin.mirror();
    margin.write(&["a"]).await;
    assert_eq!(mirror.pass_once(&margin.engine).await.expect("a pass").deferred, 1);
    let calls = margin.target.log().len();
    let direct = mirror.direct_writer(&margin.engine);
    until("it was let in", async || {
        direct.changed(["unknown key"]);
        direct.written() > 0
    })
    .await;
    assert_eq!(margin.target.log().len(), calls, "the store was not asked");
    let waits = "select count(*) from leasehold.job where scheduled_at > now()";
    assert_eq!(margin.count(waits).await, 1, "and does not count as back");
    let dropped = direct.dropped();
    direct.changed(["a"]);
    until("the next one asks", async || direct.dropped() > dropped).await;
    assert_eq!(margin.target.log().len(), calls + 1);
}

#[tokio::test]
async fn mirror_without_a_direct_path_counts_every_key_as_dropped() {
    let margin = Margin::new().await;
    let direct = margin.mirror().direct(0).direct_writer(&margin.engine);
    direct.changed(["a"]);
    assert_eq!((direct.dropped(), direct.written()), (1, 0));
}
