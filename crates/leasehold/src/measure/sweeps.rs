//! The sweeps of a sample, one after the other: their tables belong to other people, who may lock, change or
//! drop them.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::error::CallError;

/// How long a table may keep us: for a lock, and for everything.
const LIMITS: &str = "set local lock_timeout = '1s'; set local statement_timeout = '2s'";
/// Without the table there is nobody to wait for, and a second slow statement would cost the whole sample.
const WITHOUT: &str = "rollback to savepoint sweep; set local statement_timeout = '10s'";
/// How long all of them may. Those beyond are measured without their tables.
const ALL: Duration = Duration::from_secs(10);

/// Measures every sweep in the transaction of the sample.
pub(super) async fn measure(client: &Client, minute: Timestamp) -> Result<(), CallError> {
    let rows = client.query_typed("select leasehold.measured_sweeps()", &[]).await?;
    client.batch_execute(LIMITS).await?;
    let give_up = Instant::now() + ALL;
    for row in &rows {
        let sweep: &str = row.get(0);
        let looks = Instant::now() < give_up;
        client.batch_execute("savepoint sweep").await?;
        match one(client, sweep, minute, looks).await {
            Ok(looked) => {
                if !looked {
                    tracing::debug!(sweep, "the table of a sweep could not be measured");
                }
            }
            // Out of time, as a rule. What the database refused is undone; all else ends the sample.
            Err(error) if error.as_db_error().is_some() => {
                tracing::debug!(sweep, %error, "the table of a sweep could not be measured");
                client.batch_execute(WITHOUT).await?;
                one(client, sweep, minute, false).await?;
                client.batch_execute(LIMITS).await?;
            }
            Err(error) => return Err(error.into()),
        }
        client.batch_execute("release savepoint sweep").await?;
    }
    Ok(())
}

async fn one(
    client: &Client,
    sweep: &str,
    minute: Timestamp,
    looks: bool,
) -> Result<bool, tokio_postgres::Error> {
    let sql = "select leasehold.measure_sweep($1, $2, $3)";
    let params =
        [(&sweep as _, Type::TEXT), (&minute as _, Type::TIMESTAMPTZ), (&looks as _, Type::BOOL)];
    let rows = client.query_typed(sql, &params).await?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}
