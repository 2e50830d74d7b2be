//! People who save and search, at a steady rate: latency counts from when each was due.

use std::sync::Arc;
use std::time::{Duration, Instant};

use annotations::index::{Query, SearchIndex as _};
use annotations::{Annotations, Filter, NewAnnotation, User};
use anyhow::{Result, bail};
use tokio::task::JoinSet;

use super::Bench;
use crate::bench::load::Measured;

/// A save that is not seen by then is lost.
const UNSEEN: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(2);

#[derive(Clone, Debug)]
pub struct Load {
    pub saves: Measured,
    pub reads: Measured,
    /// Saves and searches that were refused.
    pub failed: u64,
}

/// Saves one after the other, and looks for each in the index alone until it is there.
pub async fn visible(bench: &Bench, saves: u64) -> Result<Measured> {
    let mut measured = Measured::new()?;
    let begun = Instant::now();
    for _ in 0..saves {
        let word = format!("seen{:016x}", rand::random::<u64>());
        let query = Query { words: Some(word.clone()), limit: 1, ..Query::default() };
        let started = Instant::now();
        bench.service.create(&bench.author, note(&word)).await?;
        while bench.store.search(&query).await?.hits.is_empty() {
            if started.elapsed() > UNSEEN {
                bail!("a save was not seen in the index within {UNSEEN:?}");
            }
            tokio::time::sleep(LOOK).await;
        }
        measured.record(started.elapsed());
    }
    measured.time = begun.elapsed();
    Ok(measured)
}

/// Saves and searches for some time. A request that is late does not hold the next one back.
pub async fn run(bench: &Bench, per_second: u32, time: Duration) -> Result<Load> {
    let author = Arc::new(bench.author.clone());
    let mut load = Load { saves: Measured::new()?, reads: Measured::new()?, failed: 0 };
    let mut under_way = JoinSet::new();
    let begun = Instant::now();
    let pause = Duration::from_secs(1) / per_second;
    for number in 0.. {
        let due = begun + pause * number;
        if due >= begun + time {
            break;
        }
        tokio::time::sleep_until(due.into()).await;
        let (service, author) = (bench.service.clone(), Arc::clone(&author));
        under_way.spawn(async move { (true, save(&service, &author).await, due.elapsed()) });
        let (service, author) = (bench.service.clone(), bench.author.id);
        under_way
            .spawn(async move { (false, read(&service, author, number).await, due.elapsed()) });
    }
    while let Some(done) = under_way.join_next().await {
        let (is_save, went_well, latency) = done?;
        load.failed += u64::from(!went_well);
        let measured = if is_save { &mut load.saves } else { &mut load.reads };
        measured.record(latency);
    }
    load.saves.time = time;
    load.reads.time = time;
    Ok(load)
}

async fn save(service: &Annotations, author: &User) -> bool {
    service.create(author, note("What giants?")).await.is_ok()
}

/// What a page asks when it is opened, and now and then words.
async fn read(service: &Annotations, viewer: i64, number: u32) -> bool {
    let url = Some(format!("https://example.com/page/{}", 1 + number % 2000));
    let q = (number % 5 == 0).then(|| "windmills fortune".to_owned());
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
