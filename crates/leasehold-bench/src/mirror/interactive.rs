//! Users who save and search at a steady rate: latency counts from when each request was due.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use annotations::index::{Query, SearchIndex as _};
use annotations::{Annotations, Filter, NewAnnotation, User};
use anyhow::{Result, ensure};
use tokio::task::JoinSet;

use super::Bench;
use crate::load::Measured;

/// A save that the index does not show by then counts as lost.
const UNSEEN: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(2);
/// The polling interval when many saves wait at once.
const SELDOM: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub struct Load {
    pub saves: Measured,
    pub reads: Measured,
    /// Saves and searches that were refused.
    pub failed: u64,
}

impl Load {
    /// Merges the figures of two loads, as if they had been one.
    pub fn add(&mut self, other: &Self) -> Result<()> {
        self.failed += other.failed;
        self.saves.add(&other.saves)?;
        self.reads.add(&other.reads)
    }
}

/// Saves notes one after the other, and polls the index alone until it shows each.
pub async fn visible(bench: &Bench, saves: u64) -> Result<Measured> {
    let mut measured = Measured::new()?;
    for _ in 0..saves {
        measured.record(until_seen(&bench.service, bench, LOOK).await?);
    }
    Ok(measured)
}

/// Like [`visible`], without the direct path, so that each save waits for its pass: many saves at a
/// time, spread over one period.
pub async fn visible_by_pass(bench: &Bench, service: &Annotations, saves: u64) -> Result<Measured> {
    let mut measured = Measured::new()?;
    let pause = service.settings().verify_after.div_f64(saves as f64);
    let all = (0..saves).map(|number| async move {
        tokio::time::sleep(pause.mul_f64(number as f64)).await;
        until_seen(service, bench, SELDOM).await
    });
    for latency in futures_util::future::try_join_all(all).await? {
        measured.record(latency);
    }
    Ok(measured)
}

async fn until_seen(service: &Annotations, bench: &Bench, look: Duration) -> Result<Duration> {
    let word = format!("seen{:016x}", rand::random::<u64>());
    let query = Query { words: Some(word.clone()), limit: 1, ..Query::default() };
    let started = Instant::now();
    service.create(&bench.author, note(&word)).await?;
    while bench.store.search(&query).await?.hits.is_empty() {
        let waited = started.elapsed();
        ensure!(
            waited < UNSEEN + service.settings().verify_after,
            "a save was not seen in the index within {waited:?}"
        );
        tokio::time::sleep(look).await;
    }
    Ok(started.elapsed())
}

/// Saves and searches until `meanwhile` ends. A late request does not delay the next one.
pub async fn run<T>(
    bench: &Bench,
    per_second: u32,
    meanwhile: impl Future<Output = Result<T>>,
) -> Result<(Load, T)> {
    let author = Arc::new(bench.author.clone());
    let mut load = Load { saves: Measured::new()?, reads: Measured::new()?, failed: 0 };
    let mut under_way = JoinSet::new();
    let mut meanwhile = pin!(meanwhile);
    let begun = Instant::now();
    let pause = Duration::from_secs(1) / per_second;
    let mut number = 0;
    let outcome = loop {
        let due = begun + pause * number;
        tokio::select! {
            outcome = &mut meanwhile => break outcome?,
            () = tokio::time::sleep_until(due.into()) => {}
        }
        let (service, author) = (bench.service.clone(), Arc::clone(&author));
        under_way.spawn(async move { (true, save(&service, &author).await, due.elapsed()) });
        let (service, author) = (bench.service.clone(), bench.author.id);
        under_way
            .spawn(async move { (false, read(&service, author, number).await, due.elapsed()) });
        number += 1;
    };
    while let Some(done) = under_way.join_next().await {
        let (is_save, went_well, latency) = done?;
        load.failed += u64::from(!went_well);
        let measured = if is_save { &mut load.saves } else { &mut load.reads };
        measured.record(latency);
    }
    Ok((load, outcome))
}

/// A `meanwhile` that only waits.
pub async fn nothing_for(time: Duration) -> Result<()> {
    tokio::time::sleep(time).await;
    Ok(())
}

async fn save(service: &Annotations, author: &User) -> bool {
    service.create(author, note("What giants?")).await.is_ok()
}

/// The query of a page that is opened; every fifth one also searches for words.
async fn read(service: &Annotations, viewer: i64, number: u32) -> bool {
    let url = Some(format!("https://example.com/page/{}", 1 + number % 2000));
    let q = number.is_multiple_of(5).then(|| "windmills fortune".to_owned());
    let filter = Filter { url, q, ..Filter::default() };
    service.search(Some(viewer), &filter, None, 50).await.is_ok()
}

fn note(text: &str) -> NewAnnotation {
    NewAnnotation {
        url: "https://example.com/bench".to_owned(),
        text: text.to_owned(),
        tags: vec!["bench".to_owned()],
        ..NewAnnotation::default()
    }
}
