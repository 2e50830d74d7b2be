//! The purpose of mirrors: the store is down for hours while users keep working.

use std::os::unix::process::ExitStatusExt as _;

use rustix::process::Signal;

use super::child;
use super::fixture::{Margin, in_the_end};
use crate::fixture::{back_date_leases, run, until};
use crate::processes::Process;

#[tokio::test]
async fn f11_store_equals_the_table_after_an_outage() {
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
    let off = "select count(*) from leasehold.job where deferred";
    in_the_end("work is delayed", async || margin.count(off).await > 1000).await;
    margin.target.faults(|faults| faults.down = false);
    in_the_end("no job is left", async || margin.jobs().await == 0).await;
    worker.stop().await;
    margin.assert_equal().await;
    let report = margin.check().await;
    assert!(report.is_equal() && report.equal_as_of.is_some(), "{report:?}");
    assert_eq!(margin.count("select count(*) from leasehold_internal.dead_job").await, 0);
    assert!(margin.target.fallen().is_empty(), "no version fell");
}

#[tokio::test]
async fn a13_store_has_21500_notes_that_were_saved_during_an_outage() {
    let margin = Margin::new().await;
    margin.target.faults(|faults| faults.down = true);
    let worker = run(margin.engine.worker().mirror(margin.mirror()));
    for first in (1..=21_500).step_by(2150) {
        margin.write_many(first, 2150).await;
    }
    let off = "select count(*) from leasehold.job where deferred";
    in_the_end("work is delayed", async || margin.count(off).await > 5000).await;
    margin.target.faults(|faults| faults.down = false);
    in_the_end("all is there", async || margin.target.documents().len() == 21_500).await;
    in_the_end("no job is left", async || margin.jobs().await == 0).await;
    worker.stop().await;
    margin.assert_equal().await;
    assert!(margin.check().await.is_equal());
}

#[tokio::test]
async fn f7_process_killed_between_commit_and_write_loses_no_change() {
    let margin = Margin::new().await;
    // One process only saves; the other one also holds the job.
    for (kind, held) in [("saves", 0), ("saves-and-works", 1)] {
        let mut victim = Process::run(child::MAIN, kind, &margin.database, &[]);
        let saved = format!("select count(*) from margin.note where id = '{kind}'");
        until("it has committed", async || margin.count(&saved).await == 1).await;
        let at_it = "select count(*) from margin.said where what = 'at the store'";
        until("it is at the store", async || margin.count(at_it).await == 1).await;
        let in_hand = "select count(*) from leasehold.job where held";
        until("it has its job", async || margin.count(in_hand).await == held).await;
        victim.signal(Signal::KILL);
        assert_eq!(victim.ended().await.signal(), Some(9));
        assert_eq!(margin.jobs().await, 1, "the job is there, as the row is");
        assert!(margin.target.find(kind).is_none());
        back_date_leases(&margin.client).await;
        // The job alone must do it: no check finds what is missing.
        let second = run(margin.engine.worker().mirror(margin.mirror().without_check()));
        until("it is there", async || margin.target.find(kind).is_some()).await;
        until("its job is over", async || margin.jobs().await == 0).await;
        second.stop().await;
        margin.assert_equal().await;
        margin.sql("delete from margin.said").await;
    }
}

#[tokio::test]
async fn f6_rolled_back_change_never_reaches_the_store() {
    let margin = Margin::new().await;
    let direct = margin.mirror().direct_writer(&margin.engine);
    margin.sql("begin; insert into margin.note (id) values ('a')").await;
    // Called too early, by mistake: the writer reads the rows itself.
    direct.changed(["a"]);
    until("it looked", async || direct.written() == 1).await;
    margin.sql("rollback").await;
    assert_eq!(margin.jobs().await, 0, "the job went with the row");
    assert_eq!(margin.target.find("a"), None);
    margin.write(&["a"]).await;
    direct.changed(["a"]);
    until("it is there", async || margin.target.find("a").is_some()).await;
    margin.assert_equal().await;
    for (expected, change) in [
        (3, "update margin.note set body = 'never' where id = 'a'"),
        (4, "delete from margin.note where id = 'a'"),
    ] {
        margin.sql(&format!("begin; {change}")).await;
        direct.changed(["a"]);
        until("it looked", async || direct.written() == expected).await;
        margin.sql("rollback").await;
        margin.assert_equal().await;
    }
    assert!(matches!(margin.target.history("a")[..], [(_, false)]), "nothing else was ever there");
}
