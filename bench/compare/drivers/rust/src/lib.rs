//! What the drivers in Rust share: the command line, the ledger, and the loops that every peer goes through.
//!
//! A driver implements [`Peer`] and passes it to [`run`].

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::sync::watch;

const BULK: u64 = 5000;
const FEED: u64 = 1000;
const WAITING: u64 = 5000;
const WARM: u64 = 10;

/// Seconds since 1970: the runner compares them with its own clock.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn print(message: &Value) {
    println!("{message}");
}

/// What the runner asked for.
#[derive(Clone, Debug)]
pub struct Options {
    pub command: String,
    pub database: String,
    pub jobs: u64,
    pub connections: usize,
    pub names: u64,
    pub priorities: u64,
    pub keys: u64,
    pub ledger: Option<String>,
    /// The handler inserts a row.
    pub row: bool,
    pub how: String,
    pub history: bool,
    pub feed: bool,
    pub filler: String,
}

impl Options {
    fn read() -> Result<Self> {
        let mut arguments = std::env::args().skip(1);
        let command = arguments
            .next()
            .context("a command is missing: setup, enqueue, single, work or latency")?;
        let mut given = BTreeMap::new();
        while let Some(name) = arguments.next() {
            let value = arguments.next().with_context(|| format!("{name} has no value"))?;
            given.insert(name, value);
        }
        let text = |name: &str| given.get(name).cloned();
        let whole = |name: &str, otherwise: u64| match given.get(name) {
            Some(value) => value
                .parse()
                .with_context(|| format!("{name} is {value}; it must be a whole number")),
            None => Ok(otherwise),
        };
        Ok(Self {
            command,
            database: text("--database").context("--database is missing")?,
            jobs: whole("--jobs", 1000)?,
            connections: usize::try_from(whole("--connections", 20)?)?,
            names: whole("--names", 1)?.max(1),
            priorities: whole("--priorities", 1)?.max(1),
            keys: whole("--keys", 0)?,
            ledger: text("--ledger"),
            row: text("--handler").as_deref() == Some("row"),
            how: text("--how").unwrap_or_else(|| "plain".into()),
            history: text("--history").is_some(),
            feed: text("--feed").is_some(),
            filler: filler(whole("--bytes", 0)?),
        })
    }

    pub fn name(&self, n: u64) -> String {
        format!("job_{}", n % self.names)
    }

    pub fn priority(&self, n: u64) -> u64 {
        n / self.names % self.priorities
    }

    /// The key that limits the job; empty without keys.
    pub fn key(&self, n: u64) -> String {
        if self.keys == 0 { String::new() } else { format!("key_{}", n % self.keys) }
    }

    pub fn data(&self, n: u64) -> Value {
        if self.filler.is_empty() {
            json!({ "n": n })
        } else {
            json!({ "n": n, "filler": self.filler })
        }
    }
}

/// Incompressible text, the same in every driver.
fn filler(bytes: u64) -> String {
    const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut x: u64 = 1;
    (0..bytes)
        .map(|_| {
            x = (x * 1_103_515_245 + 12_345) % 2_147_483_648;
            char::from(LETTERS[((x >> 16) % 62) as usize])
        })
        .collect()
}

/// Which jobs ran, how often, and when.
#[derive(Debug)]
pub struct Ledger {
    jobs: u64,
    runs: Vec<AtomicU8>,
    ran: AtomicU64,
    step: u64,
    marks: Mutex<Vec<(u64, f64)>>,
    first: Mutex<f64>,
    running: Vec<AtomicU32>,
    together: AtomicU32,
    /// When each handler started, in microseconds; for latencies only.
    starts: Vec<AtomicU64>,
}

impl Ledger {
    fn new(jobs: u64, keys: u64, starts: bool) -> Self {
        Self {
            jobs,
            runs: (0..jobs).map(|_| AtomicU8::new(0)).collect(),
            ran: AtomicU64::new(0),
            step: (jobs / 20).max(1),
            marks: Mutex::default(),
            first: Mutex::new(0.0),
            running: (0..keys).map(|_| AtomicU32::new(0)).collect(),
            together: AtomicU32::new(0),
            starts: (0..if starts { jobs } else { 0 }).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// A ledger of this many jobs, for peers whose setup needs a handler.
    pub fn of(jobs: u64) -> Self {
        Self::new(jobs, 0, false)
    }

    /// Records that the handler of a job has started.
    pub fn started(&self, n: u64) {
        let Some(runs) = self.runs.get(n as usize) else { return };
        let ran = self.ran.fetch_add(1, Ordering::Relaxed) + 1;
        runs.fetch_add(1, Ordering::Relaxed);
        if ran == 1 {
            *self.first.lock().unwrap_or_else(PoisonError::into_inner) = now();
        }
        if ran.is_multiple_of(self.step) {
            self.marks.lock().unwrap_or_else(PoisonError::into_inner).push((ran, now()));
        }
        if let Some(start) = self.starts.get(n as usize) {
            start.store((now() * 1e6) as u64, Ordering::Relaxed);
        }
        if !self.running.is_empty() {
            let running =
                self.running[n as usize % self.running.len()].fetch_add(1, Ordering::Relaxed) + 1;
            self.together.fetch_max(running, Ordering::Relaxed);
        }
        if ran == self.jobs {
            print(&json!({ "ran": ran }));
        }
    }

    /// Records that the handler of a job has ended.
    pub fn ended(&self, n: u64) {
        if !self.running.is_empty() {
            self.running[n as usize % self.running.len()].fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn ran(&self) -> u64 {
        self.ran.load(Ordering::Relaxed)
    }

    /// Writes how often each job ran, one byte per job.
    fn write(&self, options: &Options) -> Result<()> {
        let runs: Vec<u8> = self.runs.iter().map(|runs| runs.load(Ordering::Relaxed)).collect();
        std::fs::write(options.ledger.as_ref().context("--ledger is missing")?, runs)?;
        Ok(())
    }

    fn result(&self) -> Value {
        json!({
            "done": true,
            "ran": self.ran(),
            "first": *self.first.lock().unwrap_or_else(PoisonError::into_inner),
            "marks": *self.marks.lock().unwrap_or_else(PoisonError::into_inner),
            "together": self.together.load(Ordering::Relaxed),
        })
    }
}

/// Ends when the worker must stop.
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    pub async fn requested(mut self) {
        // An error means that the sender is gone, which is a stop as well.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}

/// An error that means: the peer does not have what the work needs.
#[derive(Debug)]
pub struct Lacking(pub &'static str);

impl std::fmt::Display for Lacking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Lacking {}

/// A queue under test.
pub trait Peer: Send + Sync + Sized + 'static {
    /// Installs the schema in an empty database. This and `transaction` run in the main task: futures
    /// that borrow a connection of sqlx in a generic call are not known to be `Send`.
    fn setup(options: &Options) -> impl Future<Output = Result<()>>;
    fn open(
        options: Arc<Options>,
        ledger: Arc<Ledger>,
    ) -> impl Future<Output = Result<Self>> + Send;
    /// Stores jobs by the fastest call that the peer has.
    fn bulk(&self, jobs: Range<u64>) -> impl Future<Output = Result<()>> + Send;
    fn plain(&self, n: u64) -> impl Future<Output = Result<()>> + Send;
    fn keyed(&self, n: u64) -> impl Future<Output = Result<()>> + Send;
    /// Inserts a row and stores a job in one transaction, and calls `before` just before its COMMIT.
    fn transaction(&self, n: u64, before: impl FnOnce() + Send)
    -> impl Future<Output = Result<()>>;
    /// Runs a worker until the stop.
    fn work(&self, stop: Stop) -> impl Future<Output = Result<()>> + Send;
}

/// Runs the command that the runner asks for, and prints the result.
pub fn run<P: Peer>() -> std::process::ExitCode {
    let done = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| {
            let done = runtime.block_on(command::<P>());
            // Reading stdin blocks a thread, which must not delay the end.
            runtime.shutdown_background();
            done
        });
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) if error.is::<Lacking>() => {
            print(&json!({ "done": true, "lacks": error.to_string() }));
            std::process::ExitCode::SUCCESS
        }
        Err(error) => {
            print(&json!({ "error": format!("{error:#}") }));
            std::process::ExitCode::FAILURE
        }
    }
}

async fn command<P: Peer>() -> Result<()> {
    let options = Arc::new(Options::read()?);
    if options.command == "setup" {
        P::setup(&options).await?;
        print(&json!({ "done": true }));
        return Ok(());
    }
    let is_latency = options.command == "latency";
    let ledger = Arc::new(Ledger::new(
        options.jobs + if is_latency { WARM } else { 0 },
        options.keys,
        is_latency,
    ));
    let peer = Arc::new(P::open(Arc::clone(&options), Arc::clone(&ledger)).await?);
    match options.command.as_str() {
        "enqueue" => {
            let start = now();
            for first in (0..options.jobs).step_by(BULK as usize) {
                peer.bulk(first..(first + BULK).min(options.jobs)).await?;
            }
            print(&json!({ "done": true, "seconds": now() - start }));
        }
        "single" => single(&*peer, &options).await?,
        "work" => work(peer, &options, &ledger).await?,
        "latency" => latency(peer, &options, &ledger).await?,
        other => bail!("unknown command: {other}; use setup, enqueue, single, work or latency"),
    }
    Ok(())
}

async fn single<P: Peer>(peer: &P, options: &Options) -> Result<()> {
    let start = now();
    for n in 0..options.jobs {
        match options.how.as_str() {
            "plain" => peer.plain(n).await?,
            "transaction" => peer.transaction(n, || ()).await?,
            _ => peer.keyed(n).await?,
        }
    }
    print(&json!({ "done": true, "seconds": now() - start }));
    Ok(())
}

async fn feed<P: Peer>(peer: &P, jobs: u64, ledger: &Ledger) -> Result<()> {
    for first in (0..jobs).step_by(FEED as usize) {
        while first.saturating_sub(ledger.ran()) > WAITING - FEED {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        peer.bulk(first..(first + FEED).min(jobs)).await?;
    }
    Ok(())
}

async fn work<P: Peer>(peer: Arc<P>, options: &Options, ledger: &Arc<Ledger>) -> Result<()> {
    let (stop, stopped) = watch::channel(false);
    let worker = {
        let peer = Arc::clone(&peer);
        tokio::spawn(async move { peer.work(Stop(stopped)).await })
    };
    let feeding = async {
        if options.feed {
            feed(&*peer, options.jobs, ledger).await?;
        }
        std::future::pending::<Result<()>>().await
    };
    let reporting = async {
        let mut shown = 0;
        loop {
            if ledger.ran() != shown {
                shown = ledger.ran();
                print(&json!({ "ran": shown }));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let mut rest = Vec::new();
    let mut stdin = tokio::io::stdin();
    let mut worker = worker;
    tokio::select! {
        _ = stdin.read_to_end(&mut rest) => {}
        ended = &mut worker => {
            ended??;
            bail!("the worker ended before its stop");
        }
        failed = feeding => failed?,
        () = reporting => {}
    }
    ledger.write(options)?;
    print(&ledger.result());
    stop.send_replace(true);
    // A worker may finish what it holds; the figures are complete without it.
    let _ = tokio::time::timeout(Duration::from_secs(8), worker).await;
    Ok(())
}

async fn latency<P: Peer>(peer: Arc<P>, options: &Options, ledger: &Arc<Ledger>) -> Result<()> {
    let (stop, stopped) = watch::channel(false);
    let worker = {
        let peer = Arc::clone(&peer);
        tokio::spawn(async move { peer.work(Stop(stopped)).await })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut before = Vec::new();
    for n in 0..WARM + options.jobs {
        peer.transaction(n, || before.push(now() * 1e6)).await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for _ in 0..500 {
        if ledger.ran() >= WARM + options.jobs || worker.is_finished() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let waits: Vec<f64> = ledger
        .starts
        .iter()
        .zip(&before)
        .skip(WARM as usize)
        .map(|(start, before)| (start.load(Ordering::Relaxed) as f64, before))
        .filter(|(start, _)| *start > 0.0)
        .map(|(start, before)| (start - before) / 1000.0)
        .collect();
    if worker.is_finished() {
        worker.await??;
        bail!("the worker ended before its stop");
    }
    ledger.write(options)?;
    print(&json!({ "done": true, "latency_ms": waits }));
    stop.send_replace(true);
    let _ = tokio::time::timeout(Duration::from_secs(8), worker).await;
    Ok(())
}
