//! `leasehold serve`: the services on a database, with the workers that they need.
//!
//! In reading order: this file starts and stops; [`options`] and [`store`] read the command line for
//! pastes, [`annotations`] for annotations.
//!
//! # What is true
//! - Everything that can be wrong with the settings is said before anything listens.
//! - A stop takes no new requests, lets running ones end, then stops the worker: what was answered is
//!   committed, and uploads that wait are the next worker's.

pub mod annotations;
mod options;
mod store;

use std::net::SocketAddr;
use std::process::ExitCode;

use leasehold::Leasehold;
use pastes::{Pastes, Settings, StartError, Store};
use tokio::net::TcpListener;
use tokio_postgres::types::{ToSql, Type};

use self::annotations::AnnotationOptions;
use crate::alarms;
use crate::cli::Common;
use crate::console;
use crate::dev::services::{self, Service, Stopping};
use crate::dev::signals::Signals;
use crate::exit::{Code, Failure};
use options::PasteOptions;
use store::StoreOptions;

/// Where the service listens when nobody says.
pub const LISTEN: &str = "127.0.0.1:8080";

#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    /// What to serve. Default: annotations when their tables are there, and pastes when a store is
    /// named
    #[arg(long, env = "LEASEHOLD_SERVICES", value_name = "NAMES", value_delimiter = ',')]
    services: Option<Vec<Name>>,
    /// The address that pastes listen on. Put a proxy that speaks https in front of it before the world may
    /// reach it
    #[arg(long, env = "LEASEHOLD_LISTEN", value_name = "ADDRESS:PORT", default_value = LISTEN)]
    listen: SocketAddr,
    /// Only answers requests: uploads, expiry and schedules are left to other processes, and one of
    /// them must do it
    #[arg(long)]
    no_worker: bool,
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

Every option can be a variable, such as LEASEHOLD_PASTES_MAX_SIZE=4MiB. LEASEHOLD_LOG says how much \
is logged.

SIGTERM or Ctrl-C lets running requests and jobs end; a second one does not wait for them.";

pub async fn run(args: Args, common: &Common) -> Result<ExitCode, Failure> {
    crate::worker::start_logging();
    let out = common.out();
    let wants = |name: Name| args.services.as_ref().map(|services| services.contains(&name));
    let wants_pastes = wants(Name::Pastes).unwrap_or(args.store.is_named());
    let notes_settings = args.annotations.settings(&reachable(args.annotations.listen))?;
    // Before anything is opened: a slip in the settings is said first.
    let pastes = match wants_pastes {
        true => {
            let settings = args.pastes.settings(&reachable(args.listen))?;
            Some((settings, args.store.open()?))
        }
        false => None,
    };
    let (ways, console) = (args.alarms.ways()?, args.console.bind().await?);
    // Before connecting: a stop while the database is slow to answer counts.
    let mut signals = Signals::catch()?;
    let starting = async {
        let engine = common.engine().await?;
        let notes = match wants(Name::Annotations) {
            Some(wanted) => wanted,
            None => are_there(&engine).await?,
        };
        if pastes.is_none() && !notes {
            return Err(nothing_to_serve());
        }
        let pastes = match pastes {
            Some((settings, store)) => {
                let pastes = start(engine.clone(), store, settings).await?;
                Some((pastes, listen(args.listen).await?))
            }
            None => None,
        };
        let notes = match notes {
            true => {
                let options = &args.annotations;
                let works = !args.no_worker;
                let notes =
                    annotations::start(engine.clone(), &options.index, notes_settings, works)
                        .await?;
                Some((notes, listen(options.listen).await?))
            }
            false => None,
        };
        Ok::<_, Failure>((engine, pastes, notes))
    };
    let (engine, pastes, notes) = tokio::select! {
        started = starting => started?,
        () = signals.next() => return Ok(Code::Interrupted.into()),
    };
    let (stopper, stopping) = services::stopping();
    let mut running = Vec::new();
    running.extend(console.map(|console| console.service(&engine, &stopping)));
    if let Some(ways) = ways {
        running.push(ways.service(&engine, &stopping).await?);
    }
    if let Some((pastes, listener)) = pastes {
        running.push(answering(&pastes, listener, &stopping));
        if !args.no_worker {
            running.push(working(&pastes, &stopping)?);
        }
    }
    if let Some((notes, listener)) = notes {
        running.push(annotations::answering(&notes, listener, &stopping));
        if !args.no_worker {
            running.push(annotations::working(&notes, &stopping)?);
        }
    }
    for service in &running {
        out.print(&service.line())?;
    }
    out.print("ready")?;
    let hurried = services::run_all(running, stopper, signals).await?;
    out.note("stopped");
    Ok(if hurried { Code::Interrupted.into() } else { ExitCode::SUCCESS })
}

/// True when the tables of the annotation service are there.
async fn are_there(engine: &Leasehold) -> Result<bool, Failure> {
    let session = engine.database().connect().await?;
    Ok(::annotations::SCHEMA.status(&session).await?.found.is_some())
}

fn nothing_to_serve() -> Failure {
    Failure::usage("no store is named for the content of pastes, and there are no annotations").hint(
        "for pastes: --store DIR or --s3-bucket NAME; for annotations: leasehold migrate up --service annotations",
    )
}

/// The service on a database whose schemas are there.
pub async fn start(engine: Leasehold, store: Store, settings: Settings) -> Result<Pastes, Failure> {
    let pastes = Pastes::start(engine, store, settings).await?;
    watch(pastes.engine(), "pastes", &[]).await?;
    Ok(pastes)
}

/// The most jobs that wait before somebody is told, without those of bulk tags.
const MOST_WAITING: i64 = 10_000;

/// Has a queue watched: an alarm is raised when nothing gets done in it, or too much waits. What a
/// person has said about the queue goes before this.
async fn watch(engine: &Leasehold, queue: &str, bulk_tags: &[&str]) -> Result<(), Failure> {
    let client = engine.pool().get().await.map_err(Failure::failed)?;
    let sql = "select leasehold.watch_queue($1, 'leasehold serve', true, of_max_length => $2, \
               of_bulk_tags => $3)";
    let params: [(&(dyn ToSql + Sync), Type); 3] =
        [(&queue, Type::TEXT), (&MOST_WAITING, Type::INT8), (&bulk_tags, Type::TEXT_ARRAY)];
    client.query_typed(sql, &params).await?;
    Ok(())
}

pub async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        let failure = match error.kind() {
            std::io::ErrorKind::AddrInUse => Failure::conflict(format!("{address} is in use")),
            _ => Failure::failed(format!("cannot listen on {address}: {error}")),
        };
        failure.hint("choose another address: --listen 127.0.0.1:8081")
    })
}

/// The part that answers requests.
pub fn answering(pastes: &Pastes, listener: TcpListener, stopping: &Stopping) -> Service {
    let router = pastes::router(pastes.clone());
    let (stop, hurry) = (stopping.clone(), stopping.clone());
    // As long as pastes can be made here, their queue hears of it.
    let canary = pastes.engine().canary(["pastes"]).run_until(stopping.clone().asked());
    Service::new("pastes", format!("{}/", pastes.settings().base_url), async move {
        let serving = pastes::http::serve(listener, router, stop.asked());
        let serving = async { tokio::join!(serving, canary) };
        tokio::select! {
            _ = serving => {}
            () = hurry.hurried() => {}
        }
        Ok(())
    })
}

/// The part that uploads, expires and cleans up.
pub fn working(pastes: &Pastes, stopping: &Stopping) -> Result<Service, Failure> {
    let worker = pastes::worker(pastes, pastes.engine().worker().name("pastes"))?;
    let (stop, hurry) = (stopping.clone(), stopping.clone());
    Ok(Service::new("worker", "uploads pastes, deletes expired ones, keeps house", async move {
        Ok(worker.run_until_or_hurry(stop.asked(), hurry.hurried()).await?)
    }))
}

/// The address in links: nobody can open 0.0.0.0.
pub fn reachable(address: SocketAddr) -> String {
    match address.ip().is_unspecified() {
        true => format!("localhost:{}", address.port()),
        false => address.to_string(),
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Settings(text) => Self::usage(text),
            StartError::Store(_) => Self::failed(&error)
                .hint("name a directory that can be written, or check the bucket and its keys"),
            StartError::NotMigrated => Self::conflict(
                "the tables of the paste service are not there, or of another release",
            )
            .hint("run: leasehold migrate up --service pastes"),
            StartError::Unavailable(why) => Self::new(Code::Unreachable, why),
        }
    }
}
