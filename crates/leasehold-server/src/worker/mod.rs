//! `leasehold worker`: runs jobs by passing them to other programs.
//!
//! In reading order: this file reads the command line and runs the engine's worker; [`mapping`] maps
//! names to programs; [`exec`] runs a command ([`environment`]: its variables, [`decision`]: the meaning
//! of its end, [`group`]: how it is stopped); [`http`] sends a request ([`answer`]: the meaning of the
//! response, [`sign`]: the signature, [`egress`] and [`address`]: where it may go).
//!
//! # Invariants
//! - SIGTERM or SIGINT: no new claims; running jobs may finish within `--grace`. A second signal ends
//!   the grace period. Unfinished jobs are released, and their attempt is not counted.
//! - Jobs whose name has no program here are left to other workers.

mod address;
mod answer;
mod decision;
mod egress;
mod environment;
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

use leasehold::Fleet;
use leasehold::worker::{StopSignals, WorkerBuilder};

use crate::cli::databases::Databases;
use crate::cli::{Common, address as database_address};
use crate::console::scrape::{Measured, ScrapeOptions};
use crate::exit::Failure;
use crate::text::parse_duration;
use mapping::{Plan, Way};

pub use exec::Program;
pub use http::Receiver;
pub use mapping::{command_for_alarms, receiver_for_alarms};

#[derive(clap::Args, Debug)]
#[command(after_help = after_help())]
pub struct Args {
    /// Work a queue with up to this many jobs at a time, such as mail=20. Repeat for more queues
    #[arg(long = "queue", short = 'q', value_name = "NAME=SLOTS")]
    queues: Vec<String>,
    /// Run jobs of this name with a command, such as 'email.send=./send-email --fast'. The command
    /// line is split into words as a shell would, but no shell runs
    #[arg(long = "exec", value_name = "NAME=COMMAND")]
    exec: Vec<String>,
    /// Send jobs of this name to a URL as a signed POST, such as
    /// email.send=https://example.com/jobs. The secret is in
    /// LEASEHOLD_HTTP_SECRET_EMAIL_SEND, or for all names in LEASEHOLD_HTTP_SECRET
    #[arg(long = "http", value_name = "NAME=URL")]
    http: Vec<String>,
    /// Run the commands of --exec with `sh -c`
    #[arg(long)]
    shell: bool,
    /// Pass this variable of the worker to commands, such as DATABASE_URL. Otherwise commands do not see
    /// LEASEHOLD_… variables, DATABASE_URL, PGPASSWORD, AWS_SECRET_ACCESS_KEY and similar secrets
    #[arg(long = "exec-env", value_name = "VARIABLE", requires = "exec")]
    exec_env: Vec<String>,
    /// Limit the time of a receiver's whole response
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    http_timeout: Duration,
    /// Let --http use plain http, any port and private addresses: for development on one machine.
    /// An attacker who controls a URL or its DNS then reaches everything that this machine reaches
    #[arg(long)]
    allow_private_network: bool,
    /// Name the worker; the name is shown with its jobs
    #[arg(long, value_name = "NAME", default_value = "worker")]
    name: String,
    /// Let running jobs continue for this time after a stop
    #[arg(long, value_name = "TIME", default_value = "25s", value_parser = parse_duration)]
    grace: Duration,
    /// Poll for jobs this often when no wake-up arrives. Shorter: less waiting after a lost wake-up,
    /// more queries
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_duration)]
    poll: Duration,
    /// Run no housekeeping; another worker must reclaim jobs, fire schedules and prune
    #[arg(long)]
    no_housekeeping: bool,
    /// Keep error texts out of the log and out of the table, for programs whose errors may hold
    /// secrets. Passwords in URLs and connection strings are always replaced
    #[arg(long, env = "LEASEHOLD_HIDE_ERRORS", value_name = "YES", value_parser = clap::builder::BoolishValueParser::new(), num_args = 0..=1, default_missing_value = "true", default_value = "false")]
    hide_errors: bool,
    #[command(flatten)]
    databases: Databases,
    #[command(flatten)]
    scrape: ScrapeOptions,
    /// Kill the commands of a worker that died; workers start this themselves
    #[arg(long = "warden", hide = true)]
    warden: bool,
}

fn after_help() -> String {
    format!(
        "Examples:\n  \
         leasehold worker -q mail=20 -q default=10 --exec 'email.send=./send-email --fast'\n  \
         leasehold worker -q hooks --http hook.call=https://example.com/jobs\n  \
         leasehold worker -q mail=20 --exec email.send=./send --database eu=postgres://eu/shop --database us=postgres://us/shop\n\n\
         {}\n\n{}\n\n\
         A command gets the job as JSON on standard input, and LEASEHOLD_JOB_ID, LEASEHOLD_ATTEMPT \
         and LEASEHOLD_GENERATION. With --database the JSON has the name of the job's database. It does not see the worker's secrets: no other LEASEHOLD_ variable, \
         nor DATABASE_URL, PGPASSWORD, AWS_SECRET_ACCESS_KEY and similar secrets, unless --exec-env \
         names them. It leads a process group of its \
         own, which ends with it.\n\n\
         A receiver gets the same JSON, and headers leasehold-job-id, -attempt, -generation, -fence \
         (a later attempt has the greater text), and those of Standard Webhooks: webhook-id (the same in \
         every attempt), webhook-timestamp (seconds) and webhook-signature: v1, and the HMAC-SHA256 of \
         id.timestamp.body in base64. \
         The secret of one name is in LEASEHOLD_HTTP_SECRET_<NAME>, such as \
         LEASEHOLD_HTTP_SECRET_EMAIL_SEND, else in LEASEHOLD_HTTP_SECRET: whsec_ and base64, as made by \
         echo whsec_$(openssl rand -base64 32). Receivers on different servers need different secrets. To \
         change a secret, set new,old: requests then carry both signatures.\n\n\
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
    let fleet = args.databases.fleet(common)?;
    // Before connecting: a signal counts even while the database is slow to answer.
    let (stop, immediate) = StopSignals::catch()?.stop_and_immediate();
    let scraped = args.scrape.bind().await?;
    let address = match &fleet {
        None => common.address()?.line(),
        Some(fleet) => fleet_line(fleet),
    };
    let measured = match &fleet {
        None => Measured::One(common.engine().await?),
        Some(fleet) => Measured::Fleet(fleet.clone()),
    };
    print_line(&address);
    let ready = ready_line(&args, &plan);
    if let Some(scraped) = &scraped {
        print_line(&format!("metrics: {}", scraped.url));
    }
    // Until the very end: operators watch the metrics of a draining worker.
    let scraping = scraped.map(|scraped| tokio::spawn(scraped.answer(measured.clone())));
    // The engine polls the stop future only once it is working; a fleet at once, because each database starts by
    // itself.
    let stop = async {
        print_line(&ready);
        stop.await;
        print_line("stopping: waiting for running jobs; a second signal releases them at once");
    };
    let settings = Settings::new(&args, plan);
    let ended = match measured {
        Measured::One(engine) => {
            settings.set(engine.worker()).run_with_shutdown(stop, immediate).await
        }
        Measured::Fleet(fleet) => {
            let worker = fleet.worker().each(move |worker| settings.set(worker));
            worker.run_with_shutdown(stop, immediate).await
        }
    };
    if let Some(scraping) = scraping {
        scraping.abort();
    }
    ended?;
    print_line("stopped");
    Ok(ExitCode::SUCCESS)
}

/// The settings of the engine's worker, for each database.
struct Settings {
    name: String,
    poll: Duration,
    grace: Duration,
    no_housekeeping: bool,
    hide_errors: bool,
    queues: Vec<(String, usize)>,
    ways: Vec<(String, Arc<Way>)>,
}

impl Settings {
    fn new(args: &Args, plan: Plan) -> Self {
        Self {
            name: args.name.clone(),
            poll: args.poll,
            grace: args.grace,
            no_housekeeping: args.no_housekeeping,
            hide_errors: args.hide_errors,
            queues: plan.queues,
            ways: plan.ways.into_iter().map(|(name, way)| (name, Arc::new(way))).collect(),
        }
    }

    fn set(&self, worker: WorkerBuilder<()>) -> WorkerBuilder<()> {
        let mut worker = worker.name(&self.name).poll_every(self.poll).grace(self.grace);
        for (queue, slots) in &self.queues {
            worker = worker.queue(queue, *slots);
        }
        if self.no_housekeeping {
            worker = worker.without_housekeeping();
        }
        if self.hide_errors {
            worker = worker.hide_error_texts();
        }
        for (name, way) in &self.ways {
            let way = Arc::clone(way);
            worker = worker.handle_untyped(name.as_str(), move |ctx| {
                let way = Arc::clone(&way);
                async move {
                    match &*way {
                        Way::Exec(program) => program.run(ctx).await,
                        Way::Http(receiver) => receiver.deliver(ctx).await,
                    }
                }
            });
        }
        worker
    }
}

/// A line for the start: the databases by their names.
fn fleet_line(fleet: &Fleet) -> String {
    let each = fleet.handles().map(|engine| {
        let address = database_address::describe(engine.database().config());
        format!("{} = {address}", engine.name().unwrap_or_default())
    });
    format!("{:<13} {}", "databases", each.collect::<Vec<_>>().join(", "))
}

/// Prints a line. A closed stdout is no reason to stop working.
fn print_line(line: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn ready_line(args: &Args, plan: &Plan) -> String {
    let queues: Vec<String> =
        plan.queues.iter().map(|(queue, slots)| format!("{queue}={slots}")).collect();
    let ways: Vec<String> = plan.ways.iter().map(|(name, way)| format!("{name} {way}")).collect();
    format!("ready: {} works {}; {}", args.name, queues.join(", "), ways.join("; "))
}

/// Logs to standard error. Keeps an earlier subscriber.
pub fn start_logging() {
    use std::io::IsTerminal;
    let level = tracing_subscriber::EnvFilter::try_from_env("LEASEHOLD_LOG")
        // The index library logs ten lines per commit; we log what matters of it ourselves.
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,tantivy=warn"));
    let logging = tracing_subscriber::fmt()
        .with_env_filter(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // For log collectors: one object per line, with the fields of its job.
    let _ = match crate::cli::address::environment("LEASEHOLD_LOG_FORMAT").as_deref() {
        Some("json") => logging.json().flatten_event(true).try_init(),
        _ => logging.try_init(),
    };
}
