//! The console: state, alarms and actions of the whole system, on one page.
//!
//! In reading order: this file starts it; [`auth`] decides who may use it ([`sessions`] after a log-in,
//! [`guesses`] counts wrong tokens); [`http`] has the routes; [`read`] queries the database and
//! [`model`] holds the result; [`page`] and [`panels`] render it, one file per panel; [`chart`] draws a
//! chart. [`scrape`] is `/metrics` alone, for workers.
//!
//! # Invariants
//! - It listens on its own address, on this machine only unless there is a token: a proxy in
//!   front of a service must not expose it.
//! - Every number comes from the last sample: the cost of the page does not depend on queue lengths.
//! - The audit log records every change with its reason.

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

/// Options of commands that serve the console beside something else.
#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Console")]
pub struct ConsoleOptions {
    /// Serve the console and /metrics at this address. An address that other machines reach needs a
    /// token in LEASEHOLD_CONSOLE_TOKEN. Default: 127.0.0.1:8090, or a free port if that is taken
    #[arg(long, env = "LEASEHOLD_CONSOLE", value_name = "ADDRESS:PORT")]
    console: Option<SocketAddr>,
    /// Start no console
    #[arg(long, conflicts_with = "console")]
    no_console: bool,
}

#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    /// Serve the console and /metrics at this address. An address that other machines reach needs a
    /// token in LEASEHOLD_CONSOLE_TOKEN. Default: 127.0.0.1:8090, or a free port if that is taken
    #[arg(long, env = "LEASEHOLD_CONSOLE", value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Run no housekeeping; another process must take samples, raise alarms, reclaim jobs and fire
    /// schedules
    #[arg(long)]
    no_housekeeping: bool,
    #[command(flatten)]
    alarms: alarms::AlarmOptions,
}

const HELP: &str = "\
Examples:
  leasehold console
  LEASEHOLD_CONSOLE_TOKEN=… leasehold console --listen 0.0.0.0:8090 --alarm-webhook https://example.com/alarms

The page is at /console, the same data as JSON at /console/api/overview, metrics for a scraper at \
/metrics. leasehold serve and leasehold dev serve it, too.\n\n\
The console also runs housekeeping, so that alarms are raised when every worker is gone: it takes \
samples, evaluates alarms, reclaims jobs of dead workers and fires schedules. Its role must be a member of \
leasehold_housekeeper for that.";

pub async fn run(args: Args, common: &Common) -> Result<ExitCode, Failure> {
    crate::worker::start_logging();
    let out = common.out();
    let (ways, address) = (args.alarms.ways()?, common.address()?);
    let bound = bind(args.listen).await?;
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
    running.push(bound.service(&engine, &stopping, kept));
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
        bind(self.console).await.map(Some)
    }
}

/// Binds the wanted address, or the default one.
async fn bind(wanted: Option<SocketAddr>) -> Result<Bound, Failure> {
    let keeper = Gatekeeper::new(address::environment(TOKEN_VARIABLE))?;
    if let Some(wanted) = wanted {
        keeper.may_listen(wanted)?;
    }
    let listener = crate::serve::listen_somewhere(wanted, LISTEN).await?;
    let url = format!("http://{}/console", crate::serve::reachable(listener.local_addr()?));
    Ok(Bound { listener, keeper, url })
}

impl Bound {
    /// Builds the service that serves requests.
    pub fn service(self, engine: &Leasehold, stopping: &Stopping, kept: Kept) -> Service {
        let router = http::router(engine.clone(), self.keeper, kept);
        let (stop, immediate) = (stopping.clone(), stopping.clone());
        Service::new("console", self.url, async move {
            tokio::select! {
                () = leasehold_http::server::serve(self.listener, router, stop.asked()) => {}
                () = immediate.cut_short() => {}
            }
            Ok(())
        })
    }
}
