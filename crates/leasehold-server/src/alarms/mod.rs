//! Carrying the word: alarms go to a URL as a signed POST, or to a command, as jobs do.
//!
//! # What is true
//! - The word is a job: it waits while the receiver is down, and is tried again until it is taken, for
//!   a week. Each way has jobs and slots of its own, so that one that fails or hangs neither repeats nor
//!   delays the other.
//! - Nobody hears that an alarm was raised after they heard that it is over.
//! - Where it goes is said by whoever starts this process, never by a row in the database.

use std::sync::Arc;
use std::time::Duration;

use leasehold::alarm::{COMMAND, QUEUE, WEBHOOK};
use leasehold::worker::WorkerBuilder;
use leasehold::{Ctx, JobError, JobResult, Leasehold, Outcome};
use tokio::task::JoinSet;
use tokio_postgres::types::Type;

use crate::dev::services::{Service, Stopping};
use crate::exit::Failure;
use crate::worker::{Program, Receiver, command_for_alarms, receiver_for_alarms};

/// How long a command may take for one word.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);
/// How often we say that we are there.
const DECLARE_EVERY: Duration = Duration::from_secs(3600);

/// Options of every command that can carry the word.
#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Alarms")]
pub struct AlarmOptions {
    /// Sends alarms to this URL as signed POSTs; the secret is in LEASEHOLD_HTTP_SECRET
    #[arg(long, env = "LEASEHOLD_ALARM_WEBHOOK", value_name = "URL", hide_env_values = true)]
    alarm_webhook: Option<String>,
    /// Runs this command for each alarm, with the alarm as JSON on standard input. No shell runs
    #[arg(long, env = "LEASEHOLD_ALARM_COMMAND", value_name = "COMMAND")]
    alarm_command: Option<String>,
    /// Lets --alarm-webhook use plain http, any port and private addresses
    #[arg(long, env = "LEASEHOLD_ALARM_PRIVATE_NETWORK", value_parser = clap::builder::BoolishValueParser::new(), num_args = 0..=1, default_missing_value = "true", default_value = "false")]
    alarm_private_network: bool,
}

/// The ways that were asked for.
pub struct Ways {
    webhook: Option<Arc<Receiver>>,
    command: Option<Arc<Program>>,
}

impl AlarmOptions {
    /// Everything that can be wrong with them is said here. `None`: nobody is to be told.
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
    /// The service that carries the word.
    pub async fn service(
        self,
        engine: &Leasehold,
        stopping: &Stopping,
    ) -> Result<Service, Failure> {
        let (mut names, mut says, mut carriers) = (Vec::new(), Vec::new(), JoinSet::new());
        // Slots of its own for each way: a command that hangs does not keep the webhook from being told.
        let carrier =
            |name: &str| engine.worker().name(name).queue(QUEUE, 4).without_housekeeping();
        if let Some(receiver) = self.webhook {
            names.push(WEBHOOK);
            // Without path and query: tokens travel there.
            says.push(format!("to {}", receiver.url.origin().ascii_serialization()));
            let engine = engine.clone();
            let worker = carrier("alarms-webhook").handle_untyped(WEBHOOK, move |ctx| {
                let (receiver, engine) = (Arc::clone(&receiver), engine.clone());
                async move {
                    match is_over(&engine, &ctx).await? {
                        true => Ok(Outcome::Done),
                        false => receiver.deliver(ctx).await,
                    }
                }
            });
            carriers.spawn(run(worker, stopping.clone()));
        }
        if let Some(program) = self.command {
            names.push(COMMAND);
            says.push(format!("by {}", program.words.first().map_or("", String::as_str)));
            let engine = engine.clone();
            let worker = carrier("alarms-command").handle_untyped(COMMAND, move |ctx| {
                let (program, engine) = (Arc::clone(&program), engine.clone());
                async move {
                    match is_over(&engine, &ctx).await? {
                        true => Ok(Outcome::Done),
                        false => in_time(program.run(ctx)).await,
                    }
                }
            });
            carriers.spawn(run(worker, stopping.clone()));
        }
        declare(engine, &names).await?;
        let declaring = engine.clone();
        let again = async move {
            loop {
                tokio::time::sleep(DECLARE_EVERY).await;
                // Missed once, there are days left.
                if let Err(failure) = declare(&declaring, &names).await {
                    tracing::warn!(%failure, "could not say that alarms are carried from here");
                }
            }
        };
        Ok(Service::new("alarms", format!("tells {}", says.join(" and ")), async move {
            let carrying = async {
                while let Some(ended) = carriers.join_next().await {
                    ended.map_err(|panic| {
                        Failure::failed(format!("a carrier stopped: {panic}"))
                    })??;
                }
                Ok(())
            };
            tokio::select! {
                ended = carrying => ended,
                () = again => Ok(()),
            }
        }))
    }
}

async fn run(worker: WorkerBuilder<()>, stopping: Stopping) -> Result<(), Failure> {
    let (stop, hurry) = (stopping.clone(), stopping);
    Ok(worker.run_until_or_hurry(stop.asked(), hurry.hurried()).await?)
}

/// A raise that comes after its end would say that it is up again. The word of the end says when it began.
async fn is_over(engine: &Leasehold, ctx: &Ctx) -> Result<bool, JobError> {
    let word: serde_json::Value = serde_json::from_slice(ctx.kwargs())?;
    let (Some("raised"), Some(alarm)) = (word["event"].as_str(), word["alarm"].as_i64()) else {
        return Ok(false);
    };
    let client = engine.pool().get().await?;
    let sql = "select leasehold.alarm_is_over($1)";
    let rows = client.query_typed(sql, &[(&alarm, Type::INT8)]).await?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

/// What is left of the command when its time is over is killed.
async fn in_time(running: impl Future<Output = JobResult>) -> JobResult {
    tokio::time::timeout(COMMAND_LIMIT, running).await.unwrap_or_else(|_| {
        let limit = COMMAND_LIMIT.as_secs();
        Err(JobError::retry(format!("the command did not end within {limit} s")))
    })
}

async fn declare(engine: &Leasehold, names: &[&str]) -> Result<(), Failure> {
    let client = engine.pool().get().await.map_err(Failure::failed)?;
    for name in names {
        let sql = "select leasehold.declare_alarm_receiver($1)";
        client.query_typed(sql, &[(name, Type::TEXT)]).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_command_that_does_not_end_is_given_up_and_tried_again() {
        let told = tokio::time::timeout(2 * COMMAND_LIMIT, in_time(std::future::pending()));
        let why = told.await.expect("given up").expect_err("not told");
        assert!(!why.is_permanent(), "{why}");
        assert_eq!(why.to_string(), "the command did not end within 60 s");
    }
}
