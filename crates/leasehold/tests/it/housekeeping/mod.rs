//! Housekeeping: each duty by itself, also while others fail.

mod clock;
mod duties;
mod idle_queues;
mod plain_sql;
mod prune;
mod reserved;
mod rights;
mod samples;
mod schedules;

use std::time::Duration;

use leasehold::housekeeping::HousekeepingConfig;
use tokio_postgres::Client;

use crate::fixture::{count, sql, until};

/// Runs every duty all the time.
pub fn eager() -> HousekeepingConfig {
    let often = Duration::from_millis(10);
    HousekeepingConfig::default().reclaim_every(often).prune_every(often).measure(false)
}

/// Creates something to do for every duty.
pub async fn litter(client: &Client) {
    sql(
        client,
        "insert into leasehold_internal.queue (name) values ('default') on conflict do nothing; \
         insert into leasehold.job (name, tag) values ('lost', 'lost'); \
         select leasehold.claim('dead'); \
         update leasehold_internal.lease set lease_expires_at = now() - interval '1 hour'; \
         insert into leasehold.job (name, scheduled_at, expires_at) values ('late', now() - interval '1 hour', now()); \
         insert into leasehold_internal.lease (lease_generation, lease_expires_at, lease, ended_at, keep_history, queue, \
             claimed_by, job_ids) values (1, now(), '30 s', now() - interval '1 hour', true, 'default', 'w', '{}'); \
         insert into leasehold_internal.idempotency_key (queue, key, job_id, request_hash, holds_until) \
             values ('default', 'old', 0, '', now() - interval '1 hour'); \
         insert into leasehold_internal.once_marker (scope, step, keep_until) values ('s', 'old', now() - interval '1 hour'); \
         insert into leasehold_internal.schedule (name, cron, job_name, next_slot) \
             values ('good', '0 0 1 1 *', 'fired', now() - interval '1 minute')",
    )
    .await;
}

/// Per duty, a query that returns 1 when the duty is done.
pub const DONE: [(&str, &str); 7] = [
    ("reclaim", "select count(*) from leasehold.job where lost_count = 1 and not held"),
    ("walk_jobs", "select count(*) from leasehold_internal.dead_job where cause = 'expired'"),
    (
        "prune_leases",
        "select (count(*) = 0)::int from leasehold_internal.lease where lease_generation = 1",
    ),
    ("prune_keys", "select (count(*) = 0)::int from leasehold_internal.idempotency_key"),
    ("prune_marks", "select (count(*) = 0)::int from leasehold_internal.once_marker"),
    ("fire_schedule", "select count(*) from leasehold.job where name = 'fired'"),
    (
        "extend_history",
        "select (count(*) > 1)::int from pg_inherits where inhparent = 'leasehold_internal.history'::regclass",
    ),
];

/// Waits for all duties except the broken one.
pub async fn done_but(client: &Client, broken: &str) {
    for (duty, sign) in DONE.iter().filter(|(duty, _)| *duty != broken) {
        until(&format!("{duty} is done while {broken} fails"), async || {
            count(client, sign).await == 1
        })
        .await;
    }
}
