//! Jobs that never get their turn raise an alarm.

use super::{a_minute_passes, up};
use crate::sql::{Sql, run};

#[tokio::test]
async fn g14_job_of_low_priority_that_is_never_claimed_raises_an_alarm() {
    let sql = Sql::new().await;
    run(
        &sql.client,
        "insert into leasehold.job (name, priority, scheduled_at) \
         values ('whenever', 100, now() - interval '59 minutes')",
    )
    .await;
    for _ in 0..3 {
        // Urgent work without end: the worker is busy, and every minute completes jobs.
        run(
            &sql.client,
            "insert into leasehold.job (name) select 'urgent' from generate_series(1, 5)",
        )
        .await;
        run(
            &sql.client,
            "select leasehold.complete_many(array_agg(id), lease_generation) \
               from leasehold.claim('w', claim_size => 5) group by lease_generation",
        )
        .await;
        a_minute_passes(&sql).await;
    }
    let left = "select name from leasehold.job";
    assert_eq!(crate::sql::all::<String>(&sql.client, left, &[]).await, ["whenever"]);
    assert_eq!(up(&sql.client).await, ["oldest_ready_age default"]);
}
