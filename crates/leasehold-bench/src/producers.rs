//! `leasehold-bench producers`: what the wake-up costs producers, with one job per durable
//! transaction.
//!
//! Three kinds of rounds alternate: without the trigger, with it while every worker is busy, and with it
//! while a worker is idle, so that every commit sends a NOTIFY. No worker runs: the benchmark measures
//! the producers alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use leasehold::database::{Database, Session};
use tokio_util::sync::CancellationToken;

use leasehold_server::bench::report::Report;
use leasehold_server::bench::server::{BenchServer, checkpoint};
use leasehold_server::progress;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of producers that store jobs at a time
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 32],
          value_parser = clap::value_parser!(u16).range(1..=200))]
    producers: Vec<u16>,
    /// Seconds per round
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Number of rounds of each kind; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Without,
    Busy,
    Idle,
}

const KINDS: [Kind; 3] = [Kind::Without, Kind::Busy, Kind::Idle];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Without => "without",
            Self::Busy => "busy",
            Self::Idle => "idle",
        }
    }
}

/// Jobs per second, and wake-ups per job.
struct Figures {
    rate: f64,
    woken: f64,
}

pub async fn run(server: &BenchServer, args: &Args) -> Result<Report> {
    let session = server.session().await?;
    let mut report = Report::plain("producers");
    report.set("seconds", args.seconds.into()).set("rounds", args.rounds.into());
    report.line(format!(
        "one job per durable transaction, {} rounds of {} s, jobs/s (ratio to the first)",
        args.rounds, args.seconds
    ));
    report.line("  producers   no trigger        workers busy            a worker idle".to_owned());
    let rounds = args.rounds * args.producers.len() as u64 * KINDS.len() as u64;
    let bar = progress("storing", rounds);
    for count in &args.producers {
        let mut all: [Vec<Figures>; 3] = Default::default();
        for _ in 0..args.rounds {
            for (kind, figures) in KINDS.into_iter().zip(&mut all) {
                figures.push(round(server, &session, kind, *count, args.seconds).await?);
                bar.inc(1);
            }
        }
        let [without, busy, idle] = all.map(median);
        for (kind, figures) in KINDS.into_iter().zip([&without, &busy, &idle]) {
            let name = kind.name();
            report.number(&format!("{name}_{count}"), figures.rate);
            if kind != Kind::Without {
                report.number(&format!("{name}_ratio_{count}"), figures.rate / without.rate);
                report.number(&format!("{name}_wake_ups_per_job_{count}"), figures.woken);
            }
        }
        report.line(format!(
            "  {count:>9}   {:>10.0}   {:>10.0} ({:.2})   {:>10.0} ({:.2})",
            without.rate,
            busy.rate,
            busy.rate / without.rate,
            idle.rate,
            idle.rate / without.rate
        ));
    }
    bar.finish_and_clear();
    Ok(report)
}

async fn round(
    server: &BenchServer,
    session: &Session,
    kind: Kind,
    producers: u16,
    seconds: u64,
) -> Result<Figures> {
    let switch = if kind == Kind::Without { "disable" } else { "enable" };
    session
        .batch_execute(&format!(
            "truncate leasehold.job; alter table leasehold.job {switch} trigger job_wakes_idle"
        ))
        .await?;
    checkpoint(session).await?;
    let heard = Arc::new(AtomicU64::new(0));
    let counting = Arc::clone(&heard);
    let database = Database::new(&server.url)?;
    let listening = database.listen(move |_| {
        counting.fetch_add(1, Ordering::Relaxed);
    });
    let (listener, _ended) = listening.await?;
    if kind == Kind::Idle {
        listener.batch_execute("select leasehold_internal.begin_idle('bench')").await?;
    }
    let stop = CancellationToken::new();
    let mut sessions = Vec::new();
    for _ in 0..producers {
        sessions.push(server.session().await?);
    }
    let began = Instant::now();
    let tasks: Vec<_> =
        sessions.into_iter().map(|session| tokio::spawn(store(session, stop.clone()))).collect();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    stop.cancel();
    let mut stored = 0u64;
    for task in tasks {
        stored += task.await??;
    }
    let rate = stored as f64 / began.elapsed().as_secs_f64();
    // Notifications sent before this response have arrived before it.
    listener.batch_execute("select 1").await?;
    let woken = heard.load(Ordering::Relaxed) as f64 / stored.max(1) as f64;
    Ok(Figures { rate, woken })
}

async fn store(session: Session, stop: CancellationToken) -> Result<u64> {
    let insert = session
        .prepare("insert into leasehold.job (queue, name, kwargs) values ('bench', 'noop', '{}')")
        .await?;
    let mut stored = 0;
    while !stop.is_cancelled() {
        session.execute(&insert, &[]).await.context("a job was not stored")?;
        stored += 1;
    }
    Ok(stored)
}

fn median(mut all: Vec<Figures>) -> Figures {
    all.sort_by(|one, other| one.rate.total_cmp(&other.rate));
    let middle = all.len() / 2;
    all.into_iter().nth(middle).unwrap_or(Figures { rate: f64::NAN, woken: f64::NAN })
}
