//! Carrying the word: alarms go to a URL as a signed POST, or to a command, as jobs do.
//!
//! # What is true
//! - The word is a job: it waits while the receiver is down, and is tried again until it is taken, for
//!   a week. Each way has jobs of its own, so that one that fails does not repeat the other.
//! - Where it goes is said by whoever starts this process, never by a row in the database.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Leasehold;
use leasehold::alarm::{COMMAND, QUEUE, WEBHOOK};
use tokio_postgres::types::Type;

use crate::dev::services::{Service, Stopping};
use crate::exit::Failure;
use crate::worker::{Program, Receiver, command_for_alarms, receiver_for_alarms};

/// How often we say that we are there.
const DECLARE_EVERY: Duration = Duration::from_secs(3600);

/// Options of every command that can carry the word.
#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Alarms")]
pub struct AlarmOptions {
    /// Sends alarms to this URL as signed POSTs; the secret is in LEASEHOLD_HTTP_SECRET
    #[arg(
        long = "alarm-webhook",
        env = "LEASEHOLD_ALARM_WEBHOOK",
        value_name = "URL",
        hide_env_values = true
    )]
    webhook: Option<String>,
    /// Runs this command for each alarm, with the alarm as JSON on standard input. No shell runs
    #[arg(long = "alarm-command", env = "LEASEHOLD_ALARM_COMMAND", value_name = "COMMAND")]
    command: Option<String>,
    /// Lets --alarm-webhook use plain http, any port and private addresses
    #[arg(long = "alarm-private-network", env = "LEASEHOLD_ALARM_PRIVATE_NETWORK", value_parser = clap::builder::BoolishValueParser::new(), num_args = 0..=1, default_missing_value = "true", default_value = "false")]
    private_network: bool,
}

/// The ways that were asked for.
pub struct Ways {
    webhook: Option<Arc<Receiver>>,
    command: Option<Arc<Program>>,
}

impl AlarmOptions {
    /// Everything that can be wrong with them is said here. `None`: nobody is to be told.
    pub fn ways(&self) -> Result<Option<Ways>, Failure> {
        let webhook = match &self.webhook {
            Some(url) => Some(Arc::new(receiver_for_alarms(url, self.private_network)?)),
            None => None,
        };
        let command = match &self.command {
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
        let mut worker = engine.worker().name("alarms").queue(QUEUE, 4).without_housekeeping();
        let (mut names, mut says) = (Vec::new(), Vec::new());
        if let Some(receiver) = self.webhook {
            names.push(WEBHOOK);
            // Without path and query: tokens travel there.
            says.push(format!("to {}", receiver.url.origin().ascii_serialization()));
            worker = worker.handle_untyped(WEBHOOK, move |ctx| {
                let receiver = Arc::clone(&receiver);
                async move { receiver.deliver(ctx).await }
            });
        }
        if let Some(program) = self.command {
            names.push(COMMAND);
            says.push(format!("by {}", program.words.first().map_or("", String::as_str)));
            worker = worker.handle_untyped(COMMAND, move |ctx| {
                let program = Arc::clone(&program);
                async move { program.run(ctx).await }
            });
        }
        declare(engine, &names).await?;
        let (stop, hurry, declaring) = (stopping.clone(), stopping.clone(), engine.clone());
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
            tokio::select! {
                ended = worker.run_until_or_hurry(stop.asked(), hurry.hurried()) => Ok(ended?),
                () = again => Ok(()),
            }
        }))
    }
}

async fn declare(engine: &Leasehold, names: &[&str]) -> Result<(), Failure> {
    let client = engine.pool().get().await.map_err(Failure::failed)?;
    for name in names {
        let sql = "select leasehold.declare_alarm_receiver($1)";
        client.query_typed(sql, &[(name, Type::TEXT)]).await?;
    }
    Ok(())
}
