//! A rebuild: fills a second set, proves it equal and swaps it in, while all other work continues.

use std::sync::Arc;

use leasehold::mirror::{ItemError, Mirror, MirrorError};
use leasehold_testing::{ScriptedTarget, ScriptedTargets};

use super::fixture::{Margin, bare};
use crate::fixture::{run, until};

fn mirror(store: &ScriptedTargets) -> Mirror {
    bare().range(50).targets(Arc::new(store.clone()))
}

async fn filled(rows: i64) -> (Margin, ScriptedTargets) {
    let (margin, store) = (Margin::new().await, ScriptedTargets::new());
    margin.write_many(1, rows).await;
    mirror(&store).pass_once(&margin.engine).await.expect("a pass");
    margin.assert_equals(&store.searched()).await;
    (margin, store)
}

const PHASE: &str = "select count(*) from leasehold_internal.mirror where phase =";

#[tokio::test]
async fn f12_changes_during_a_rebuild_are_in_the_new_set_when_it_is_swapped_in() {
    let (margin, store) = filled(300).await;
    let worker = run(margin.engine.worker().mirror(mirror(&store)));
    let changing = async {
        for n in 1..=60 {
            margin
                .sql(&format!("update margin.note set body = 'during' where id = 'n{n:05}'"))
                .await;
            margin.sql(&format!("delete from margin.note where id = 'n{:05}'", n + 100)).await;
            margin
                .sql(&format!("insert into margin.note (id) values ('n{n:05} and another')"))
                .await;
        }
    };
    let mirror = mirror(&store);
    let rebuilding = mirror.rebuild(&margin.engine);
    let (report, ()) = tokio::join!(rebuilding, changing);
    let report = report.expect("rebuilt");
    assert_eq!((report.serving.as_str(), report.former.as_str()), ("set-2", "set-1"));
    until("no job is left", async || margin.jobs().await == 0).await;
    worker.stop().await;
    for set in ["set-1", "set-2"] {
        margin.assert_equals(&store.set(set).expect("kept")).await;
    }
    assert_eq!(margin.count(&format!("{PHASE} 'swapped'")).await, 1);
}

#[tokio::test]
async fn f12_set_is_repaired_before_it_is_swapped_in() {
    let (margin, store) = filled(120).await;
    store.refuse_swaps(true);
    assert!(mirror(&store).rebuild(&margin.engine).await.is_err(), "up to the swap");
    assert_eq!(margin.count(&format!("{PHASE} 'verifying'")).await, 1);
    let second = store.set("set-2").expect("made");
    // What happened to it meanwhile is found before the swap.
    second.tamper("n00007", 1, None);
    second.tamper("a ghost", 4, Some(serde_json::json!({})));
    store.refuse_swaps(false);
    let report = mirror(&store).rebuild(&margin.engine).await.expect("continued");
    assert_eq!((report.rows, report.repaired), (0, 2), "nothing is filled twice");
    margin.assert_equals(&store.searched()).await;
}

#[tokio::test]
async fn f12_set_that_refuses_searched_documents_is_not_swapped_in() {
    let (margin, store) = filled(120).await;
    store.refuse_swaps(true);
    assert!(mirror(&store).rebuild(&margin.engine).await.is_err(), "up to the swap");
    store.refuse_swaps(false);
    let second = store.set("set-2").expect("made");
    let refuse = |second: &ScriptedTarget, key: &str| {
        second.tamper(key, 1, None);
        let refused = ItemError::Refused("no such field".into());
        second.faults(|faults| drop(faults.items.insert(key.to_owned(), refused)));
    };
    refuse(&second, "n00007");
    let error = mirror(&store).rebuild(&margin.engine).await.expect_err("it would lose one");
    assert!(matches!(error, MirrorError::State(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("n00007") && text.contains("no such field"), "{text}");
    assert_eq!(margin.count(&format!("{PHASE} 'verifying'")).await, 1);
    margin.assert_equals(&store.searched()).await;
    // The fields are corrected. A document that neither set takes does not prevent the swap.
    second.faults(|faults| faults.items.clear());
    store.searched().tamper("n00009", 1, None);
    refuse(&second, "n00009");
    let report = mirror(&store).rebuild(&margin.engine).await.expect("rebuilt");
    assert_eq!((report.repaired, report.refused), (1, 1));
    assert_eq!(store.searched().documents().len(), 119);
}

#[tokio::test]
async fn f12_rebuild_is_buried_when_the_new_set_refuses_every_document() {
    let (margin, store) = filled(120).await;
    // The state after a process that died before it wrote anything.
    margin.sql("select leasehold_internal.begin_rebuild('notes', 'set-2')").await;
    leasehold::mirror::Targets::create(&store).await.expect("a set");
    let second = store.set("set-2").expect("made");
    second.faults(|faults| {
        faults.items = (1..=120)
            .map(|n| (format!("n{n:05}"), ItemError::Refused("no such field".into())))
            .collect();
    });
    margin.sql("select leasehold_internal.order_mirror('notes', 'rebuild', 'ann')").await;
    let tally = mirror(&store).pass_once(&margin.engine).await.expect("a pass");
    assert_eq!((tally.completed, tally.dead), (0, 1), "the dead order has the reason");
    let buried =
        "select count(*) from leasehold_internal.dead_job where last_error like '%119 more%'";
    assert_eq!(margin.count(buried).await, 1);
    assert_eq!(margin.count(&format!("{PHASE} 'building'")).await, 1);
    margin.assert_equals(&store.searched()).await;
}

#[tokio::test]
async fn f11_rebuild_survives_an_outage_of_the_store() {
    let (margin, store) = filled(120).await;
    margin.sql("select leasehold_internal.begin_rebuild('notes', 'set-2')").await;
    leasehold::mirror::Targets::create(&store).await.expect("a set");
    let second = store.set("set-2").expect("made");
    second.faults(|faults| faults.down = true);
    let rebuilding = tokio::spawn({
        let (mirror, engine) = (mirror(&store), margin.engine.clone());
        async move { mirror.rebuild(&engine).await }
    });
    until("it was tried", async || !second.log().is_empty()).await;
    // Now the store does not even return which set is searched.
    store.set_down(true);
    until("it was tried again", async || store.unanswered() > 0).await;
    store.refuse_swaps(true);
    store.set_down(false);
    rebuilding.await.expect("ended").expect_err("the swap is refused");
    assert_eq!(margin.count(&format!("{PHASE} 'verifying'")).await, 1, "everything else was done");
    // The same while it compares.
    store.refuse_swaps(false);
    second.faults(|faults| faults.down = true);
    let asked = second.log().len();
    let rebuilding = tokio::spawn({
        let (mirror, engine) = (mirror(&store), margin.engine.clone());
        async move { mirror.rebuild(&engine).await }
    });
    until("it was tried", async || second.log().len() > asked).await;
    // Writers to the searched set do not wait.
    second.faults(|faults| faults.down = false);
    margin.write(&["meanwhile"]).await;
    assert_eq!(mirror(&store).pass_once(&margin.engine).await.expect("a pass").completed, 1);
    rebuilding.await.expect("ended").expect("rebuilt");
    margin.assert_equals(&store.searched()).await;
}

#[tokio::test]
async fn f11_order_survives_an_outage_of_any_length() {
    let (margin, store) = filled(10).await;
    margin.keep_deferred().await;
    margin.sql("select leasehold_internal.order_mirror('notes', 'rebuild', 'ann')").await;
    // As after minutes of an outage, with one attempt every ten seconds.
    margin.sql("update leasehold.job set attempts = 24").await;
    store.set_down(true);
    let tally = mirror(&store).pass_once(&margin.engine).await.expect("a pass");
    assert_eq!((tally.deferred, tally.dead), (1, 0));
    store.set_down(false);
    margin.due().await;
    assert_eq!(mirror(&store).pass_once(&margin.engine).await.expect("a pass").completed, 1);
    assert_eq!(margin.count(&format!("{PHASE} 'swapped'")).await, 1);
}

#[tokio::test]
async fn f12_repeated_rollback_swaps_once() {
    let (margin, store) = filled(10).await;
    let mirror = mirror(&store);
    let serves = "select count(*) from leasehold_internal.mirror where serving =";
    mirror.rebuild(&margin.engine).await.expect("rebuilt");
    margin.sql("select leasehold_internal.order_mirror('notes', 'rollback', 'ann')").await;
    // As if a worker rolled back and died before it completed the order.
    margin
        .sql(
            "select leasehold.enqueue(j.name, j.kwargs, j.queue, scheduled_at => now() + interval '1 hour') \
               from leasehold.job j where j.tag = 'mirror.order'",
        )
        .await;
    for _ in 0..2 {
        assert_eq!(mirror.pass_once(&margin.engine).await.expect("a pass").completed, 1);
        assert_eq!(margin.count(&format!("{serves} 'set-1'")).await, 1);
        margin.due().await;
    }
    assert_eq!(margin.jobs().await, 0);
    margin.assert_equals(&store.searched()).await;
    // A second order swaps forward again.
    margin.sql("select leasehold_internal.order_mirror('notes', 'rollback', 'ann')").await;
    assert_eq!(mirror.pass_once(&margin.engine).await.expect("a pass").completed, 1);
    assert_eq!(margin.count(&format!("{serves} 'set-2'")).await, 1);
    // Without a former set there is nothing to roll back to, and the order dies.
    mirror.drop_second(&margin.engine).await.expect("dropped");
    margin.sql("select leasehold_internal.order_mirror('notes', 'rollback', 'ann')").await;
    assert_eq!(mirror.pass_once(&margin.engine).await.expect("a pass").dead, 1);
}

#[tokio::test]
async fn f12_rollback_is_a_swap_to_a_former_set_that_kept_every_write() {
    let (margin, store) = filled(30).await;
    let mirror = mirror(&store);
    mirror.rebuild(&margin.engine).await.expect("rebuilt");
    margin.write(&["later"]).await;
    margin.sql("delete from margin.note where id = 'n00003'").await;
    mirror.pass_once(&margin.engine).await.expect("a pass");
    assert!(
        matches!(mirror.rebuild(&margin.engine).await, Err(MirrorError::State(_))),
        "one at a time"
    );
    assert_eq!(mirror.rollback(&margin.engine).await.expect("back"), "set-1");
    margin.assert_equals(&store.searched()).await;
    assert_eq!(mirror.rollback(&margin.engine).await.expect("and forth"), "set-2");
    assert_eq!(
        mirror.drop_second(&margin.engine).await.expect("dropped").as_deref(),
        Some("set-1")
    );
    assert_eq!(store.names(), ["set-2"]);
    assert!(matches!(mirror.rollback(&margin.engine).await, Err(MirrorError::State(_))));
    mirror.rebuild(&margin.engine).await.expect("and again");
    margin.assert_equals(&store.searched()).await;
}

#[tokio::test]
async fn interrupted_rebuild_continues_where_it_stopped() {
    let (margin, store) = filled(200).await;
    // The state after a process that died in the middle.
    margin.sql("select leasehold_internal.begin_rebuild('notes', 'set-2')").await;
    let made = leasehold::mirror::Targets::create(&store).await.expect("a set");
    assert_eq!(made, "set-2");
    margin
        .sql("select leasehold_internal.note_rebuild('notes', 'set-2', null, 'n00150', 150)")
        .await;
    let report = mirror(&store).rebuild(&margin.engine).await.expect("continued");
    assert_eq!(report.rows, 50, "from there");
    assert_eq!(report.repaired, 150, "and what the dead one had not written is found");
    margin.assert_equals(&store.searched()).await;
}

#[tokio::test]
async fn job_completes_only_when_both_sets_have_its_row() {
    let (margin, store) = filled(10).await;
    margin.keep_deferred().await;
    let mirror = mirror(&store);
    mirror.rebuild(&margin.engine).await.expect("rebuilt");
    let former = store.set("set-1").expect("kept");
    former.faults(|faults| {
        faults.items.insert("new".into(), ItemError::Busy("not now".into()));
    });
    margin.write(&["new"]).await;
    assert_eq!(mirror.pass_once(&margin.engine).await.expect("a pass").deferred, 1);
    assert!(store.searched().find("new").is_some(), "searchable all the same");
    former.faults(|faults| faults.items.clear());
    margin.due().await;
    assert_eq!(mirror.pass_once(&margin.engine).await.expect("a pass").completed, 1);
    margin.assert_equals(&former).await;
}

#[tokio::test]
async fn worker_executes_every_order_of_an_operator() {
    let (margin, store) = filled(40).await;
    let worker = run(margin.engine.worker().mirror(mirror(&store).without_check()));
    for (order, then) in [
        ("check", "rounds = 1 and equal_as_of is not null"),
        ("rebuild", "phase = 'swapped' and serving = 'set-2'"),
        ("rollback", "phase = 'swapped' and serving = 'set-1'"),
        ("drop", "phase = 'none' and second is null"),
    ] {
        margin
            .sql(&format!("select leasehold_internal.order_mirror('notes', '{order}', 'ann')"))
            .await;
        until(order, async || {
            margin
                .count(&format!("select count(*) from leasehold_internal.mirror where {then}"))
                .await
                == 1
        })
        .await;
    }
    worker.stop().await;
    assert_eq!(store.names(), ["set-1"]);
    assert_eq!(margin.count("select count(*) from leasehold.audit where actor = 'ann'").await, 4);
    assert_eq!(margin.count("select count(*) from leasehold_internal.order_mirror('none', 'check', 'ann') o where o is not null").await, 0);
}

#[tokio::test]
async fn check_fills_a_store_that_was_lost_and_created_again() {
    let (margin, store) = filled(120).await;
    let worker = run(margin
        .engine
        .worker()
        .mirror(mirror(&store).check_every(std::time::Duration::from_millis(5))));
    store.lose_everything();
    until("it is filled", async || store.searched().documents().len() == 120).await;
    until("no job is left", async || margin.jobs().await == 0).await;
    worker.stop().await;
    margin.assert_equals(&store.searched()).await;
    assert_eq!(
        margin
            .count("select count(*) from leasehold_internal.mirror where serving = 'set-2'")
            .await,
        1
    );
}

#[tokio::test]
async fn rebuild_order_completes_when_its_worker_died_after_the_swap() {
    let (margin, store) = filled(10).await;
    margin.sql("select leasehold_internal.order_mirror('notes', 'rebuild', 'ann')").await;
    mirror(&store).rebuild(&margin.engine).await.expect("rebuilt");
    let tally = mirror(&store).pass_once(&margin.engine).await.expect("a pass");
    assert_eq!((tally.completed, tally.dead), (1, 0));
    assert_eq!(store.names(), ["set-1", "set-2"], "once");
}

#[tokio::test]
async fn rebuild_of_a_store_with_one_set_is_refused() {
    let margin = Margin::new().await;
    let error = margin.mirror().rebuild(&margin.engine).await.expect_err("no");
    assert!(error.to_string().contains(".targets("), "{error}");
}
