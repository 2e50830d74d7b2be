//! Measure: what the engine knows of itself.
//!
//! In reading order: this file takes the sample of a minute; [`process`] counts what this process does;
//! [`names`] lists every metric; [`text`] writes them down for a scraper; [`canary`] keeps a quiet
//! queue honest.
//!
//! # What is true
//! - One sample a minute for the whole fleet, taken by whoever asks first; the row of the duty is
//!   compared and moved in the statement that writes the sample.
//! - Enqueue, claim and complete do nothing for it: completions are read from history.
//!
//! # What can go wrong
//! - Nobody keeps house: nothing is measured and no alarm is raised. A scraper sees it by
//!   `leasehold_sample_age_seconds`.
//! - The sampler dies: the minute is taken by the next one who asks, and what happened in between is
//!   read from history, up to an hour back.

pub mod canary;
pub mod names;
mod numbers;
pub mod process;
pub mod text;

use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::Client;

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
        if !database.is_pooled() {
            // The server's own limit ends the statement too, not only our waiting for it.
            session.batch_execute("set statement_timeout = '20s'").await?;
        }
        sample(&session).await
    };
    tokio::time::timeout(LIMIT, sampling).await.map_err(|_| CallError::TimedOut(LIMIT))?
}

/// The same on a session at hand.
pub async fn sample(client: &Client) -> Result<Option<Sampled>, CallError> {
    let rows = client.query_typed("select leasehold.take_sample()", &[]).await?;
    let Some(minute) = rows.first().and_then(|row| row.get::<_, Option<Timestamp>>(0)) else {
        return Ok(None);
    };
    let changes = alarm::evaluate(client, minute).await?;
    Ok(Some(Sampled { minute, changes }))
}
