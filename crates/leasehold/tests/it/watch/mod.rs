//! Measures and alarms. Time passes by moving rows, never by waiting.

mod alarms;
mod canary;
mod clock;
mod large;
mod others;
mod pauses;
mod sample;
mod series;
mod starved;
mod sweeps;
mod vacuum;

use leasehold::measure::{self, Sampled};
use tokio_postgres::Client;

pub use clock::age;

use crate::sql::{Sql, all, one, run};

/// Moves everything that has a time a minute back, as if a minute had passed, and takes the sample.
pub async fn a_minute_passes(sql: &Sql) -> Sampled {
    age(&sql.client, "1 minute").await;
    measure::sample(&sql.client).await.expect("a sample").expect("a minute has passed")
}

/// Returns the alarms that are up, as `rule subject`.
pub async fn up(client: &Client) -> Vec<String> {
    let sql = "select rule || ' ' || subject from leasehold_internal.alarm where cleared_at is null order by 1";
    all(client, sql, &[]).await
}

/// Returns a value of the last sample; NaN when there is none.
pub async fn value(client: &Client, kind: &str, subject: &str, metric: &str) -> f64 {
    let sql = "select coalesce((select value from leasehold_internal.latest() \
               where kind = $1 and subject = $2 and metric = $3), 'NaN')";
    one(client, sql, &[&kind, &subject, &metric]).await
}

/// Returns how much of a flow was counted, in all minutes; NaN when there is none. The last sample
/// does not have it if the clock's minute turned between the event and the sample.
pub async fn happened(client: &Client, kind: &str, subject: &str, metric: &str) -> f64 {
    let sql = "select coalesce(sum(value), 'NaN') from leasehold_internal.measure \
               where flow and kind = $1 and subject = $2 and metric = $3";
    one(client, sql, &[&kind, &subject, &metric]).await
}

/// Registers a worker that counts as alive, however long the test takes.
pub async fn a_worker(client: &Client, queue: &str) {
    let sql = format!(
        "select leasehold_internal.register_worker('w/1', 'w', 'host', 1, '0', array['{queue}'], '{{}}', 1, 0, false); \
         update leasehold_internal.worker set last_seen_at = now() + interval '1 day'"
    );
    run(client, &sql).await;
}
