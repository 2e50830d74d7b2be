//! `leasehold dev`: everything on one machine, in one command.
//!
//! # Invariants
//! - The private server keeps its data and dies with this process, even by kill -9.
//! - Services stop first, then the server, so that finished work is recorded.
//!
//! # What can go wrong
//! - The server dies: workers keep retrying; stop and start again.

mod annotating;
mod demo;
mod pasting;
mod producer;
mod server;

use std::path::PathBuf;
use std::process::ExitCode;

use leasehold::Leasehold;
use leasehold::migrate;

use crate::cli::{Common, address};
use crate::exit::{Code, Failure};
use crate::housekeeping::Kept;
use crate::output::{Out, Style};
use crate::run::{self, Service, Signals, Stopped, Stopping};
use server::Server;

#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    /// Keep the data of the private server here. Default: leasehold in the user's data directory
    /// (XDG_DATA_HOME, ~/.local/share, ~/Library/Application Support; as root /var/lib/leasehold)
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Run jobs to watch: some queues, failures that are retried, a few that die, a schedule
    #[arg(long)]
    demo: bool,
    #[command(flatten)]
    pasting: pasting::Options,
    #[command(flatten)]
    annotating: annotating::Annotating,
    #[command(flatten)]
    console: crate::console::ConsoleOptions,
    #[command(flatten)]
    alarms: crate::alarms::AlarmOptions,
}

const HELP: &str = "\
Examples:
  leasehold dev --demo
  DATABASE_URL=postgres://me@localhost/app leasehold dev
  echo hello | leasehold paste

With DATABASE_URL (or --database-url) this command migrates and uses that database. Without it, it \
starts a private PostgreSQL from the installed binaries, reachable through a socket that only you can \
open. Other commands find that server while it runs. With --data they need the DATABASE_URL that this \
command prints.

Ctrl-C or SIGTERM stops everything in order and exits with 0; a second one does not wait for \
running jobs and exits with 130.";

pub async fn run(args: Args, common: &Common) -> Result<ExitCode, Failure> {
    let out = common.out();
    // Before the server starts: a signal from here on must stop it in order.
    let mut signals = Signals::catch()?;
    let server = tokio::select! {
        server = Server::find(args.data.clone(), common) => server?,
        () = signals.next() => return Ok(Code::Interrupted.into()),
    };
    let ended = serve(&args, out, &server, signals).await;
    let stopped = server.stop().await;
    match ended {
        Ok(ended) => {
            stopped?;
            Ok(ended.report(out))
        }
        Err(failure) => Err(failure),
    }
}

async fn serve(
    args: &Args,
    out: Out,
    server: &Server,
    signals: Signals,
) -> Result<Stopped, Failure> {
    let database = leasehold::database::Database::new(server.url())?;
    let address = address::describe(database.config());
    let mut session =
        database.connect().await.map_err(|error| Failure::from(error).at(&address))?;
    leasehold::database::Database::check_server(&session).await?;
    let mut applied = migrate::up(&mut session).await?;
    let store = args.pasting.store(server);
    if store.is_some() {
        applied.extend(::pastes::SCHEMA.up(&mut session).await?);
    }
    let annotating = args.annotating.wanted(server);
    if annotating {
        applied.extend(::annotations::migrate(&mut session).await?);
    }
    drop(session);
    let engine = Leasehold::from_database(database).await?;
    let (stopper, stopping) = run::stopping();
    let mut services = match args.demo {
        true => demo::services(&engine, &stopping, out),
        false => vec![housekeeping(&engine, &stopping)],
    };
    let pastes = match &store {
        Some(store) => Some(args.pasting.start(&engine, store, server, &stopping).await?),
        None => None,
    };
    let link = pastes.map(|(pasting, link)| {
        services.extend(pasting);
        link
    });
    if annotating {
        services.extend(args.annotating.start(&engine, server, args.demo, &stopping).await?);
    }
    if let Some(console) = args.console.bind().await? {
        services.push(console.service(&engine, &stopping, Kept::Here));
    }
    if let Some(ways) = args.alarms.ways()? {
        services.push(ways.service(&engine, &stopping).await?);
    }
    announce(out, server, &address, applied.len())?;
    let notes = first_steps(out, server, link.as_deref());
    run::announce_and_run(out, services, &notes, stopper, signals).await
}

/// Without --demo there are no handlers: this program does not know the user's.
fn housekeeping(engine: &Leasehold, stopping: &Stopping) -> Service {
    let description = "reclaims jobs of dead workers, fires schedules, prunes; runs no jobs: start your own worker, or leasehold worker";
    crate::housekeeping::service(engine, "dev", description, stopping)
}

fn announce(out: Out, server: &Server, address: &str, applied: usize) -> Result<(), Failure> {
    let migrated = match applied {
        0 => "schema current".to_owned(),
        applied => crate::text::count(applied, "migration") + " applied",
    };
    match server {
        Server::Named { origin, .. } => {
            out.print(&format!("{:<13} {address} (named by {origin}), {migrated}", "database"))?;
        }
        Server::Private { postgres, .. } => {
            out.print(&format!(
                "{:<13} private PostgreSQL, kept in {}, {migrated}",
                "database",
                postgres.dir().display()
            ))?;
            out.print(&format!("{:<13} {}", "log", postgres.log_path().display()))?;
        }
    }
    Ok(())
}

/// Returns lines with commands to try, each after an empty one.
fn first_steps(out: Out, server: &Server, pastes: Option<&str>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Server::Private { url, .. } = server {
        lines.push(String::new());
        lines.push(out.paint(Style::Strong, &format!("export DATABASE_URL='{url}'")));
    }
    if let Some(url) = pastes {
        lines.push(String::new());
        lines.push(format!("echo hello | curl --data-binary @- {url}/"));
    }
    lines.push(String::new());
    lines
}
