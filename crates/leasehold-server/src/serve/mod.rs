//! `leasehold serve`: the paste service on a database and a store, with the worker that it needs.
//!
//! In reading order: this file starts and stops; [`options`] and [`store`] read the command line.
//!
//! # What is true
//! - Everything that can be wrong with the settings is said before anything listens.
//! - A stop takes no new requests, lets running ones end, then stops the worker: what was answered is
//!   committed, and uploads that wait are the next worker's.

mod options;
mod store;

use std::net::SocketAddr;
use std::process::ExitCode;

use leasehold::Leasehold;
use pastes::{Pastes, Settings, StartError, Store};
use tokio::net::TcpListener;

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
    /// The address to listen on. Put a proxy that speaks https in front of it before the world may
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
    console: console::ConsoleOptions,
    #[command(flatten)]
    alarms: alarms::AlarmOptions,
}

const HELP: &str = "\
Examples:
  leasehold migrate up --service pastes
  leasehold serve --store /var/lib/pastes
  leasehold serve --s3-bucket pastes --s3-endpoint http://127.0.0.1:9000 \\
    --pastes-base-url https://paste.example.org --pastes-trusted-proxies 1

Every option can be a variable, such as LEASEHOLD_PASTES_MAX_SIZE=4MiB. LEASEHOLD_LOG says how much \
is logged.

SIGTERM or Ctrl-C lets running requests and jobs end; a second one does not wait for them.";

pub async fn run(args: Args, common: &Common) -> Result<ExitCode, Failure> {
    crate::worker::start_logging();
    let out = common.out();
    let settings = args.pastes.settings(&reachable(args.listen))?;
    let store = args.store.open()?;
    let (ways, console) = (args.alarms.ways()?, args.console.bind().await?);
    // Before connecting: a stop while the database is slow to answer counts.
    let mut signals = Signals::catch()?;
    let starting = async {
        let engine = common.engine().await?;
        let pastes = start(engine, store, settings).await?;
        Ok::<_, Failure>((pastes, listen(args.listen).await?))
    };
    let (pastes, listener) = tokio::select! {
        started = starting => started?,
        () = signals.next() => return Ok(Code::Interrupted.into()),
    };
    let (stopper, stopping) = services::stopping();
    let mut running = vec![answering(&pastes, listener, &stopping)];
    running.extend(console.map(|console| console.service(pastes.engine(), &stopping)));
    if let Some(ways) = ways {
        running.push(ways.service(pastes.engine(), &stopping).await?);
    }
    if !args.no_worker {
        running.push(working(&pastes, &stopping)?);
    }
    for service in &running {
        out.print(&service.line())?;
    }
    out.print("ready")?;
    let hurried = services::run_all(running, stopper, signals).await?;
    out.note("stopped");
    Ok(if hurried { Code::Interrupted.into() } else { ExitCode::SUCCESS })
}

/// The service on a database whose schemas are there.
pub async fn start(engine: Leasehold, store: Store, settings: Settings) -> Result<Pastes, Failure> {
    let pastes = Pastes::start(engine, store, settings).await?;
    // What a person has said about the queue goes before this.
    let client = pastes.engine().pool().get().await.map_err(Failure::failed)?;
    let sql =
        "select leasehold.watch_queue('pastes', 'leasehold serve', true, of_max_length => 10000)";
    client.query_typed(sql, &[]).await?;
    Ok(pastes)
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
