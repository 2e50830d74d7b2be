//! The demo's producer and its status line.

use std::time::Duration;

use leasehold::admin::JobFilter;
use leasehold::{Enqueue, EnqueueError, JobState, Leasehold};

use super::demo::{BuildReport, DeliverHook, QUEUES, SendEmail, chance};
use crate::exit::Failure;
use crate::output::Out;
use crate::run::Stopping;

/// The producer pauses while more jobs than this wait: a demo must not fill a disk.
const ENOUGH: u32 = 2000;
const STATUS_EVERY: Duration = Duration::from_secs(3);
/// The status line counts completions of the last hour, up to [`MOST_SHOWN`] per queue.
const SHOWN: Duration = Duration::from_secs(3600);
const MOST_SHOWN: u32 = 100_000;

const NAMES: [&str; 6] = ["ada", "grace", "edsger", "barbara", "tony", "leslie"];
const TEMPLATES: [&str; 3] = ["welcome", "order-confirmed", "password-reset"];

/// Enqueues a few jobs every few hundred milliseconds, and waits while the database is down.
pub async fn produce(engine: Leasehold, stopping: Stopping) -> Result<(), Failure> {
    let queues = ["demo.mail", "demo.hooks"];
    tokio::spawn(engine.canary(queues).run_until(stopping.clone().asked()));
    let mut order: u64 = rand::random_range(10_000..90_000);
    loop {
        let wait = Duration::from_millis(rand::random_range(100..500));
        tokio::select! {
            () = stopping.clone().asked() => return Ok(()),
            () = tokio::time::sleep(wait) => {}
        }
        order += 1;
        match waiting(&engine).await {
            Ok(waiting) if waiting < u64::from(ENOUGH) => {}
            _ => continue,
        }
        if let Err(error) = place_order(&engine, order).await {
            tracing::warn!(%error, "the demo could not enqueue; trying again");
        }
    }
}

async fn place_order(engine: &Leasehold, order: u64) -> Result<(), EnqueueError> {
    let name = pick(&NAMES);
    for _ in 0..rand::random_range(1..4) {
        let to = format!("{name}@example.com");
        SendEmail { to, template: pick(&TEMPLATES).to_owned() }
            .draft()?
            .tag("demo")
            .enqueue(engine)
            .await?;
    }
    if chance(0.5) {
        let host = match rand::random_range(0..100) {
            0..1 => "gone.example.com",
            1..15 => "down.example.com",
            _ => "hooks.example.com",
        };
        let url = format!("https://{host}/orders");
        DeliverHook { url, order }
            .draft()?
            .tag("demo")
            .key(format!("order-{order}"))
            .enqueue(engine)
            .await?;
    }
    if chance(0.1) {
        let month = format!("2026-{:02}", rand::random_range(1..=12));
        BuildReport { month }.draft()?.tag("demo").priority(10).enqueue(engine).await?;
    }
    Ok(())
}

fn pick<'a>(words: &[&'a str]) -> &'a str {
    words.get(rand::random_range(0..words.len())).copied().unwrap_or_default()
}

/// Returns how many jobs of the demo wait, up to a little above [`ENOUGH`] per queue.
async fn waiting(engine: &Leasehold) -> Result<u64, Failure> {
    let mut waiting = 0;
    for (queue, _) in QUEUES {
        let filter = JobFilter::any().queue(queue).waiting();
        waiting += engine.jobs().count(&filter, ENOUGH).await?;
    }
    Ok(waiting)
}

/// Prints a status line every few seconds, from the database.
pub async fn print_status(engine: Leasehold, stopping: Stopping, out: Out) -> Result<(), Failure> {
    loop {
        tokio::select! {
            () = stopping.clone().asked() => return Ok(()),
            () = tokio::time::sleep(STATUS_EVERY) => {}
        }
        match status(&engine).await {
            Ok(line) => out.note(line),
            Err(failure) => out.note(format!("status: {failure}")),
        }
    }
}

async fn status(engine: &Leasehold) -> Result<String, Failure> {
    let mut completed = 0;
    for (queue, _) in QUEUES {
        let filter = JobFilter::any().queue(queue).states([JobState::Completed]).newer(SHOWN);
        completed += engine.jobs().count(&filter, MOST_SHOWN).await?;
    }
    let (mut waiting, mut running, mut retrying, mut dead) = (0, 0, 0, 0);
    for found in engine.queues().list().await? {
        if QUEUES.iter().any(|(queue, _)| *queue == found.queue) {
            waiting += found.scheduled + found.ready;
            running += found.running;
            retrying += found.retrying;
            dead += found.dead + found.dead_expired;
        }
    }
    Ok(format!(
        "completed {completed}, waiting {waiting}, running {running}, retrying {retrying}, dead {dead}"
    ))
}
