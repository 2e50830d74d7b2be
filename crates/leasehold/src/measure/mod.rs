//! Measure: what the engine knows of itself.
//!
//! In reading order: this file takes the sample of a minute; [`process`] counts what this process does;
//! [`sweeps`] looks at other people's tables; [`names`] lists every metric; [`text`] writes them down for a scraper; [`canary`] keeps a quiet
//! queue honest.
//!
//! # What is true
//! - One sample a minute for the whole fleet, taken by whoever asks first; the row of the duty is
//!   compared and moved in the statement that writes the sample.
//! - Enqueue, claim and complete do nothing for it: completions are read from history.
//!
//! # What can go wrong
//! - The table of a sweep is locked, slow or gone: its rows are missing in this minute, and nothing else.
//! - Nobody keeps house: nothing is measured and no alarm is raised. A scraper sees it by
//!   `leasehold_sample_age_seconds`.
//! - The sampler dies: the minute is taken by the next one who asks, and what happened in between is
//!   read from history, up to an hour back.

pub mod canary;
pub mod names;
mod numbers;
pub mod process;
mod sweeps;
pub mod text;

use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::alarm::{self, Change};
use crate::database::Database;
use crate::error::CallError;

/// How often a housekeeper asks whether a minute has passed.
pub(crate) const ASK_EVERY: Duration = Duration::from_secs(5);
/// How long a sample and what follows from it may take.
const LIMIT: Duration = Duration::from_secs(45);

/// What one sample was.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// The minute that was sampled, by its beginning.
    pub minute: Timestamp,
    /// Alarms that were raised or cleared.
    pub changes: Vec<Change>,
}

/// Takes the sample of the minute that has ended, if it is due, and judges it. `None`: somebody else
/// does, or did.
///
/// On a session of its own: a count over a long queue must not keep leases from being expired.
pub async fn run_once(database: &Database) -> Result<Option<Sampled>, CallError> {
    let sampling = async {
        let session =
            database.connect().await.map_err(|error| CallError::Connect(Box::new(error)))?;
        sample(&session).await
    };
    tokio::time::timeout(LIMIT, sampling).await.map_err(|_| CallError::TimedOut(LIMIT))?
}

/// The same on a session at hand, which is closed when this is given up half-way.
pub async fn sample(client: &Client) -> Result<Option<Sampled>, CallError> {
    // The server's own limit ends the statement too, not only our waiting for it.
    client.batch_execute("begin; set local statement_timeout = '20s'").await?;
    let taken = take(client).await;
    let end = if taken.is_ok() { "commit" } else { "rollback" };
    let ended = client.batch_execute(end).await;
    let Some(minute) = taken? else { return Ok(None) };
    ended?;
    let changes = alarm::evaluate(client, minute).await?;
    Ok(Some(Sampled { minute, changes }))
}

/// Whoever comes first has the minute until the end of the transaction.
async fn take(client: &Client) -> Result<Option<Timestamp>, CallError> {
    let rows = client.query_typed("select leasehold.take_sample()", &[]).await?;
    let minute = rows.first().and_then(|row| row.get::<_, Option<Timestamp>>(0));
    if let Some(minute) = minute {
        recount(client, minute).await?;
        sweeps::measure(client, minute).await?;
    }
    Ok(minute)
}

/// Short queues beside a very long one. What takes too long stays as the pages said.
async fn recount(client: &Client, minute: Timestamp) -> Result<(), CallError> {
    client.batch_execute("savepoint recount; set local statement_timeout = '5s'").await?;
    let sql = "select leasehold.recount_queues($1)";
    match client.query_typed(sql, &[(&minute, Type::TIMESTAMPTZ)]).await {
        Ok(_) => client.batch_execute("release savepoint recount").await?,
        Err(error) if error.as_db_error().is_some() => {
            tracing::debug!(%error, "short queues were not counted one by one");
            client.batch_execute("rollback to savepoint recount").await?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
