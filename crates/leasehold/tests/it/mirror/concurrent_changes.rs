//! Changes at the worst moment: behind the cursor of a round, or between the proof and the swap.

use std::sync::Arc;
use std::time::Duration;

use leasehold::mirror::Mirror;
use leasehold_testing::ScriptedTargets;

use super::barriers::{Barrier, Call, StopsAt, StopsAtSwap};
use super::fixture::{Margin, bare};

#[tokio::test]
async fn f8_commit_behind_the_cursor_of_a_round_is_found_by_the_next_round() {
    let margin = Margin::new().await;
    margin.write_many(1, 20).await;
    margin.pass().await;
    let slow = margin.database.connect_directly().await;
    let insert = "begin; insert into margin.note (id) values ('n00005 and late')";
    slow.batch_execute(insert).await.expect("begun");
    // Ten rows per range: the third range begins behind the last row.
    let (store, barrier) = StopsAt::new(&margin.target, Call::Digest, 2);
    // The range may wait as long as the test does.
    let mirror = bare().range(10).limit(Duration::from_secs(600)).target(store);
    let checking = tokio::spawn({
        let (mirror, engine) = (mirror.clone(), margin.engine.clone());
        async move { mirror.check_once(&engine).await.expect("a check") }
    });
    barrier.reached().await;
    let before = margin.client.query_one("select clock_timestamp()", &[]).await.expect("a time");
    slow.batch_execute("commit").await.expect("committed");
    // No job is on its way to the row; only the check can find it.
    margin.sql("delete from leasehold.job").await;
    barrier.open();
    let report = checking.await.expect("a check");
    assert!(report.is_equal(), "the round had passed it");
    assert!(report.equal_as_of < Some(before.get(0)), "and does not say that it is there");
    let report = mirror.check_once(&margin.engine).await.expect("a check");
    assert_eq!((report.differences, report.repairs), (1, 1));
    margin.pass().await;
    margin.assert_equal().await;
}

fn mirror(store: &ScriptedTargets) -> Mirror {
    bare().range(50).targets(Arc::new(store.clone()))
}

/// Stops a rebuild between its proof and its swap, changes rows and has `writer` write them, and lets
/// it swap.
async fn changed_before_the_swap(margin: &Margin, store: &ScriptedTargets, writer: &Mirror) {
    let barrier = Arc::new(Barrier::default());
    let stops = StopsAtSwap { store: store.clone(), barrier: Arc::clone(&barrier) };
    // The swap may wait as long as the test does.
    let slow = bare().range(50).limit(Duration::from_secs(600)).targets(Arc::new(stops));
    let rebuilding = tokio::spawn({
        let engine = margin.engine.clone();
        async move { slow.rebuild(&engine).await }
    });
    barrier.reached().await;
    margin.sql("update margin.note set body = 'late' where id < 'n00010'").await;
    margin.sql("delete from margin.note where id between 'n00050' and 'n00059'").await;
    margin.write(&["late"]).await;
    assert_eq!(writer.pass_once(&margin.engine).await.expect("a pass").completed, 20);
    assert_eq!(margin.jobs().await, 0, "nothing is left that could make up for it");
    barrier.open();
    let report = rebuilding.await.expect("ended").expect("rebuilt");
    assert_eq!(report.serving, "set-2");
}

async fn filled() -> (Margin, ScriptedTargets) {
    let (margin, store) = (Margin::new().await, ScriptedTargets::new());
    margin.write_many(1, 120).await;
    mirror(&store).pass_once(&margin.engine).await.expect("a pass");
    (margin, store)
}

#[tokio::test]
async fn f12_changes_between_the_proof_and_the_swap_are_in_the_new_set() {
    let (margin, store) = filled().await;
    changed_before_the_swap(&margin, &store, &mirror(&store)).await;
    margin.assert_equals(&store.searched()).await;
    margin.assert_equals(&store.set("set-1").expect("kept")).await;
}

#[tokio::test]
async fn f12_sabotage_writer_of_one_set_loses_changes_before_the_swap() {
    let (margin, store) = filled().await;
    // This is why writers write to both sets.
    let one = bare().target(Arc::new(store.searched()));
    changed_before_the_swap(&margin, &store, &one).await;
    margin.assert_equals(&store.set("set-1").expect("kept")).await;
    assert!(store.searched().find("late").is_none(), "the new set never got it");
    let report = mirror(&store).check_once(&margin.engine).await.expect("a check");
    assert_eq!(report.differences, 20, "and only the check finds out");
}
