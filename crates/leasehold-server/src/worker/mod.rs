//! `leasehold worker`: runs jobs by handing them to other programs.
//!
//! In reading order: this file reads the command line and runs the engine's worker; [`mapping`]
//! says which name goes where; [`exec`] runs a command ([`decision`]: what its end means,
//! [`group`]: how it is stopped); [`http`] sends a request ([`answer`]: what the reply means,
//! [`sign`]: the signature, [`egress`] and [`address`]: where it may go).
//!
//! # What is true
//! - SIGTERM or SIGINT: no new claims, running jobs may finish within `--grace`. A second one cuts
//!   the grace short. What is not finished is handed back and its attempt is not counted.
//! - A name that this worker has no program for is left to other workers.

mod address;
mod answer;
mod decision;
mod egress;
mod exec;
mod group;
mod http;
mod job;
mod mapping;
mod sign;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::cli::Common;
use crate::console::scrape::ScrapeOptions;
use crate::exit::Failure;
use crate::text::parse_duration;
use mapping::{Plan, Way};

pub use exec::Program;
pub use http::Receiver;
pub use mapping::{command_for_alarms, receiver_for_alarms};

#[derive(clap::Args, Debug)]
#[command(after_help = after_help())]
pub struct Args {
    /// Works a queue with up to this many jobs at a time, such as mail=20. Repeat for more queues
    #[arg(long = "queue", short = 'q', value_name = "NAME=SLOTS")]
    queues: Vec<String>,
    /// Runs jobs of this name with a command, such as 'email.send=./send-email --fast'. The command
    /// line is split into words as a shell would, but no shell runs
    #[arg(long = "exec", value_name = "NAME=COMMAND")]
    exec: Vec<String>,
    /// Sends jobs of this name to a URL as a signed POST, such as
    /// email.send=https://example.com/jobs. The secret is in LEASEHOLD_HTTP_SECRET
    #[arg(long = "http", value_name = "NAME=URL")]
    http: Vec<String>,
    /// Runs the commands of --exec with `sh -c`
    #[arg(long)]
    shell: bool,
    /// How long a receiver may take for its whole answer
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    http_timeout: Duration,
    /// Lets --http use plain http, any port and private addresses: for development on one machine.
    /// Whoever controls a URL or its DNS then reaches everything that this machine reaches
    #[arg(long)]
    allow_private_network: bool,
    /// A name for people, shown with the worker's jobs
    #[arg(long, value_name = "NAME", default_value = "worker")]
    name: String,
    /// How long running jobs may go on after a stop
    #[arg(long, value_name = "TIME", default_value = "25s", value_parser = parse_duration)]
    grace: Duration,
    /// How often to look for work when no wake-up comes. Shorter: less waiting after a lost
    /// wake-up, more queries
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_duration)]
    poll: Duration,
    /// Leaves expired leases, schedules and pruning to other workers; one of them must do it
    #[arg(long)]
    no_housekeeping: bool,
    #[command(flatten)]
    scrape: ScrapeOptions,
    /// Kills what a worker that died has left; workers start this themselves
    #[arg(long = "warden", hide = true)]
    warden: bool,
}

fn after_help() -> String {
    format!(
        "Examples:\n  \
         leasehold worker -q mail=20 -q default=10 --exec 'email.send=./send-email --fast'\n  \
         leasehold worker -q hooks --http hook.call=https://example.com/jobs\n\n\
         {}\n\n{}\n\n\
         A command gets the job as JSON on standard input, and LEASEHOLD_JOB_ID, LEASEHOLD_ATTEMPT \
         and LEASEHOLD_GENERATION; no other LEASEHOLD_ variable. It leads a process group of its \
         own, which ends with it.\n\n\
         A receiver gets the same JSON, and headers leasehold-job-id, -attempt, -generation, -fence \
         (a later attempt has the greater text), -idempotency-key (the same in every attempt), \
         -timestamp (seconds) and -signature: v1= and the HMAC-SHA256 of timestamp.body in hex.\n\n\
         {}",
        decision::TABLE,
        answer::TABLE,
        crate::exit::TABLE
    )
}

pub async fn run(args: Args, common: &Common) -> Result<ExitCode, Failure> {
    if args.warden {
        return Ok(group::be_warden().await?);
    }
    start_logging();
    let plan = mapping::plan(&args)?;
    // Before connecting: a stop while the database is slow to answer counts.
    let (stop, hurry) = stop_signals()?;
    let scraped = args.scrape.bind().await?;
    let engine = common.engine().await?;
    let mut worker = engine.worker().name(&args.name).poll_every(args.poll).grace(args.grace);
    for (queue, slots) in &plan.queues {
        worker = worker.queue(queue, *slots);
    }
    if args.no_housekeeping {
        worker = worker.without_housekeeping();
    }
    let ready = ready_line(&args, &plan);
    if let Some(scraped) = &scraped {
        say(&format!("metrics: {}", scraped.url));
    }
    // Until the very end: a worker that drains is one that people look at.
    let scraping = scraped.map(|scraped| tokio::spawn(scraped.answer(engine.clone())));
    for (name, way) in plan.ways {
        worker = match way {
            Way::Exec(program) => {
                let program = Arc::new(program);
                worker.handle_untyped(name, move |ctx| {
                    let program = Arc::clone(&program);
                    async move { program.run(ctx).await }
                })
            }
            Way::Http(receiver) => {
                let receiver = Arc::new(receiver);
                worker.handle_untyped(name, move |ctx| {
                    let receiver = Arc::clone(&receiver);
                    async move { receiver.deliver(ctx).await }
                })
            }
        };
    }
    // The engine waits for the stop only once it is at work.
    let stop = async {
        say(&ready);
        stop.await;
        say("stopping: waiting for the jobs that run; stop again to hand them back at once");
    };
    let ended = worker.run_until_or_hurry(stop, hurry).await;
    if let Some(scraping) = scraping {
        scraping.abort();
    }
    ended?;
    say("stopped");
    Ok(ExitCode::SUCCESS)
}

/// A line for whoever waits for it. Nobody reading is no reason to stop working.
fn say(line: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn ready_line(args: &Args, plan: &Plan) -> String {
    let queues: Vec<String> =
        plan.queues.iter().map(|(queue, slots)| format!("{queue}={slots}")).collect();
    let ways: Vec<String> = plan.ways.iter().map(|(name, way)| format!("{name} {way}")).collect();
    format!("ready: {} works {}; {}", args.name, queues.join(", "), ways.join("; "))
}

/// Two futures: the first stop, and the second.
fn stop_signals() -> std::io::Result<(impl Future<Output = ()>, impl Future<Output = ()>)> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (count, counted) = watch::channel(0);
    tokio::spawn(async move {
        loop {
            let heard = tokio::select! {
                heard = terminate.recv() => heard,
                heard = interrupt.recv() => heard,
            };
            if heard.is_none() {
                return;
            }
            count.send_modify(|count| *count += 1);
        }
    });
    let reached = |wanted: i32| {
        let mut counted = counted.clone();
        async move {
            if counted.wait_for(|count| *count >= wanted).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    Ok((reached(1), reached(2)))
}

/// Logs go to standard error. Leaves an earlier choice alone.
pub fn start_logging() {
    use std::io::IsTerminal;
    let level = tracing_subscriber::EnvFilter::try_from_env("LEASEHOLD_LOG")
        // The library of the index tells of each commit in ten lines; what matters of it we say ourselves.
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,tantivy=warn"));
    let logging = tracing_subscriber::fmt()
        .with_env_filter(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // For collectors: one object a line, with the fields of the job that it is about.
    let _ = match crate::cli::address::environment("LEASEHOLD_LOG_FORMAT").as_deref() {
        Some("json") => logging.json().flatten_event(true).try_init(),
        _ => logging.try_init(),
    };
}
