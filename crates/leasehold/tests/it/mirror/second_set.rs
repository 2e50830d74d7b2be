//! A second set that fails: no writer waits for it, and no difference of it is forgotten.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::mirror::Mirror;
use leasehold_testing::{ScriptedTarget, ScriptedTargets};

use super::fixture::{Margin, bare, in_the_end};
use crate::fixture::until;

/// Returns a mirror with ten notes in the searched set and in the former one.
async fn rebuilt(limit: Duration) -> (Margin, Mirror, ScriptedTarget, ScriptedTarget) {
    let (margin, store) = (Margin::new().await, ScriptedTargets::new());
    let mirror = bare().limit(limit).targets(Arc::new(store.clone()));
    margin.write_many(1, 10).await;
    mirror.pass_once(&margin.engine).await.expect("a pass");
    mirror.rebuild(&margin.engine).await.expect("rebuilt");
    let (searched, former) = (store.searched(), store.set("set-1").expect("kept"));
    margin.assert_equals(&former).await;
    (margin, mirror, searched, former)
}

/// Asserts that the set gets what it missed once it works again, and that the jobs end.
async fn catches_up(margin: &Margin, mirror: &Mirror, former: &ScriptedTarget) {
    in_the_end("its jobs end", async || {
        margin.due().await;
        mirror.pass_once(&margin.engine).await.expect("a pass");
        margin.jobs().await == 0
    })
    .await;
    margin.assert_equals(former).await;
}

#[tokio::test]
async fn f11_broken_former_set_does_not_stop_the_searched_set() {
    let (margin, mirror, searched, former) = rebuilt(Duration::from_secs(5)).await;
    // Each pass has only its own row, however slow this machine is.
    margin.keep_deferred().await;
    former.faults(|faults| faults.down = true);
    let direct = mirror.direct_writer(&margin.engine);
    for n in 0..3 {
        let key = format!("new {n}");
        margin.write(&[&key]).await;
        let tally = mirror.pass_once(&margin.engine).await.expect("a pass");
        assert_eq!((tally.completed, tally.deferred), (0, 1), "its job waits for the former set");
        assert!(searched.find(&key).is_some(), "searchable all the same");
        assert!(!direct.is_closed(), "the direct path stays open");
    }
    margin.write(&["direct"]).await;
    direct.changed(["direct"]);
    until("it is there", async || searched.find("direct").is_some()).await;
    until("it was written", async || direct.written() == 1).await;
    // The searched set is compared, and proven equal.
    searched.tamper("n00003", 1, None);
    assert_eq!(mirror.check_once(&margin.engine).await.expect("a check").differences, 1);
    margin.due().await;
    mirror.pass_once(&margin.engine).await.expect("a pass");
    margin.assert_equals(&searched).await;
    assert!(!direct.is_closed());
    former.faults(|faults| faults.down = false);
    catches_up(&margin, &mirror, &former).await;
}

#[tokio::test]
async fn f11_hanging_former_set_gets_few_calls_while_the_searched_set_is_written() {
    let (margin, mirror, searched, former) = rebuilt(Duration::from_millis(100)).await;
    let (before, began) = (former.log().len(), Instant::now());
    former.faults(|faults| faults.slow = Some(Duration::from_secs(3600)));
    let direct = mirror.direct_writer(&margin.engine);
    for n in 0..20 {
        let key = format!("new {n}");
        margin.write(&[&key]).await;
        mirror.pass_once(&margin.engine).await.expect("a pass");
        assert!(searched.find(&key).is_some(), "searchable all the same");
    }
    margin.write(&["direct"]).await;
    direct.changed(["direct"]);
    until("it is there", async || searched.find("direct").is_some()).await;
    // The set is left alone for twice as long each time, up to half a minute.
    let asked = (former.log().len() - before) as u64;
    let most = 7 + began.elapsed().as_secs() / 30;
    assert!((1..=most).contains(&asked), "{asked} calls to a set that hangs");
    former.faults(|faults| faults.slow = None);
    catches_up(&margin, &mirror, &former).await;
}

#[tokio::test]
async fn f12_differences_of_an_unavailable_former_set_stay_recorded() {
    let (margin, mirror, _, former) = rebuilt(Duration::from_secs(5)).await;
    let check = async || mirror.check_once(&margin.engine).await.expect("a check");
    let noted = "select count(*) from leasehold_internal.mirror_difference";
    let equal = check().await.equal_as_of.expect("equal");
    former.tamper("n00003", 1, None);
    assert_eq!(check().await.differences, 1);
    former.faults(|faults| faults.down = true);
    for _ in 0..2 {
        let report = check().await;
        assert_eq!(margin.count(noted).await, 1, "no check compared it since");
        assert_eq!(report.equal_as_of, Some(equal), "and nothing was proven");
    }
    former.faults(|faults| faults.down = false);
    in_the_end("it is repaired", async || {
        margin.due().await;
        mirror.pass_once(&margin.engine).await.expect("a pass");
        check().await.is_equal() && margin.count(noted).await == 0
    })
    .await;
    margin.assert_equals(&former).await;
}
