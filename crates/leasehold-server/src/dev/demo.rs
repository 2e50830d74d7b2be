//! The demo: the jobs of a small shop, with the failures of real work. Its queues are called `demo.…`,
//! so that they never mix with the user's jobs.

use std::time::Duration;

use leasehold::schedule::Schedule;
use leasehold::worker::Ctx;
use leasehold::{Backoff, Job, JobError, Leasehold, Outcome, Policy};
use serde::{Deserialize, Serialize};

use super::producer;
use crate::output::Out;
use crate::run::{Service, Stopping};

pub const QUEUES: [(&str, usize); 4] =
    [("demo.mail", 20), ("demo.hooks", 10), ("demo.reports", 2), ("demo.cache", 1)];

/// An email to a customer. Mailboxes are busy at times; a later attempt succeeds.
#[derive(Job, Serialize, Deserialize)]
#[job(name = "email.send", queue = "demo.mail", max_attempts = 8)]
pub struct SendEmail {
    pub to: String,
    pub template: String,
}

/// A call to a customer's server. Some are down longer than the retries last, some are gone for good.
#[derive(Serialize, Deserialize)]
pub struct DeliverHook {
    pub url: String,
    pub order: u64,
}

impl Job for DeliverHook {
    const NAME: &'static str = "webhook.deliver";
    const QUEUE: &'static str = "demo.hooks";

    fn policy() -> Policy {
        let backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(8));
        Policy::default().max_attempts(4).backoff(backoff)
    }
}

/// Slow work that may have to wait for its data.
#[derive(Job, Serialize, Deserialize)]
#[job(name = "report.build", queue = "demo.reports")]
pub struct BuildReport {
    pub month: String,
}

/// A job that a schedule enqueues every minute.
#[derive(Job, Serialize, Deserialize)]
#[job(name = "cache.prune", queue = "demo.cache")]
pub struct PruneCache {}

async fn send_email(_letter: SendEmail, ctx: Ctx) -> Result<(), JobError> {
    pause(20..250).await;
    if ctx.attempt() == 1 && chance(0.05) {
        return Err(JobError::retry("451 mailbox busy, try again later"));
    }
    Ok(())
}

async fn deliver_hook(hook: DeliverHook) -> Result<(), JobError> {
    pause(50..400).await;
    match hook.url.as_str() {
        url if url.contains("gone") => Err(JobError::permanent(format!("410 Gone: {url}"))),
        url if url.contains("down") && chance(0.75) => {
            Err(JobError::retry(format!("503 Service Unavailable: {url}")))
        }
        _ => Ok(()),
    }
}

async fn build_report(_report: BuildReport) -> Outcome {
    pause(500..2000).await;
    match chance(0.1) {
        true => Outcome::Snooze(Duration::from_secs(5)),
        false => Outcome::Complete,
    }
}

async fn prune_cache(_: PruneCache) {
    pause(10..50).await;
}

async fn pause(millis: std::ops::Range<u64>) {
    tokio::time::sleep(Duration::from_millis(rand::random_range(millis))).await;
}

pub fn chance(share: f64) -> bool {
    rand::random_bool(share)
}

/// Builds a worker with the demo's handlers, a producer, and a status line every few seconds.
pub fn services(engine: &Leasehold, stopping: &Stopping, out: Out) -> Vec<Service> {
    let mut worker = engine
        .worker()
        .name("demo")
        .handle(send_email)
        .handle(deliver_hook)
        .handle(build_report)
        .handle(prune_cache);
    for (queue, slots) in QUEUES {
        worker = worker.queue(queue, slots);
    }
    // The pattern is valid; if it were not, only the demo would lack a schedule.
    if let Ok(schedule) = Schedule::new("demo.cache", "* * * * *", "UTC", &PruneCache {}) {
        worker = worker.schedule(schedule);
    }
    let queues: Vec<&str> = QUEUES.iter().map(|(queue, _)| *queue).collect();
    let (stop, immediate) = (stopping.clone(), stopping.clone());
    let working =
        async move { Ok(worker.run_with_shutdown(stop.asked(), immediate.cut_short()).await?) };
    vec![
        Service::new(
            "worker",
            format!("runs the demo's jobs in {}, and housekeeping", queues.join(", ")),
            working,
        ),
        Service::new(
            "producer",
            "enqueues emails, webhooks and reports, a few per second; some fail, some die",
            producer::produce(engine.clone(), stopping.clone()),
        ),
        Service::new(
            "status",
            "prints a line on stderr every 3 s; for more: leasehold jobs list, leasehold queues list",
            producer::print_status(engine.clone(), stopping.clone(), out),
        ),
    ]
}
