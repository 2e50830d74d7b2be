//! The console: state, alarms and actions of the whole system, on one page.
//!
//! In reading order: this file starts it; [`auth`] decides who may use it ([`sessions`] after a log-in,
//! [`guesses`] counts wrong tokens); [`http`] has the routes; [`read`] queries the database and
//! [`model`] holds the result; [`page`] and [`panels`] render it, one file per panel; [`chart`] draws a
//! chart. [`scrape`] is `/metrics` alone, for workers.
//!
//! # What is true
//! - It listens on its own address, on this machine only unless there is a token: a proxy in
//!   front of a service must not expose it.
//! - Every number comes from the last sample: the page costs the same however long a queue is.
//! - Every change is recorded with who made it and why.

mod assets;
mod auth;
mod chart;
mod guesses;
mod http;
mod model;
mod page;
mod panels;
mod read;
pub mod scrape;
mod sessions;

use std::net::SocketAddr;
use std::process::ExitCode;

use leasehold::Leasehold;
use tokio::net::TcpListener;

use crate::alarms;
use crate::cli::{Common, address};
use crate::exit::{Code, Failure};
use crate::housekeeping::{self, Kept};
use crate::run::{self, Service, Signals, Stopping};
use auth::Gatekeeper;

/// The default address.
const LISTEN: &str = "127.0.0.1:8090";
/// The variable with the token.
const TOKEN_VARIABLE: &str = "LEASEHOLD_CONSOLE_TOKEN";

/// Options of every command that has a console.
#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Console")]
pub struct ConsoleOptions {
    /// Where the console and /metrics listen. Other machines reach it only if LEASEHOLD_CONSOLE_TOKEN
    /// has a token. Default: 127.0.0.1:8090, or a free port if that is taken
    #[arg(long, env = "LEASEHOLD_CONSOLE", value_name = "ADDRESS:PORT")]
    console: Option<SocketAddr>,
    /// Start no console
    #[arg(long, conflicts_with = "console")]
    no_console: bool,
}

#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    options: ConsoleOptions,
    #[command(flatten)]
    alarms: alarms::AlarmOptions,
    /// Leave sampling, alarms, expired leases and schedules to other processes; one of them must do
    /// it
    #[arg(long)]
    no_housekeeping: bool,
}

const HELP: &str = "\
Examples:
  leasehold console
  LEASEHOLD_CONSOLE_TOKEN=… leasehold console --console 0.0.0.0:8090 --alarm-webhook https://example.com/alarms

The page is at /console, the same as JSON at /console/api/overview, numbers for a scraper at /metrics. \
leasehold serve and leasehold dev have it too.\n\n\
It also keeps house, so that alarms are raised when every worker is gone: it measures, judges, returns \
the jobs of dead workers and fires schedules. Its role needs leasehold_housekeeper for that.";

pub async fn run(args: Args, common: &Common) -> Result<ExitCode, Failure> {
    crate::worker::start_logging();
    let out = common.out();
    if args.options.no_console {
        return Err(Failure::usage(
            "--no-console goes with other commands; this one is the console",
        ));
    }
    let (ways, address) = (args.alarms.ways()?, common.address()?);
    let bound = args.options.bind().await?;
    let mut signals = Signals::catch()?;
    let engine = tokio::select! {
        engine = common.engine() => engine?,
        () = signals.next() => return Ok(Code::Interrupted.into()),
    };
    let (stopper, stopping) = run::stopping();
    let (keeping, kept) = match args.no_housekeeping {
        true => (None, Kept::Elsewhere),
        false => housekeeping::beside(&engine, "console", &stopping).await?,
    };
    let mut running = Vec::new();
    running.extend(bound.map(|bound| bound.service(&engine, &stopping, kept)));
    running.extend(keeping);
    if let Some(ways) = ways {
        running.push(ways.service(&engine, &stopping).await?);
    }
    out.print(&address.line())?;
    let stopped = run::announce_and_run(out, running, &[], stopper, signals).await?;
    Ok(stopped.report(out))
}

/// A bound address, and who may use it.
pub struct Bound {
    listener: TcpListener,
    keeper: Gatekeeper,
    url: String,
}

impl ConsoleOptions {
    /// Binds the address. Returns `None` if the console is off.
    pub async fn bind(&self) -> Result<Option<Bound>, Failure> {
        if self.no_console {
            return Ok(None);
        }
        let keeper = Gatekeeper::new(address::environment(TOKEN_VARIABLE))?;
        if let Some(wanted) = self.console {
            keeper.may_listen(wanted)?;
        }
        let listener = crate::serve::listen_somewhere(self.console, LISTEN).await?;
        let url = format!("http://{}/console", crate::serve::reachable(listener.local_addr()?));
        Ok(Some(Bound { listener, keeper, url }))
    }
}

impl Bound {
    /// Builds the service that answers requests.
    pub fn service(self, engine: &Leasehold, stopping: &Stopping, kept: Kept) -> Service {
        let router = http::router(engine.clone(), self.keeper, kept);
        let (stop, hurry) = (stopping.clone(), stopping.clone());
        Service::new("console", self.url, async move {
            tokio::select! {
                () = leasehold_http::server::serve(self.listener, router, stop.asked()) => {}
                () = hurry.hurried() => {}
            }
            Ok(())
        })
    }
}
