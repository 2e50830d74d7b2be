//! `leasehold serve`: the services on a database, with the workers that they need.
//!
//! In reading order: this file starts and stops; [`mod@pastes`] and [`mod@annotations`] read their part
//! of the command line ([`given`], [`web_options`]) and have the service; [`parts`] is what they share;
//! [`listen`] binds an address.
//!
//! # Invariants
//! - All settings are checked before anything listens.
//! - A stop accepts no new requests, lets running ones end, then stops the worker: every request that got
//!   a response is committed, and waiting uploads are left to the next worker.

pub mod annotations;
mod given;
mod listen;
mod parts;
pub mod pastes;
mod web_options;

use std::net::SocketAddr;
use std::process::ExitCode;

use leasehold::Leasehold;

use self::annotations::AnnotationOptions;
use self::pastes::{LISTEN, PasteOptions, StoreOptions};
use crate::alarms;
use crate::cli::Common;
use crate::console;
use crate::exit::{Code, Failure};
use crate::housekeeping::{self, Kept};
use crate::run::{self, Signals};

pub use listen::{Wanted, listen, listen_somewhere, named_by, reachable};

#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    /// Run these services. Default: annotations if their tables exist, and pastes if a store is named
    #[arg(long, env = "LEASEHOLD_SERVICES", value_name = "NAMES", value_delimiter = ',')]
    services: Option<Vec<Name>>,
    /// Serve pastes at this address. Put a proxy that speaks https in front before you expose it to the
    /// Internet
    #[arg(long, env = "LEASEHOLD_LISTEN", value_name = "ADDRESS:PORT", default_value = LISTEN)]
    listen: SocketAddr,
    /// Serve requests and run housekeeping, but run no jobs; another process must upload and expire
    /// pastes
    #[arg(long)]
    no_worker: bool,
    /// Run no housekeeping either; another process must take samples, raise alarms and reclaim jobs
    #[arg(long, requires = "no_worker")]
    no_housekeeping: bool,
    #[command(flatten)]
    store: StoreOptions,
    #[command(flatten)]
    pastes: PasteOptions,
    #[command(flatten)]
    annotations: AnnotationOptions,
    #[command(flatten)]
    console: console::ConsoleOptions,
    #[command(flatten)]
    alarms: alarms::AlarmOptions,
}

/// A service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Name {
    Pastes,
    Annotations,
}

const HELP: &str = "\
Examples:
  leasehold migrate up --service pastes
  leasehold serve --store /var/lib/pastes
  leasehold serve --services annotations --annotations-index /var/lib/notes
  leasehold serve --s3-bucket pastes --s3-endpoint http://127.0.0.1:9000 \\
    --pastes-base-url https://paste.example.org --pastes-trusted-proxies 1

Every option with a value can be a variable, such as LEASEHOLD_PASTES_MAX_SIZE=4MiB. LEASEHOLD_LOG \
sets the log level.

SIGTERM or Ctrl-C lets running requests and jobs end; a second one does not wait for them.";

pub async fn run(args: Args, common: &Common) -> Result<ExitCode, Failure> {
    crate::worker::start_logging();
    let out = common.out();
    let address = common.address()?;
    if address.is_of_dev() {
        // Otherwise a forgotten setting would silently fill the throw-away database.
        return Err(Failure::usage("no database is named").hint(
            "set DATABASE_URL (postgres://user@host:5432/name); to use the private database of \
             leasehold dev, use the line that it prints: export DATABASE_URL=…",
        ));
    }
    let wants = |name: Name| args.services.as_ref().map(|services| services.contains(&name));
    let wants_pastes = wants(Name::Pastes).unwrap_or(args.store.is_named());
    // Before anything is opened: mistakes in the settings are reported first.
    args.annotations.settings(&reachable(args.annotations.annotations_listen))?;
    let store = match wants_pastes {
        true => {
            args.pastes.settings(&reachable(args.listen))?;
            Some(args.store.open()?)
        }
        false => None,
    };
    let (ways, console) = (args.alarms.ways()?, args.console.bind().await?);
    // Before connecting: a signal counts even while the database is slow to answer.
    let mut signals = Signals::catch()?;
    let starting = async {
        let engine = common.engine().await?;
        let notes = match wants(Name::Annotations) {
            Some(wanted) => wanted,
            None => are_there(&engine).await?,
        };
        if store.is_none() && !notes {
            return Err(nothing_to_serve());
        }
        let pastes = match store {
            Some(store) => {
                let named = named_by("--listen");
                let wanted = Wanted::find(args.listen).await.map_err(&named)?;
                let settings = args.pastes.settings(&wanted.reachable())?;
                let pastes = pastes::start(engine.clone(), store, settings).await?;
                Some((pastes, wanted.listen().await.map_err(&named)?))
            }
            None => None,
        };
        let notes = match notes {
            true => {
                let (options, works) = (&args.annotations, !args.no_worker);
                let named = named_by("--annotations-listen");
                let wanted = Wanted::find(options.annotations_listen).await.map_err(&named)?;
                let settings = options.settings(&wanted.reachable())?;
                let notes =
                    annotations::start(engine.clone(), &options.index, settings, works).await?;
                Some((notes, wanted.listen().await.map_err(&named)?))
            }
            false => None,
        };
        Ok::<_, Failure>((engine, pastes, notes))
    };
    let (engine, pastes, notes) = tokio::select! {
        started = starting => started?,
        () = signals.next() => return Ok(Code::Interrupted.into()),
    };
    let (stopper, stopping) = run::stopping();
    let (keeping, kept) = match (args.no_worker, args.no_housekeeping) {
        (true, true) => (None, Kept::Elsewhere),
        (true, false) => housekeeping::beside(&engine, "serve", &stopping).await?,
        // The workers below run housekeeping.
        (false, _) => (None, Kept::by(&engine).await?),
    };
    let mut running = Vec::new();
    running.extend(console.map(|console| console.service(&engine, &stopping, kept)));
    running.extend(keeping);
    if let Some(ways) = ways {
        running.push(ways.service(&engine, &stopping).await?);
    }
    if let Some((pastes, listener)) = pastes {
        running.push(pastes::http_service(&pastes, listener, &stopping));
        if !args.no_worker {
            running.push(pastes::working(&pastes, &stopping)?);
        }
    }
    if let Some((notes, listener)) = notes {
        running.push(annotations::http_service(&notes, listener, &stopping));
        if !args.no_worker {
            running.push(annotations::working(&notes, &stopping)?);
        }
    }
    out.print(&address.line())?;
    let stopped = run::announce_and_run(out, running, &[], stopper, signals).await?;
    Ok(stopped.report(out))
}

/// True if the tables of the annotation service exist.
async fn are_there(engine: &Leasehold) -> Result<bool, Failure> {
    let session = engine.database().connect().await?;
    Ok(::annotations::SCHEMA.status(&session).await?.found.is_some())
}

fn nothing_to_serve() -> Failure {
    Failure::usage("no store is named for the content of pastes, and the tables of annotations do not exist").hint(
        "for pastes: --store DIR or --s3-bucket NAME; for annotations: leasehold migrate up --service annotations",
    )
}
