//! Worker processes of the benchmarks of limits.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use leasehold::{JobError, Leasehold, Outcome};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

/// Options of a worker process.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkerArgs {
    /// Slots of the worker
    #[arg(long, default_value_t = 10)]
    slots: usize,
    /// End jobs in every way, by numbers that follow from this one. Default: complete them at once
    #[arg(long)]
    seed: Option<u64>,
}

/// Numbers that are the same in every run.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Works the queue `bench` until the standard input ends, which it does with the parent.
pub async fn work(url: &str, args: &WorkerArgs) -> Result<()> {
    let engine = Leasehold::connect(url).await?;
    let rolls = Arc::new(AtomicU64::new(0));
    let seed = args.seed;
    let worker = engine.worker().name("bench").queue("bench", args.slots).handle_untyped(
        "limited",
        move |_| {
            let n = rolls.fetch_add(1, Ordering::Relaxed);
            async move {
                match seed {
                    None => Ok(Outcome::Complete),
                    Some(seed) => end(&mut Dice::new(seed.wrapping_add(n << 20))).await,
                }
            }
        },
    );
    let parent = async {
        let mut rest = Vec::new();
        drop(tokio::io::stdin().read_to_end(&mut rest).await);
    };
    worker.run_until(parent).await.context("the worker failed")
}

async fn end(dice: &mut Dice) -> Result<Outcome, JobError> {
    tokio::time::sleep(Duration::from_micros(dice.roll(6000))).await;
    let soon = Duration::from_millis(1 + dice.roll(30));
    Ok(match dice.roll(100) {
        0..=79 => Outcome::Complete,
        80..=86 => Outcome::Retry { after: soon, why: "again".to_owned() },
        87..=90 => Outcome::Snooze(soon),
        91..=93 => Outcome::Defer { after: soon, why: "later".to_owned() },
        94..=95 => Outcome::Release,
        96..=97 => Outcome::Cancel("not needed".to_owned()),
        _ => return Err(JobError::permanent("it cannot succeed")),
    })
}

/// Starts a worker process.
pub fn start(url: &str, slots: usize, seed: Option<u64>) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["limits-worker", "--database-url", url, "--slots", &slots.to_string()]);
    if let Some(seed) = seed {
        command.args(["--seed", &seed.to_string()]);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    command.spawn().context("no worker process could be started")
}

/// Sends a signal, such as STOP and CONT.
pub async fn signal(child: &Child, signal: &str) -> Result<()> {
    if let Some(pid) = child.id() {
        let sent = Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status();
        sent.await.context("kill")?;
    }
    Ok(())
}
