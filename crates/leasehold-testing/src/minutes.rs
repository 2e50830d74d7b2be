//! Minutes that end when a test decides, for tests of samples and alarms.
//!
//! [`TestEngine::advance`](crate::TestEngine::advance) moves everything, workers and leases too; these
//! functions let live workers stay alive while minutes pass.

#![allow(clippy::expect_used, reason = "a test stops at the first surprise")]

use jiff::Timestamp;
use leasehold::alarm;
use tokio_postgres::Client;

use crate::sql;

/// Moves jobs, samples and alarms into the past by an interval such as `10 minutes`. Leases and workers
/// stay as they are, so that live workers stay alive.
pub async fn age(client: &Client, by: &str) {
    let age = format!("interval '{by}'");
    for table in ["measure", "measure_hour"] {
        // In two steps: in one, the rows would collide on the way. No reader sees them there.
        let there = format!(
            "update leasehold_internal.{table} set at = at - ({age} + interval '1000 days')"
        );
        let back = format!("update leasehold_internal.{table} set at = at + interval '1000 days'");
        sql(client, &format!("{there}; {back}")).await;
    }
    for (table, columns) in [
        ("duty", "ran_at"),
        ("tally", "at"),
        ("history", "finished_at"),
        ("watch", "since"),
        ("dead_job", "died_at expires_at"),
        ("job", "enqueued_at scheduled_at expires_at"),
        ("idempotency_key", "holds_until created_at"),
        ("alarm", "raised_at cleared_at seen_at silenced_until acknowledged_at notified_at"),
    ] {
        let set: Vec<String> =
            columns.split(' ').map(|column| format!("{column} = {column} - {age}")).collect();
        let schema = if table == "job" { "leasehold" } else { "leasehold_internal" };
        sql(client, &format!("update {schema}.{table} set {}", set.join(", "))).await;
    }
}

/// Takes the sample of the previous minute. Minutes of the real clock may have ended since the last
/// sample: earlier samples are shifted so that there is no gap, and everything since the last sample
/// moves into the sampled minute. One message has one time, so no minute can end in between.
const SAMPLE: &str = "do $$
declare
    minute constant timestamptz := date_trunc('minute', statement_timestamp()) - interval '1 minute';
    last constant timestamptz := (select ran_at from leasehold_internal.duty where name = 'measure');
    passed constant interval := case when isfinite(last) then minute - last else interval '0' end;
    earliest constant timestamptz := case when isfinite(last) then '-infinity' else minute end;
    latest constant timestamptz := minute + interval '59 seconds';
begin
    if passed <> interval '0' then
        -- In two steps: in one step the rows would collide on the way.
        update leasehold_internal.measure set at = at + passed + interval '1000 days';
        update leasehold_internal.measure set at = at - interval '1000 days';
        update leasehold_internal.duty set ran_at = ran_at + passed where isfinite(ran_at);
    end if;
    update leasehold_internal.history
       set finished_at = greatest(least(finished_at + passed, latest), earliest);
    update leasehold_internal.tally set at = greatest(least(at + passed, latest), earliest);
    if leasehold_internal.sample() is distinct from minute then
        raise exception 'the sample was not taken';
    end if;
    perform leasehold_internal.measure_sweeps(minute);
end $$";

/// Lets a minute pass, then samples and evaluates it. Live workers stay alive.
pub async fn pass_minute(client: &Client) {
    age(client, "1 minute").await;
    sql(client, SAMPLE).await;
    let query =
        "select ran_at - interval '1 minute' from leasehold_internal.duty where name = 'measure'";
    let minute: Timestamp = client.query_one(query, &[]).await.expect("a sample").get(0);
    alarm::evaluate(client, minute).await.expect("an evaluation");
}
