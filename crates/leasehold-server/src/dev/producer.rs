//! The demo's producer and its status line.

use std::time::Duration;

use leasehold::{Enqueue, EnqueueError, Leasehold};

use super::demo::{BuildReport, DeliverHook, SendEmail, chance};
use crate::exit::Failure;
use crate::output::Out;
use crate::run::Stopping;

/// The producer pauses while more jobs than this wait: a demo must not fill a disk.
const ENOUGH: i64 = 2000;
const STATUS_EVERY: Duration = Duration::from_secs(3);

const NAMES: [&str; 6] = ["ada", "grace", "edsger", "barbara", "tony", "leslie"];
const TEMPLATES: [&str; 3] = ["welcome", "order-confirmed", "password-reset"];

/// Enqueues a few jobs every few hundred milliseconds, and waits while the database is away.
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
            Ok(waiting) if waiting < ENOUGH => {}
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

async fn waiting(engine: &Leasehold) -> Result<i64, Failure> {
    let sql =
        "select count(*) from (select from leasehold.job where queue like 'demo.%' limit 10000) j";
    let client = engine.pool().get().await.map_err(Failure::failed)?;
    Ok(client.query_typed(sql, &[]).await?.first().map_or(0, |row| row.get(0)))
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
    let client = engine.pool().get().await.map_err(Failure::failed)?;
    let rows = client.query_typed(include_str!("../../queries/demo_status.sql"), &[]).await?;
    let row = rows.first().ok_or_else(|| Failure::failed("no answer"))?;
    let number = |at: usize| row.get::<_, i64>(at);
    Ok(format!(
        "completed {}, waiting {}, running {}, retrying {}, dead {}",
        number(0),
        number(1),
        number(2),
        number(3),
        number(4)
    ))
}
