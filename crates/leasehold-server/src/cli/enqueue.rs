//! `leasehold enqueue`: enqueues one job from the command line.
//!
//! # Invariants
//! - Every enqueue has a key, given or generated, and prints it. If the reply is lost, repeating the
//!   command with that key makes no second job.

use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args as ClapArgs;
use leasehold::Draft;
use serde::Serialize;
use serde_json::value::RawValue;

use super::common::Common;
use super::due::{Due, parse_due};
use super::known::{DEFAULT, check_queue};
use super::wait;
use crate::exit::Failure;
use crate::text::{parse_duration, whole};

#[derive(ClapArgs, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    /// Name of the job, which selects its handler, such as email.send
    name: String,
    /// Arguments, a JSON object; @FILE reads a file, - reads standard input
    #[arg(value_name = "JSON|@FILE|-", default_value = "{}")]
    kwargs: String,
    #[arg(long, default_value = DEFAULT, help = "Enqueue into this queue")]
    queue: String,
    /// Set the priority; lower numbers run first
    #[arg(long, default_value_t = 0, allow_hyphen_values = true, value_parser = whole::<i32>(i32::MIN.into(), i32::MAX.into()))]
    priority: i32,
    /// Run at this time: '+5m' from now by the database's clock, or 2026-05-01T09:00:00Z
    #[arg(long, value_parser = parse_due, value_name = "WHEN")]
    at: Option<Due>,
    /// Label the job for operators and metrics
    #[arg(long, default_value = "")]
    tag: String,
    /// Store at most one job under this key, so that a repeat makes no second one. Default: a
    /// generated key, which is printed
    #[arg(long)]
    key: Option<String>,
    /// Keep the key taken for this time, even if the job ends earlier. Default: 24h
    #[arg(long, value_parser = parse_duration, value_name = "TIME", requires = "key")]
    key_ttl: Option<Duration>,
    /// Expire at this time, unless the job has started before it. Default: 30 days after it is due
    #[arg(long, value_parser = parse_due, value_name = "WHEN")]
    expires: Option<Due>,
    /// Hold the job back by the limit of this key, such as tenant:7
    #[arg(long, value_name = "KEY")]
    limit_key: Option<String>,
    /// Bury the job after this many attempts. Default: the setting of the queue
    #[arg(long, value_parser = whole::<i32>(1, i32::MAX.into()))]
    max_attempts: Option<i32>,
    /// Allow a queue that does not exist yet
    #[arg(long)]
    new_queue: bool,
    /// Wait until the job is over and exit by its outcome: 0 completed, 1 dead or cancelled
    #[arg(long)]
    wait: bool,
    /// Stop waiting after this time with exit code 7; the job continues
    #[arg(long, value_parser = parse_duration, requires = "wait", value_name = "TIME")]
    wait_timeout: Option<Duration>,
}

const HELP: &str = "\
Examples:
  leasehold enqueue email.send '{\"to\":\"a@b.c\"}' --queue mail
  leasehold enqueue report.build @report.json --at +5m --key report-2026-05
  leasehold enqueue invoice.sync '{\"id\":1}' --limit-key tenant:7
  jq -c . order.json | leasehold enqueue order.check - --wait --wait-timeout 1m";

#[derive(Serialize)]
struct EnqueuedRow {
    #[serde(serialize_with = "super::record::as_text")]
    id: i64,
    new: bool,
    key: String,
    queue: String,
    name: String,
}

pub async fn run(args: Args, common: &Common) -> Result<ExitCode, Failure> {
    let out = common.out();
    let kwargs = read_kwargs(&args.kwargs)?;
    let db = common.db().await?;
    if args.wait {
        // Reading a job needs another right than enqueueing one: fail before anything is stored.
        db.within(db.jobs().get(leasehold::JobId(0))).await?;
    }
    if !args.new_queue {
        check_queue(&db, &args.queue).await?;
    }
    let key = args.key.clone().unwrap_or_else(|| format!("cli-{}", uuid::Uuid::now_v7().simple()));
    let mut draft = Draft::raw(&args.name, kwargs)
        .queue(&args.queue)
        .priority(args.priority)
        .tag(&args.tag)
        .key(&key);
    draft = match args.at {
        Some(Due::In(delay)) => draft.run_after(delay),
        Some(Due::At(moment)) => draft.run_at(moment),
        None => draft,
    };
    draft = match args.expires {
        Some(Due::In(delay)) => draft.expire_after(delay),
        Some(Due::At(moment)) => {
            let left =
                Duration::try_from(moment.duration_since(db.now().await?)).map_err(|_| {
                    Failure::usage(format!(
                        "--expires is {moment}, which has passed; give a later time"
                    ))
                })?;
            draft.expire_after(left)
        }
        None => draft,
    };
    if let Some(ttl) = args.key_ttl {
        draft = draft.key_ttl(ttl);
    }
    if let Some(attempts) = args.max_attempts {
        draft = draft.max_attempts(attempts);
    }
    if let Some(key) = args.limit_key {
        draft = draft.limit_key(key);
    }
    let stored =
        db.wait(draft.enqueue(db.client())).await.map_err(|failure| match failure.code {
            // It may have been stored: the hint names the key for a safe repeat.
            crate::exit::Code::Unreachable | crate::exit::Code::Timeout => failure.hint(format!(
                "repeat the command with --key {key}: the same key makes no second job"
            )),
            _ => failure,
        })?;
    let id = stored.id().0;
    let answer = EnqueuedRow {
        id,
        new: stored.is_new(),
        key,
        queue: args.queue.clone(),
        name: args.name.clone(),
    };
    out.one("job", &answer, |answer| {
        let what = if answer.new { "enqueued" } else { "was enqueued before" };
        format!("job {} {what} in {} (key {})", answer.id, answer.queue, answer.key)
    })?;
    if !args.wait {
        if let Some(warning) = wait::no_worker(&db, &args.queue, &args.name).await {
            out.warn(format!("{warning}: start one, or correct the queue or the name"));
        }
        return Ok(ExitCode::SUCCESS);
    }
    wait::until_over(&db, out, leasehold::JobId(id), args.wait_timeout).await
}

/// The longest input to read: the engine accepts 64 KiB, and a wrong file must not fill memory.
const LONGEST: u64 = 1 << 20;

fn read_kwargs(given: &str) -> Result<Box<RawValue>, Failure> {
    let text = match (given, given.strip_prefix('@')) {
        ("-", _) => read_all(std::io::stdin().lock(), "standard input")?,
        (_, Some(path)) => {
            let file = std::fs::File::open(path)
                .map_err(|error| Failure::not_found(format!("cannot read {path}: {error}")))?;
            read_all(file, path)?
        }
        _ => given.to_owned(),
    };
    RawValue::from_string(text.trim().to_owned()).map_err(|error| {
        let start = crate::text::one_line(text.trim(), 60);
        Failure::usage(format!("the kwargs are {start:?}, which is not JSON: {error}"))
            .hint("quote them for the shell: '{\"to\":\"a@b.c\"}'")
    })
}

fn read_all(input: impl Read, from: &str) -> Result<String, Failure> {
    let mut text = String::new();
    input
        .take(LONGEST + 1)
        .read_to_string(&mut text)
        .map_err(|error| Failure::usage(format!("cannot read {from}: {error}")))?;
    if text.len() as u64 > LONGEST {
        return Err(Failure::usage(format!(
            "{from} is longer than 1 MiB; a job takes at most 64 KiB"
        ))
        .hint("store the bulk elsewhere and enqueue a reference to it"));
    }
    Ok(text)
}
