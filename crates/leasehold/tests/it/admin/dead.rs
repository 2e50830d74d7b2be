use leasehold::JobState;
use leasehold::admin::{JobFilter, Page};

use super::Office;

#[tokio::test]
async fn groups_join_errors_that_differ_in_numbers_and_ids() {
    let office = Office::new().await;
    for error in ["smtp 550: mailbox 17 is full\nmore", "smtp 550: mailbox 4 is full", "no route"] {
        office.dead(error).await;
    }
    let groups = office.engine.dead().groups(&JobFilter::any(), 10).await.unwrap();
    let seen: Vec<(&str, u64)> =
        groups.iter().map(|group| (group.fingerprint.as_str(), group.jobs)).collect();
    assert_eq!(seen, [("smtp #: mailbox # is full", 2), ("no route", 1)]);
    assert_eq!(
        (groups[0].name.as_str(), &groups[0].queues[..]),
        ("note", &["default".to_owned()][..])
    );
    assert!(groups[0].first_at <= groups[0].last_at);
    assert_eq!(office.engine.dead().groups(&JobFilter::any(), 1).await.unwrap().len(), 1);
}

#[tokio::test]
async fn redrive_by_filter_moves_matching_jobs_in_steps() {
    let office = Office::new().await;
    let other = office.dead("no route").await;
    let many = "insert into leasehold_internal.dead_job (id, enqueued_at, scheduled_at, expires_at, lease_generation, \
                priority, attempts, lost_count, cause, queue, name, tag, kwargs, last_error) \
                select 1000000 + n, now(), now(), now(), 1, 0, 3, 0, 'exhausted', 'mail', 'a', '', '{}', 'smtp' \
                  from generate_series(1, 1201) n";
    office.sql.run(many).await;
    let filter: JobFilter = "queue:mail error:SMTP".parse().unwrap();
    assert_eq!(office.engine.dead().count(&filter, 10_000).await.unwrap(), 1201);
    let moved = office.engine.dead().redrive(&filter, &office.by).await.unwrap();
    assert_eq!((moved.redriven, moved.kept), (1201, 0));
    assert_eq!(office.state(other).await, Some(JobState::Dead));
    let page = office.engine.dead().list(&JobFilter::any(), &Page::first(10)).await.unwrap();
    assert_eq!(page.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [other]);
    assert!(office.last_audit().await.ends_with(": a test"));
}

#[tokio::test]
async fn filter_for_another_state_matches_no_dead_job() {
    let office = Office::new().await;
    office.dead("x").await;
    let ready = JobFilter::any().states([JobState::Ready]);
    let dead = office.engine.dead();
    assert!(dead.list(&ready, &Page::first(10)).await.unwrap().jobs.is_empty());
    assert_eq!(dead.count(&ready, 10).await.unwrap(), 0);
    assert!(dead.groups(&ready, 10).await.unwrap().is_empty());
    assert_eq!(dead.redrive(&ready, &office.by).await.unwrap().redriven, 0);
    assert_eq!(dead.count(&JobFilter::any(), 10).await.unwrap(), 1);
}

#[tokio::test]
async fn filter_by_an_empty_list_matches_no_job() {
    let office = Office::new().await;
    office.dead("x").await;
    let (jobs, dead) = (office.engine.jobs(), office.engine.dead());
    for empty in
        [JobFilter::any().ids([]), JobFilter::any().states([]), JobFilter::any().causes([])]
    {
        assert_eq!(dead.redrive(&empty, &office.by).await.unwrap().redriven, 0, "{empty}");
        assert!(jobs.list(&empty, &Page::first(10)).await.unwrap().jobs.is_empty(), "{empty}");
        assert_eq!(jobs.count(&empty, 10).await.unwrap(), 0, "{empty}");
    }
}

#[tokio::test]
async fn redrive_by_filter_within_a_transaction_takes_effect_with_its_commit() {
    let office = Office::new().await;
    let id = office.dead("no route").await;
    let mut client = office.sql.database.connect().await;
    for (commits, then) in [(false, JobState::Dead), (true, JobState::Ready)] {
        let tx = client.transaction().await.unwrap();
        let dead = office.engine.dead().within(&tx);
        let moved = dead.redrive(&JobFilter::any(), &office.by).await.unwrap();
        assert_eq!(moved.redriven, 1);
        assert_eq!(dead.count(&JobFilter::any(), 10).await.unwrap(), 0, "seen inside");
        assert_eq!(office.state(id).await, Some(JobState::Dead), "not seen outside");
        super::end(tx, commits).await;
        assert_eq!(office.state(id).await, Some(then));
    }
}
