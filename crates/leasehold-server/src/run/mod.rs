//! The services of a long-running command (`serve`, `console`, `dev`): a list that starts together and
//! stops together. [`signals`] catches Ctrl-C and SIGTERM.
//!
//! # Invariants
//! - When one service ends by itself, the others are stopped, and its error is the command's.
//! - The first signal lets every service finish its work; the second one cuts it short.

mod signals;

use std::pin::Pin;
use std::process::ExitCode;

use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::exit::{Code, Failure};
use crate::output::Out;
pub use signals::Signals;

type Running = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// A future that runs until it is asked to stop.
pub struct Service {
    name: &'static str,
    /// What it does, in one line of the start-up output.
    description: String,
    run: Running,
}

impl Service {
    pub fn new(
        name: &'static str,
        description: impl Into<String>,
        run: impl Future<Output = Result<(), Failure>> + Send + 'static,
    ) -> Self {
        Self { name, description: description.into(), run: Box::pin(run) }
    }

    pub fn line(&self) -> String {
        format!("{:<13} {}", self.name, self.description)
    }
}

/// The receiver of stop requests, for services.
#[derive(Clone)]
pub struct Stopping {
    stop: CancellationToken,
    immediate: CancellationToken,
}

/// The sender of stop requests. Dropping it is a stop, too.
pub struct Stopper {
    stopping: Stopping,
    _stop_on_drop: DropGuard,
}

pub fn stopping() -> (Stopper, Stopping) {
    let stopping = Stopping { stop: CancellationToken::new(), immediate: CancellationToken::new() };
    let stop_on_drop = stopping.stop.clone().drop_guard();
    (Stopper { stopping: stopping.clone(), _stop_on_drop: stop_on_drop }, stopping)
}

impl Stopping {
    /// Completes when a stop is requested.
    pub async fn asked(self) {
        self.stop.cancelled().await;
    }

    /// Completes when running work must be cut short.
    pub async fn cut_short(self) {
        self.immediate.cancelled().await;
    }
}

/// How the services stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Running work ended.
    InOrder,
    /// A second signal cut running work short.
    CutShort,
}

impl Stopped {
    /// Prints `stopped`, and returns the exit code.
    pub fn report(self, out: Out) -> ExitCode {
        out.note("stopped");
        match self {
            Self::InOrder => ExitCode::SUCCESS,
            Self::CutShort => Code::Interrupted.into(),
        }
    }
}

/// Prints a line per service, `notes` and `ready`, then runs the services until they stop.
pub async fn announce_and_run(
    out: Out,
    services: Vec<Service>,
    notes: &[String],
    stopper: Stopper,
    signals: Signals,
) -> Result<Stopped, Failure> {
    for service in &services {
        out.print(&service.line())?;
    }
    for note in notes {
        out.print(note)?;
    }
    out.print("ready")?;
    run_all(services, stopper, signals).await
}

/// Runs the services until a signal arrives or one of them ends.
async fn run_all(
    services: Vec<Service>,
    stopper: Stopper,
    mut signals: Signals,
) -> Result<Stopped, Failure> {
    let mut running = JoinSet::new();
    for service in services {
        running.spawn(async move { (service.name, service.run.await) });
    }
    let (mut asked, mut cut_short, mut failure) = (false, false, None);
    loop {
        tokio::select! {
            ended = running.join_next() => {
                let Some(ended) = ended else { break };
                let (name, ended) = ended.map_err(|panic| Failure::failed(format!("a service stopped: {panic}")))?;
                if let Err(error) = ended {
                    failure = failure.or(Some(error));
                } else if !asked {
                    failure = failure.or_else(|| Some(Failure::failed(format!("{name} stopped by itself"))));
                }
                stopper.stopping.stop.cancel();
                asked = true;
            }
            () = signals.next() => {
                if asked {
                    cut_short = true;
                    stopper.stopping.immediate.cancel();
                } else {
                    asked = true;
                    stopper.stopping.stop.cancel();
                }
            }
        }
    }
    match failure {
        Some(failure) => Err(failure),
        None if cut_short => Ok(Stopped::CutShort),
        None => Ok(Stopped::InOrder),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn failed_service_stops_the_others() {
        let (stopper, stopping) = stopping();
        let services = vec![
            Service::new("patient", "", async move {
                stopping.asked().await;
                Ok(())
            }),
            Service::new("broken", "", async { Err(Failure::failed("no disk")) }),
        ];
        let ended = run_all(services, stopper, Signals::never()).await;
        assert_eq!(ended.expect_err("the failure").to_string(), "no disk");
    }

    #[tokio::test]
    async fn second_signal_cuts_running_work_short() {
        let (stopper, stopping) = stopping();
        let slow = Service::new("slow", "", async move {
            stopping.clone().asked().await;
            stopping.cut_short().await;
            Ok(())
        });
        assert_eq!(
            run_all(vec![slow], stopper, Signals::ready(2)).await.ok(),
            Some(Stopped::CutShort)
        );
    }
}
