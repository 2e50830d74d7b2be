use leasehold::admin::Toggle;
use leasehold::schedule::Schedule;
use leasehold::{AdminError, JobState};

use super::Office;
use crate::support::Note;

fn nightly() -> Schedule {
    Schedule::new("nightly", "0 3 * * *", "UTC", &Note { n: 3 }).expect("a schedule")
}

#[tokio::test]
async fn schedule_is_added_paused_resumed_and_removed_once() {
    let office = Office::new().await;
    let (schedules, by) = (office.engine.schedules(), &office.by);
    for missing in [
        schedules.pause("nightly", by).await.unwrap(),
        schedules.resume("nightly", by).await.unwrap(),
        schedules.remove("nightly", by).await.unwrap(),
    ] {
        assert_eq!(missing, Toggle::NotFound);
    }
    assert_eq!(office.audits().await, 0);
    let next = schedules.add(&nightly(), false, by).await.unwrap().expect("added");
    assert_eq!(schedules.add(&nightly(), false, by).await.unwrap(), None, "there is one");
    assert_eq!(schedules.add(&nightly(), true, by).await.unwrap(), Some(next));
    assert_eq!(schedules.get("nightly").await.unwrap().expect("stored").next_slot, next);
    assert_eq!(schedules.resume("nightly", by).await.unwrap(), Toggle::Already);
    assert_eq!(schedules.pause("nightly", by).await.unwrap(), Toggle::Changed);
    assert_eq!(schedules.pause("nightly", by).await.unwrap(), Toggle::Already);
    let listed = schedules.list().await.unwrap();
    assert_eq!(listed[0].paused_why.as_deref(), Some("a test"));
    assert_eq!(schedules.resume("nightly", by).await.unwrap(), Toggle::Changed);
    assert_eq!(schedules.remove("nightly", by).await.unwrap(), Toggle::Changed);
    assert!(schedules.list().await.unwrap().is_empty());
    assert_eq!(office.last_audit().await, "ann remove schedule nightly 0 3 * * * UTC note a test");
}

#[tokio::test]
async fn run_now_enqueues_the_job_and_moves_no_slot() {
    let office = Office::new().await;
    let (schedules, by) = (office.engine.schedules(), &office.by);
    assert_eq!(schedules.run_now("nightly", by).await.unwrap(), None);
    let next = schedules.add(&nightly(), false, by).await.unwrap();
    assert_eq!(schedules.pause("nightly", by).await.unwrap(), Toggle::Changed);
    let id = schedules.run_now("nightly", by).await.unwrap().expect("a job");
    let job = office.engine.jobs().get(id).await.unwrap().expect("the job");
    assert_eq!((job.state, job.kwargs), (JobState::Ready, Some(serde_json::json!({ "n": 3 }))));
    let entry = schedules.get("nightly").await.unwrap().expect("stored");
    assert_eq!((Some(entry.next_slot), entry.last_job_id), (next, Some(id)));
    assert_eq!(office.last_audit().await, format!("ann run schedule nightly job {id}: a test"));
}

#[tokio::test]
async fn schedule_that_cannot_fire_is_not_stored() {
    let office = Office::new().await;
    let mut bad = nightly();
    bad.cron = "nonsense".to_owned();
    let error = office.engine.schedules().add(&bad, false, &office.by).await.expect_err("refused");
    assert!(matches!(error, AdminError::Schedule(_)), "{error:?}");
    assert_eq!(office.sql.count("schedule").await, 0);
}

#[tokio::test]
async fn schedule_calls_within_a_transaction_take_effect_with_its_commit() {
    let office = Office::new().await;
    let mut client = office.sql.database.connect().await;
    for commits in [false, true] {
        let tx = client.transaction().await.unwrap();
        let schedules = office.engine.schedules().within(&tx);
        assert!(schedules.add(&nightly(), false, &office.by).await.unwrap().is_some());
        let id = schedules.run_now("nightly", &office.by).await.unwrap().expect("a job");
        let outside = office.engine.schedules();
        assert!(outside.get("nightly").await.unwrap().is_none(), "not seen outside");
        super::end(tx, commits).await;
        assert_eq!(outside.get("nightly").await.unwrap().is_some(), commits);
        assert_eq!(office.state(id).await, commits.then_some(JobState::Ready));
    }
}
