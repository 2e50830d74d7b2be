//! Delivers alarm notifications: to a URL as a signed POST, or to a command, each as a job.
//!
//! # Invariants
//! - A notification is a job: it waits while the receiver is down and is retried for seven days. Webhook
//!   and command have their own jobs and slots, so that one that fails or hangs neither repeats nor
//!   delays the other.
//! - A "raised" notification is never sent after the one that the alarm is over.
//! - The command line or the environment of this process names the receiver, never a row in the
//!   database.

use std::sync::Arc;
use std::time::Duration;

use leasehold::alarm::{COMMAND, QUEUE, WEBHOOK};
use leasehold::events::Events;
use leasehold::service::{CancellationToken, Duty, run_every};
use leasehold::worker::WorkerBuilder;
use leasehold::{AdminError, Ctx, JobError, JobResult, Leasehold, Outcome};
use tokio::task::JoinSet;

use crate::exit::Failure;
use crate::run::{Service, Stopping};
use crate::worker::{Program, Receiver, command_for_alarms, receiver_for_alarms};

/// Timeout of the command for one notification.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);
/// How often this process registers its receivers.
const REGISTER_EVERY: Duration = Duration::from_secs(3600);

/// Options of every command that can deliver alarm notifications.
#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Alarms")]
pub struct AlarmOptions {
    /// Send notifications to this URL as signed POSTs; LEASEHOLD_HTTP_SECRET_ALARMS, else LEASEHOLD_HTTP_SECRET, holds the secret
    #[arg(long, env = "LEASEHOLD_ALARM_WEBHOOK", value_name = "URL", hide_env_values = true)]
    alarm_webhook: Option<String>,
    /// Run this command for each notification, with the alarm as JSON on standard input. No shell runs
    #[arg(long, env = "LEASEHOLD_ALARM_COMMAND", value_name = "COMMAND")]
    alarm_command: Option<String>,
    /// Let --alarm-webhook use plain http, any port and private addresses
    #[arg(long, env = "LEASEHOLD_ALARM_PRIVATE_NETWORK", value_name = "YES", value_parser = clap::builder::BoolishValueParser::new(), num_args = 0..=1, default_missing_value = "true", default_value = "false")]
    alarm_private_network: bool,
}

/// The configured receivers.
pub struct Ways {
    webhook: Option<Arc<Receiver>>,
    command: Option<Arc<Program>>,
}

impl AlarmOptions {
    /// Checks all alarm options. Returns `None` if no receiver is configured.
    pub fn ways(&self) -> Result<Option<Ways>, Failure> {
        let webhook = match &self.alarm_webhook {
            Some(url) => Some(Arc::new(receiver_for_alarms(url, self.alarm_private_network)?)),
            None => None,
        };
        let command = match &self.alarm_command {
            Some(command) => Some(Arc::new(command_for_alarms(command)?)),
            None => None,
        };
        let any = webhook.is_some() || command.is_some();
        Ok(any.then_some(Ways { webhook, command }))
    }
}

impl Ways {
    /// Builds the service that delivers notifications.
    pub async fn service(
        self,
        engine: &Leasehold,
        stopping: &Stopping,
    ) -> Result<Service, Failure> {
        let (mut names, mut ways, mut carriers) = (Vec::new(), Vec::new(), JoinSet::new());
        // Each receiver has its own slots: a command that hangs does not delay the webhook.
        let carrier =
            |name: &str| engine.worker().name(name).queue(QUEUE, 4).without_housekeeping();
        if let Some(receiver) = self.webhook {
            names.push(WEBHOOK);
            // Without path and query: they may contain tokens.
            ways.push(format!("to {}", receiver.url.origin().ascii_serialization()));
            let engine = engine.clone();
            let worker = carrier("alarms-webhook").handle_untyped(WEBHOOK, move |ctx| {
                let (receiver, engine) = (Arc::clone(&receiver), engine.clone());
                async move {
                    let Some(notice) = Notice::of(&engine, &ctx, WEBHOOK).await? else {
                        return Ok(Outcome::Complete);
                    };
                    notice.noted(receiver.deliver(ctx).await).await
                }
            });
            carriers.spawn(run(worker, stopping.clone()));
        }
        if let Some(program) = self.command {
            names.push(COMMAND);
            ways.push(format!("by {}", program.words.first().map_or("", String::as_str)));
            let engine = engine.clone();
            let worker = carrier("alarms-command").handle_untyped(COMMAND, move |ctx| {
                let (program, engine) = (Arc::clone(&program), engine.clone());
                async move {
                    let Some(notice) = Notice::of(&engine, &ctx, COMMAND).await? else {
                        return Ok(Outcome::Complete);
                    };
                    notice.noted(in_time(program.run(ctx)).await).await
                }
            });
            carriers.spawn(run(worker, stopping.clone()));
        }
        // A role without the right must not start.
        register(engine, &names).await?;
        let registering = Registering { engine: engine.clone(), names };
        Ok(Service::new(
            "alarms",
            format!("sends notifications {}", ways.join(" and ")),
            async move {
                let carrying = async {
                    while let Some(ended) = carriers.join_next().await {
                        ended.map_err(|panic| {
                            Failure::failed(format!(
                                "the worker for notifications stopped: {panic}"
                            ))
                        })??;
                    }
                    Ok(())
                };
                let (duty, never) = (
                    Duty::new("register alarm receivers", &Events::default()),
                    CancellationToken::new(),
                );
                tokio::select! {
                    ended = carrying => ended,
                    () = run_every(registering, duty, REGISTER_EVERY, &never) => Ok(()),
                }
            },
        ))
    }
}

async fn run(worker: WorkerBuilder<()>, stopping: Stopping) -> Result<(), Failure> {
    let (stop, immediate) = (stopping.clone(), stopping);
    Ok(worker.run_with_shutdown(stop.asked(), immediate.cut_short()).await?)
}

/// One notification on its way to one receiver.
struct Notice {
    engine: Leasehold,
    receiver: &'static str,
    /// The alarm that was raised. `None`: the notification is of its end, or a test.
    raised: Option<i64>,
}

impl Notice {
    /// Returns `None` if the notification is outdated. A "raised" that arrives after its end would read
    /// as a new alarm; the notification of the end names when the alarm began.
    async fn of(
        engine: &Leasehold,
        ctx: &Ctx,
        receiver: &'static str,
    ) -> Result<Option<Self>, JobError> {
        let notification: serde_json::Value = serde_json::from_slice(ctx.kwargs())?;
        let raised = notification["alarm"].as_i64().filter(|_| notification["event"] == "raised");
        if let Some(alarm) = raised
            && engine.alarms().is_over(alarm).await?
        {
            return Ok(None);
        }
        Ok(Some(Self { engine: engine.clone(), receiver, raised }))
    }

    /// Records a delivery with its alarm. The delivery counts even if recording it fails.
    async fn noted(self, result: JobResult) -> JobResult {
        if let (Ok(Outcome::Complete), Some(alarm)) = (&result, self.raised)
            && let Err(error) = self.engine.alarms().note_delivery(alarm, self.receiver).await
        {
            tracing::warn!(%error, alarm, "the delivery of a notification could not be recorded");
        }
        result
    }
}

/// Applies the timeout. A command that exceeds it is killed.
async fn in_time(running: impl Future<Output = JobResult>) -> JobResult {
    tokio::time::timeout(COMMAND_LIMIT, running).await.unwrap_or_else(|_| {
        let limit = COMMAND_LIMIT.as_secs();
        Err(JobError::retry(format!("the command did not end within {limit} s")))
    })
}

/// Keeps the receivers of this process registered: a registration ends after seven days.
struct Registering {
    engine: Leasehold,
    names: Vec<&'static str>,
}

impl leasehold::service::Service for Registering {
    type Error = AdminError;

    async fn turn(&mut self) -> Result<(), AdminError> {
        register(&self.engine, &self.names).await
    }
}

async fn register(engine: &Leasehold, names: &[&str]) -> Result<(), AdminError> {
    for name in names {
        engine.alarms().register_receiver(name).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn command_without_an_end_is_killed_and_retried() {
        let ended = tokio::time::timeout(2 * COMMAND_LIMIT, in_time(std::future::pending()));
        let why = ended.await.expect("killed in time").expect_err("not delivered");
        assert!(!why.is_permanent(), "{why}");
        assert_eq!(why.to_string(), "the command did not end within 60 s");
    }
}
