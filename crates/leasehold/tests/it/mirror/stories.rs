//! The story that mirrors are for: the store is away for hours while people go on working.

use super::notes::Margin;
use crate::rig::{run, until};

#[tokio::test]
async fn f11_after_an_outage_nothing_is_missing_stale_or_a_ghost() {
    let margin = Margin::new().await;
    margin.write_many(1, 500).await;
    margin.pass().await;
    margin.assert_equal().await;
    margin.target.faults(|faults| faults.down = true);
    let worker = run(margin.engine.worker().mirror(margin.mirror()));
    // Saved, changed and deleted, by single statements and by large ones.
    margin.write_many(501, 2000).await;
    for n in (1..=100).step_by(2) {
        margin.sql(&format!("update margin.note set body = 'changed' where id = 'n{n:05}'")).await;
        margin.sql(&format!("delete from margin.note where id = 'n{:05}'", n + 1)).await;
    }
    margin.sql("update margin.note set author = 2 where id > 'n02000'").await;
    margin.sql("delete from margin.note where id between 'n01000' and 'n01200'").await;
    // Deleted and saved again under the same name.
    margin.write(&["n00002", "n01100"]).await;
    let off = "select count(*) from leasehold.job where priority > 1000000";
    until("work is put off", async || margin.count(off).await > 1000).await;
    margin.target.faults(|faults| faults.down = false);
    until("no job is left", async || margin.jobs().await == 0).await;
    worker.stop().await;
    margin.assert_equal().await;
    let report = margin.check().await;
    assert!(report.is_equal() && report.equal_as_of.is_some(), "{report:?}");
    assert_eq!(margin.count("select count(*) from leasehold.dead_job").await, 0);
    assert!(margin.target.fallen().is_empty(), "no version fell");
}

#[tokio::test]
async fn f7_a_process_that_dies_between_the_commit_and_the_write_loses_nothing() {
    let margin = Margin::new().await;
    // Nobody but the database knows: there is no direct path, and no worker yet.
    margin.write(&["a"]).await;
    margin.target.faults(|faults| faults.slow = Some(std::time::Duration::from_secs(3600)));
    let first = run(margin.engine.worker().mirror(margin.mirror()));
    until("it is at it", async || !margin.target.log().is_empty()).await;
    let (_, task) = first.ask_to_stop();
    task.abort();
    margin.target.faults(|faults| faults.slow = None);
    margin.sql("update leasehold.lease set lease_expires_at = now() - interval '1 minute'").await;
    let second = run(margin.engine.worker().mirror(margin.mirror()));
    until("it is there", async || margin.target.find("a").is_some()).await;
    until("its job is over", async || margin.jobs().await == 0).await;
    second.stop().await;
    margin.assert_equal().await;
}

#[tokio::test]
async fn f6_what_was_rolled_back_never_reaches_the_store() {
    let margin = Margin::new().await;
    let direct = margin.mirror().direct_writer(&margin.engine);
    margin.sql("begin; insert into margin.note (id) values ('a')").await;
    // Told too early, by a mistake: it reads the rows itself.
    direct.changed(["a"]);
    until("it looked", async || direct.written() == 1).await;
    margin.sql("rollback").await;
    assert_eq!(margin.jobs().await, 0, "the job went with the row");
    assert!(margin.target.documents().is_empty());
    margin.write(&["a"]).await;
    direct.changed(["a"]);
    until("it is there", async || margin.target.find("a").is_some()).await;
    margin.assert_equal().await;
}
