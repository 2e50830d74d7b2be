//! Handles on a session of each role. A role sees and changes what SECURITY.md grants it, no more.

use std::time::Duration;

use leasehold::admin::{
    AlarmChange, Alarms, Change, Dead, JobFilter, JobUpdate, Jobs, Measurements, MirrorOrder,
    Mirrors, Page, QueueChange, Queues, Reindex, Schedules, SeriesQuery, Sweeps, Toggle,
    WatchChange, Workers,
};
use leasehold::schedule::Schedule;
use leasehold::{AdminError, JobState};
use tokio_postgres::Client;

use super::Office;
use crate::sql::run;
use crate::support::Note;

async fn as_role(office: &Office, role: &str) -> Client {
    let client = office.sql.actor().await;
    run(&client, &format!("set role leasehold_{role}")).await;
    client
}

#[track_caller]
fn forbidden<T: std::fmt::Debug>(result: Result<T, AdminError>) {
    let error = result.expect_err("forbidden");
    assert!(matches!(error, AdminError::Forbidden(_)), "{error:?}");
    assert!(error.to_string().contains("needs the role leasehold_"), "{error}");
}

#[track_caller]
fn forbidden_without<T: std::fmt::Debug>(role: &str, result: Result<T, AdminError>) {
    let error = result.expect_err("forbidden");
    assert!(error.to_string().contains(&format!("needs the role leasehold_{role}:")), "{error}");
}

fn nightly() -> Schedule {
    Schedule::new("nightly", "0 3 * * *", "UTC", &Note { n: 3 }).expect("a schedule")
}

#[tokio::test]
async fn operator_reads_everything_and_calls_every_verb() {
    let office = Office::new().await;
    let (done, dead) = (office.completed().await, office.dead("no route").await);
    let (retrying, ready) = (office.retrying().await, office.ready().await);
    let client = as_role(&office, "operator").await;
    let (jobs, by) = (Jobs::on(&client), &office.by);
    let page = jobs.list(&JobFilter::any(), &Page::first(10)).await.unwrap();
    assert_eq!(page.jobs.len(), 4);
    assert!(page.jobs.iter().all(|job| job.kwargs.is_some()));
    assert_eq!(jobs.get(done).await.unwrap().map(|job| job.state), Some(JobState::Completed));
    assert_eq!(Dead::on(&client).groups(&JobFilter::any(), 10).await.unwrap().len(), 1);
    let update = JobUpdate::new().priority(1);
    assert_eq!(jobs.update(ready, &update, by).await.unwrap(), Change::Changed);
    assert_eq!(jobs.promote(retrying, by).await.unwrap(), Change::Changed);
    assert_eq!(jobs.cancel(ready, by).await.unwrap(), Change::Changed);
    assert_eq!(jobs.redrive(dead, by).await.unwrap(), Change::Changed);
    assert_eq!(jobs.delete(dead, by).await.unwrap(), Change::Changed);
    let queues = Queues::on(&client);
    assert_eq!(queues.names().await.unwrap(), ["default"]);
    assert_eq!(queues.pause("default", by).await.unwrap(), Toggle::Changed);
    assert_eq!(queues.resume("default", by).await.unwrap(), Toggle::Changed);
    queues.set("default", &QueueChange::new().max_lost(4), by).await.unwrap();
    let schedules = Schedules::on(&client);
    assert!(schedules.add(&nightly(), false, by).await.unwrap().is_some());
    assert!(schedules.run_now("nightly", by).await.unwrap().is_some());
    assert_eq!(schedules.pause("nightly", by).await.unwrap(), Toggle::Changed);
    assert_eq!(schedules.resume("nightly", by).await.unwrap(), Toggle::Changed);
    assert_eq!(schedules.remove("nightly", by).await.unwrap(), Toggle::Changed);
    Workers::on(&client).list(true).await.unwrap();
    let (sweeps, mirrors) = (Sweeps::on(&client), Mirrors::on(&client));
    sweeps.dead("absent", None, 10).await.unwrap();
    assert_eq!(sweeps.pause("absent", by).await.unwrap(), Toggle::NotFound);
    assert_eq!(sweeps.resume("absent", by).await.unwrap(), Toggle::NotFound);
    assert!(!sweeps.run_now("absent", by).await.unwrap());
    assert!(!sweeps.run_watchdog("absent", by).await.unwrap());
    assert!(!sweeps.forget("absent", by).await.unwrap());
    assert_eq!(sweeps.redrive("absent", None, by).await.unwrap(), 0);
    assert_eq!(mirrors.order("absent", MirrorOrder::Check, by).await.unwrap(), None);
    let error = mirrors.reindex("absent", &[], &Reindex::new()).await.expect_err("no such mirror");
    assert!(matches!(error, AdminError::Refused(_)), "{error:?}");
    let alarms = Alarms::on(&client);
    assert_eq!(alarms.acknowledge(7, by).await.unwrap(), AlarmChange::NotFound);
    assert_eq!(
        alarms.silence(7, Duration::from_secs(60), by).await.unwrap(),
        AlarmChange::NotFound
    );
    alarms.set_watch("default", &WatchChange::new(), by).await.unwrap();
    assert_eq!(alarms.remove_watch("default", by).await.unwrap(), Toggle::Changed);
    assert_eq!(alarms.test(by).await.unwrap(), 0);
}

#[tokio::test]
async fn viewer_reads_all_but_kwargs_and_errors_and_changes_nothing() {
    let office = Office::new().await;
    let (done, dead) = (office.completed().await, office.dead("the password is 1234").await);
    let ready = office.ready().await;
    let client = as_role(&office, "viewer").await;
    let (jobs, by) = (Jobs::on(&client), &office.by);
    let page = jobs.list(&JobFilter::any(), &Page::first(10)).await.unwrap();
    assert_eq!(page.jobs.len(), 3);
    for job in &page.jobs {
        assert!(job.kwargs.is_none() && job.last_error.is_none() && job.errors.is_empty());
    }
    for (id, state) in
        [(done, JobState::Completed), (dead, JobState::Dead), (ready, JobState::Ready)]
    {
        assert_eq!(jobs.get(id).await.unwrap().map(|job| job.state), Some(state));
    }
    assert_eq!(jobs.count(&JobFilter::any(), 10).await.unwrap(), 3);
    assert_eq!(Queues::on(&client).list().await.unwrap().len(), 1);
    assert_eq!(Queues::on(&client).names().await.unwrap(), ["default"]);
    Schedules::on(&client).list().await.unwrap();
    Workers::on(&client).list(true).await.unwrap();
    let (sweeps, mirrors) = (Sweeps::on(&client), Mirrors::on(&client));
    let (alarms, measurements) = (Alarms::on(&client), Measurements::on(&client));
    assert!(
        sweeps.list().await.unwrap().is_empty() && sweeps.summaries().await.unwrap().is_empty()
    );
    assert!(
        mirrors.list().await.unwrap().is_empty() && mirrors.summaries().await.unwrap().is_empty()
    );
    assert!(mirrors.differences("absent", 1).await.unwrap().is_empty());
    assert!(!mirrors.is_worked("absent").await.unwrap());
    assert!(
        alarms.list(true, 1).await.unwrap().is_empty()
            && alarms.watches().await.unwrap().is_empty()
    );
    measurements.sampled().await.unwrap();
    measurements.latest(&["queue"]).await.unwrap();
    measurements.series(&SeriesQuery::new("queue", ["length"])).await.unwrap();
    forbidden(sweeps.dead("absent", None, 1).await);
    forbidden(sweeps.pause("absent", by).await);
    forbidden(sweeps.resume("absent", by).await);
    forbidden(sweeps.run_now("absent", by).await);
    forbidden(sweeps.run_watchdog("absent", by).await);
    forbidden(sweeps.forget("absent", by).await);
    forbidden(sweeps.redrive("absent", None, by).await);
    forbidden(mirrors.order("absent", MirrorOrder::Check, by).await);
    forbidden_without("producer", mirrors.reindex("absent", &[], &Reindex::new()).await);
    forbidden(alarms.acknowledge(7, by).await);
    forbidden(alarms.silence(7, Duration::from_secs(60), by).await);
    forbidden(alarms.set_watch("default", &WatchChange::new(), by).await);
    forbidden(alarms.remove_watch("default", by).await);
    forbidden(alarms.test(by).await);
    forbidden_without("worker", alarms.register_receiver("mine").await);
    forbidden(jobs.list(&JobFilter::any().error("password"), &Page::first(1)).await);
    forbidden(Dead::on(&client).groups(&JobFilter::any(), 10).await);
    forbidden_without("operator", jobs.cancel(ready, by).await);
    forbidden(jobs.promote(ready, by).await);
    forbidden(jobs.redrive(dead, by).await);
    forbidden(jobs.delete(dead, by).await);
    forbidden(jobs.update(ready, &JobUpdate::new().priority(1), by).await);
    forbidden(Dead::on(&client).redrive(&JobFilter::any(), by).await);
    forbidden(Queues::on(&client).pause("default", by).await);
    forbidden(Queues::on(&client).resume("default", by).await);
    forbidden(Queues::on(&client).set("default", &QueueChange::new().max_lost(1), by).await);
    forbidden(Schedules::on(&client).add(&nightly(), false, by).await);
    forbidden(Schedules::on(&client).pause("nightly", by).await);
    forbidden(Schedules::on(&client).resume("nightly", by).await);
    forbidden(Schedules::on(&client).remove("nightly", by).await);
    forbidden(Schedules::on(&client).run_now("nightly", by).await);
    assert_eq!(office.audits().await, 0);
}

#[tokio::test]
async fn producer_reads_nothing() {
    let office = Office::new().await;
    let id = office.ready().await;
    let client = as_role(&office, "producer").await;
    forbidden_without("viewer", Jobs::on(&client).get(id).await);
    forbidden(Jobs::on(&client).count(&JobFilter::any(), 10).await);
    forbidden(Queues::on(&client).names().await);
    forbidden(Workers::on(&client).list(false).await);
    forbidden(Schedules::on(&client).list().await);
}
