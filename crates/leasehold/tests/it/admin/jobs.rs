use leasehold::admin::{Change, JobUpdate};
use leasehold::{AdminError, Cause, JobId, JobState};

use super::Office;

/// One job in each state, made in an order in which each claim takes the job that it should.
async fn one_in_each_state(office: &Office) -> Vec<(JobState, JobId)> {
    vec![
        (JobState::Completed, office.completed().await),
        (JobState::Dead, office.dead("no such user").await),
        (JobState::Retrying, office.retrying().await),
        (JobState::Cancelled, office.cancelled().await),
        (JobState::Running, office.running().await),
        (JobState::Scheduled, office.scheduled().await),
        (JobState::Ready, office.ready().await),
    ]
}

#[tokio::test]
async fn view_has_one_row_per_job_with_its_state() {
    let office = Office::new().await;
    let jobs = one_in_each_state(&office).await;
    assert_eq!(jobs.len(), JobState::ALL.len());
    for (state, id) in &jobs {
        assert_eq!(office.state(*id).await, Some(*state));
    }
    let words: Vec<String> = crate::sql::all(
        &office.sql.client,
        "select state from leasehold.jobs order by array_position(
            array['scheduled','ready','running','retrying','completed','cancelled','dead'], state)",
        &[],
    )
    .await;
    let known: Vec<&str> = JobState::ALL.iter().map(|state| state.as_str()).collect();
    assert_eq!(words, known);
    assert_eq!(office.state(JobId(987_654)).await, None);
}

#[tokio::test]
async fn causes_of_the_table_and_of_rust_are_the_same() {
    let office = Office::new().await;
    for cause in Cause::ALL {
        let id = office.running().await;
        let sql =
            "select leasehold.bury($1, lease_generation, 'x', $2) from leasehold.job where id = $1";
        assert!(office.sql.one::<bool>(sql, &[&id.0, &cause.as_str()]).await);
        let job = office.engine.jobs().get(id).await.unwrap().unwrap();
        assert_eq!((job.state, job.cause), (JobState::Dead, Some(*cause)));
    }
    let id = office.running().await;
    let sql = "select leasehold.bury($1, lease_generation, 'x', 'a whim') from leasehold.job where id = $1";
    assert_eq!(crate::sql::refused(&office.sql.client, sql, &[&id.0]).await.0, "LH002");
}

#[tokio::test]
async fn get_returns_times_worker_and_failures() {
    let office = Office::new().await;
    let id = office.retrying().await;
    let job = office.engine.jobs().get(id).await.unwrap().unwrap();
    assert_eq!((job.attempts, job.max_attempts, job.lost_count), (1, Some(25), Some(0)));
    assert_eq!(job.last_error.as_deref(), Some("once"));
    assert_eq!(job.errors[0].error.as_deref(), Some("once"));
    assert_eq!(job.errors[0].worker.as_deref(), Some("first"));
    assert!(job.kwargs.is_some() && job.finished_at.is_none() && job.claimed_at.is_none());
    let id = office.running().await;
    let job = office.engine.jobs().get(id).await.unwrap().unwrap();
    assert_eq!(job.worker.as_deref(), Some("first"));
    assert!(job.claimed_at.is_some() && job.lease_expires_at.is_some());
    assert!(job.lease_generation.0 > 0);
    let json = serde_json::to_value(&job).unwrap();
    assert_eq!((&json["id"], &json["state"]), (&id.to_string().into(), &"running".into()));
}

#[tokio::test]
async fn cancel_ends_a_waiting_job_and_asks_a_running_one_to_stop() {
    let office = Office::new().await;
    let jobs = one_in_each_state(&office).await;
    for (state, id) in &jobs {
        let change = office.engine.jobs().cancel(*id, &office.by).await.unwrap();
        let wanted = match state {
            JobState::Running => Change::Requested,
            JobState::Completed | JobState::Cancelled | JobState::Dead => {
                Change::WrongState(*state)
            }
            _ => Change::Changed,
        };
        assert_eq!(change, wanted, "{state}");
        if wanted == Change::Changed {
            assert_eq!(office.state(*id).await, Some(JobState::Cancelled));
            assert!(office.last_audit().await.ends_with("cancelled: a test"));
        }
    }
    let missing = office.engine.jobs().cancel(JobId(987_654), &office.by).await.unwrap();
    assert_eq!(missing, Change::NotFound);
}

#[tokio::test]
async fn redrive_moves_a_dead_job_and_no_other() {
    let office = Office::new().await;
    for (state, id) in one_in_each_state(&office).await {
        let change = office.engine.jobs().redrive(id, &office.by).await.unwrap();
        if state == JobState::Dead {
            assert_eq!(change, Change::Changed);
            assert_eq!(office.state(id).await, Some(JobState::Ready));
            assert_eq!(office.last_audit().await, format!("ann redrive 1 jobs {{{id}}}: a test"));
        } else {
            assert_eq!(change, Change::WrongState(state));
        }
    }
}

#[tokio::test]
async fn redrive_leaves_a_job_whose_key_belongs_to_a_newer_one() {
    let office = Office::new().await;
    let keyed = "select job_id from leasehold.enqueue('note', key => 'k', key_ttl => interval '0')";
    let old = JobId(office.sql.one(keyed, &[]).await);
    let generation = crate::sql::claim(&office.sql.client, "w", 1).await.generation;
    office.sql.run(&format!("select leasehold.bury({old}, {generation}, 'x')")).await;
    office.sql.one::<i64>(keyed, &[]).await;
    assert_eq!(office.engine.jobs().redrive(old, &office.by).await.unwrap(), Change::KeyTaken);
    assert_eq!(office.state(old).await, Some(JobState::Dead));
}

#[tokio::test]
async fn promote_makes_a_later_job_ready_and_touches_no_other() {
    let office = Office::new().await;
    for (state, id) in one_in_each_state(&office).await {
        let change = office.engine.jobs().promote(id, &office.by).await.unwrap();
        match state {
            JobState::Scheduled | JobState::Retrying => {
                assert_eq!(change, Change::Changed);
                assert_eq!(office.state(id).await, Some(JobState::Ready));
                assert!(office.last_audit().await.starts_with("ann promote 1 jobs"));
            }
            other => assert_eq!(change, Change::WrongState(other)),
        }
    }
}

#[tokio::test]
async fn delete_removes_waiting_and_dead_jobs_only() {
    let office = Office::new().await;
    for (state, id) in one_in_each_state(&office).await {
        let change = office.engine.jobs().delete(id, &office.by).await.unwrap();
        if state.is_waiting() || state == JobState::Dead {
            assert_eq!(change, Change::Changed, "{state}");
            assert_eq!(office.state(id).await, None);
            assert_eq!(office.last_audit().await, format!("ann delete 1 jobs {{{id}}}: a test"));
            let again = office.engine.jobs().delete(id, &office.by).await.unwrap();
            assert_eq!(again, Change::NotFound);
        } else {
            assert_eq!(change, Change::WrongState(state));
            assert_eq!(office.state(id).await, Some(state));
        }
    }
}

#[tokio::test]
async fn update_changes_a_waiting_job_only() {
    let office = Office::new().await;
    let update = JobUpdate::new().priority(7).tag("moved").max_attempts(3);
    for (state, id) in one_in_each_state(&office).await {
        let before = office.engine.jobs().get(id).await.unwrap().unwrap();
        let change = office.engine.jobs().update(id, &update, &office.by).await.unwrap();
        let job = office.engine.jobs().get(id).await.unwrap().unwrap();
        if state.is_waiting() {
            assert_eq!(change, Change::Changed, "{state}");
            assert_eq!((job.priority, job.tag.as_str(), job.max_attempts), (7, "moved", Some(3)));
            assert_eq!(job.scheduled_at, before.scheduled_at);
            let wanted =
                format!("ann update job {id} priority 7, tag moved, max_attempts 3, a test");
            assert_eq!(office.last_audit().await, wanted);
        } else {
            assert_eq!(change, Change::WrongState(state));
            assert_eq!(job.priority, before.priority);
        }
    }
}

#[tokio::test]
async fn update_of_the_due_time_moves_the_expiry_along_and_refuses_one_before_it() {
    let office = Office::new().await;
    let id = office.ready().await;
    let jobs = office.engine.jobs();
    let before = jobs.get(id).await.unwrap().unwrap();
    let year = jiff::SignedDuration::from_hours(24 * 365);
    let later = before.scheduled_at + year;
    assert_eq!(
        jobs.update(id, &JobUpdate::new().run_at(later), &office.by).await.unwrap(),
        Change::Changed
    );
    let job = jobs.get(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.scheduled_at), (JobState::Scheduled, later));
    assert!(job.expires_at > before.expires_at && job.expires_at > Some(later));
    let audits = office.audits().await;
    for bad in [
        JobUpdate::new().expires_at(before.scheduled_at),
        JobUpdate::new().max_attempts(0),
        JobUpdate::new().tag("t".repeat(201)),
    ] {
        let error = jobs.update(id, &bad, &office.by).await.expect_err("refused");
        assert!(matches!(error, AdminError::Refused(_)), "{error:?}");
    }
    assert_eq!(office.audits().await, audits);
}

#[tokio::test]
async fn verbs_within_a_transaction_take_effect_with_its_commit() {
    let office = Office::new().await;
    let (dead, ready) = (office.dead("x").await, office.ready().await);
    let mut client = office.sql.database.connect().await;
    for commits in [false, true] {
        let tx = client.transaction().await.unwrap();
        let jobs = office.engine.jobs().within(&tx);
        assert_eq!(jobs.redrive(dead, &office.by).await.unwrap(), Change::Changed);
        assert_eq!(jobs.delete(ready, &office.by).await.unwrap(), Change::Changed);
        assert_eq!(jobs.get(ready).await.unwrap().map(|job| job.id), None, "seen inside");
        assert_eq!(office.state(dead).await, Some(JobState::Dead), "not seen outside");
        if commits {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
    }
    assert_eq!(office.state(dead).await, Some(JobState::Ready));
    assert_eq!(office.state(ready).await, None);
    assert_eq!(office.audits().await, 2);
}
