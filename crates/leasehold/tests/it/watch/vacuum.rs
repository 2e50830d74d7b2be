//! What keeps Postgres from removing dead rows is named: a session, a prepared transaction, a slot.

use leasehold_testing::{PrivatePostgres, TestDatabase};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::block_in_place;
use tokio_postgres::Client;

use super::{a_minute_passes, up, value};
use crate::fixture::until;
use crate::sql::{Sql, all, one, run};

/// Evaluates the last sample again with another value in it.
async fn judged_as(sql: &Sql, metric: &str, value: f64) {
    let sampled = a_minute_passes(sql).await;
    let text = format!(
        "update leasehold_internal.measure set value = {value} where metric = '{metric}' and at = '{}'",
        sampled.minute
    );
    run(&sql.client, &text).await;
    leasehold::alarm::evaluate(&sql.client, sampled.minute).await.unwrap();
}

async fn summary(client: &Client) -> String {
    let sql = "select summary from leasehold_internal.alarm where rule = 'vacuum_held_back' and cleared_at is null";
    one(client, sql, &[]).await
}

#[tokio::test]
async fn c9_session_that_holds_back_vacuum_is_named_without_its_query() {
    let sql = Sql::new().await;
    let old = sql.actor().await;
    run(&old, "set application_name = E'night\treport'").await;
    run(&old, "begin isolation level repeatable read").await;
    run(&old, "select 'hunter2' from leasehold_internal.queue").await;
    let pid: i32 = one(&old, "select pg_backend_pid()", &[]).await;
    a_minute_passes(&sql).await;
    let age_now = value(&sql.client, "database", "", "oldest_xact_age").await;
    assert!(age_now > 0.0 && age_now < 900.0, "{age_now}");
    assert_eq!(up(&sql.client).await, Vec::<String>::new());
    // The start of its transaction cannot be moved; the measured value can.
    judged_as(&sql, "oldest_xact_age", 901.0).await;
    assert_eq!(up(&sql.client).await, ["vacuum_held_back "]);
    let summary_text = summary(&sql.client).await;
    // PostgreSQL 15 shows a question mark for the tab, later releases its code.
    let application =
        if summary_text.contains("night?report") { "night?report" } else { "night\\x09report" };
    for words in [
        format!(
            "held back by session pid {pid}, application {application}, role postgres, idle in transaction, "
        ),
        format!("end it: select pg_terminate_backend({pid})"),
    ] {
        assert!(summary_text.contains(&words), "{words:?} is not in {summary_text:?}");
    }
    assert!(
        !summary_text.contains("hunter2") && !summary_text.contains("select '"),
        "{summary_text}"
    );
    // The remedy that the alarm names works.
    let ended = format!("select pg_terminate_backend({pid}, 120000)");
    assert!(one::<bool>(&sql.client, &ended, &[]).await);
    a_minute_passes(&sql).await;
    assert_eq!(up(&sql.client).await, Vec::<String>::new());
    assert_eq!(value(&sql.client, "database", "", "oldest_xact_age").await, 0.0);
}

#[tokio::test]
async fn owner_without_the_right_to_read_statistics_sees_session_and_approximate_age() {
    let sql = Sql::new().await;
    let old = sql.actor().await;
    run(&old, "set application_name = 'night report'").await;
    run(&old, "begin; create temporary table t (n int)").await;
    let pid: i32 = one(&old, "select pg_backend_pid()", &[]).await;
    let owner = format!("plain_{pid}_{}", std::process::id());
    run(
        &sql.client,
        &format!(
            "create role {owner}; grant usage, create on schema leasehold, leasehold_internal to {owner}; \
             grant select on leasehold_internal.measure to {owner}; \
             alter function leasehold_internal.vacuum_holders() owner to {owner}"
        ),
    )
    .await;
    let holder = async || {
        let sql_text = "select who || ' ' || remedy || ' ' || round(age / 60) \
                          from leasehold_internal.vacuum_holders()";
        all::<String>(&sql.client, sql_text, &[]).await
    };
    let hidden = format!(
        "session pid {pid}, application night report, role postgres, in a state that only \
         pg_read_all_stats sees end it: select pg_terminate_backend({pid})"
    );
    // There is no sample yet.
    assert_eq!(holder().await, [format!("{hidden} 0")]);
    // Half an hour ago fewer ids had been given out than it has now, ten minutes ago more.
    let sample = async |minutes: i32, than: &str| {
        let text = format!(
            "insert into leasehold_internal.measure select date_trunc('minute', now()) - interval '{minutes} minutes', \
             'database', '', 'next_xid', false, {than}"
        );
        run(&sql.client, &text).await;
    };
    sample(600, "1").await;
    sample(30, "2").await;
    sample(10, "1e18").await;
    let found = holder().await;
    let about = found[0].strip_prefix(&hidden).unwrap().trim().parse::<i32>().unwrap();
    assert!((28..60).contains(&about), "{found:?}");
    // Older than every sample: at least as old as the oldest one.
    run(&sql.client, "update leasehold_internal.measure set value = 1e18").await;
    let found = holder().await;
    let about = found[0].strip_prefix(&hidden).unwrap().trim().parse::<i32>().unwrap();
    assert!((600..660).contains(&about), "{found:?}");
    // A role that may read statistics sees everything.
    run(&sql.client, &format!("grant pg_read_all_stats to {owner}")).await;
    assert!(holder().await[0].contains("role postgres, idle in transaction end it"));
    run(
        &sql.client,
        &format!(
            "alter function leasehold_internal.vacuum_holders() owner to postgres; \
             drop owned by {owner}; drop role {owner}"
        ),
    )
    .await;
}

/// A standby as the primary sees it: it follows a slot and reports how far back its queries look.
struct Standby(UnixStream);

impl Standby {
    /// Follows a slot from a position in the log, and reports the oldest transaction that its
    /// queries see.
    async fn follow(postgres: &PrivatePostgres, slot: &str, from: &str, xmin: u32) -> Self {
        let path = postgres.socket_dir().join(format!(".s.PGSQL.{}", postgres.port()));
        let mut standby = Self(UnixStream::connect(path).await.unwrap());
        let words = b"user\0postgres\0replication\0true\0application_name\0far away\0\0";
        let mut startup = 196_608_i32.to_be_bytes().to_vec();
        startup.extend_from_slice(words);
        standby.send(None, &startup).await;
        standby.until(b'Z').await;
        let query = format!("START_REPLICATION SLOT {slot} PHYSICAL {from}\0");
        standby.send(Some(b'Q'), query.as_bytes()).await;
        standby.until(b'W').await;
        let mut feedback = b"h".to_vec();
        feedback.extend_from_slice(&0_i64.to_be_bytes());
        for part in [xmin, 0, 0, 0] {
            feedback.extend_from_slice(&part.to_be_bytes());
        }
        standby.send(Some(b'd'), &feedback).await;
        standby
    }

    async fn send(&mut self, kind: Option<u8>, body: &[u8]) {
        let mut message = Vec::from_iter(kind);
        message.extend_from_slice(&i32::try_from(body.len() + 4).unwrap().to_be_bytes());
        message.extend_from_slice(body);
        self.0.write_all(&message).await.unwrap();
    }

    /// Reads messages up to one of this kind.
    async fn until(&mut self, wanted: u8) {
        loop {
            let kind = self.0.read_u8().await.unwrap();
            let mut body = vec![0; usize::try_from(self.0.read_i32().await.unwrap() - 4).unwrap()];
            self.0.read_exact(&mut body).await.unwrap();
            assert_ne!(kind, b'E', "{}", String::from_utf8_lossy(&body));
            if kind == wanted {
                return;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_transactions_and_unused_slots_are_reported() {
    let options = PrivatePostgres::throwaway()
        .set("max_prepared_transactions", "3")
        .set("wal_level", "replica")
        .set("max_wal_senders", "3");
    let postgres = block_in_place(|| options.start().unwrap());
    let database = TestDatabase::on(&postgres).await.unwrap();
    let client = database.connect_directly().await;
    let holders = async || {
        let sql =
            "select kind || ': ' || who || '; ' || remedy from leasehold_internal.vacuum_holders()";
        all::<String>(&client, sql, &[]).await
    };
    assert_eq!(holders().await, Vec::<String>::new());
    run(&client, "begin; create table t (n int); prepare transaction 'it''s mine'").await;
    assert_eq!(
        holders().await,
        ["prepared: prepared transaction 'it''s mine', role postgres; \
          end it: rollback prepared 'it''s mine' (or commit prepared)"]
    );
    run(&client, "rollback prepared 'it''s mine'").await;
    assert_eq!(holders().await, Vec::<String>::new());

    // A standby whose queries hold back the primary through a slot, and that goes away.
    run(&client, "select pg_create_physical_replication_slot('far_away', true)").await;
    let from: String = one(&client, "select pg_current_wal_lsn()::text", &[]).await;
    let xmin: i64 = one(&client, "select txid_snapshot_xmin(txid_current_snapshot())", &[]).await;
    let standby = Standby::follow(&postgres, "far_away", &from, u32::try_from(xmin).unwrap()).await;
    let seen = async |words: &str| {
        until(words, async || holders().await.first().is_some_and(|first| first.contains(words)))
            .await;
    };
    seen("replication slot far_away, in use by pid ").await;
    seen("; look at the standby").await;
    drop(standby);
    seen(
        "slot: replication slot far_away, not in use; if no standby needs it: \
          select pg_drop_replication_slot('far_away')",
    )
    .await;
    // The alarm is raised for the slot alone, once it is old enough: only the samples show since when.
    run(
        &client,
        &format!(
            "insert into leasehold_internal.measure select date_trunc('minute', now()) - interval '20 minutes', \
             'database', '', 'next_xid', false, {xmin} - 10"
        ),
    )
    .await;
    // The horizon has moved on since.
    run(&client, "select txid_current()").await;
    run(
        &client,
        "update leasehold_internal.duty set ran_at = ran_at - interval '5 minutes' where isfinite(ran_at)",
    )
    .await;
    let sampled = leasehold::measure::sample(&client).await.unwrap().expect("a sample");
    assert_eq!(sampled.changes.len(), 1, "{sampled:?}");
    let summary_text = summary(&client).await;
    let (_, since) = summary_text
        .split_once("held back by replication slot far_away, not in use, ")
        .unwrap_or_else(|| panic!("{summary_text}"));
    // More, if the clock's minute has turned since.
    let about = since.split_once(" min").and_then(|(minutes, _)| minutes.parse::<i32>().ok());
    assert!(about.is_some_and(|about| (18..60).contains(&about)), "{summary_text}");
    run(&client, "select pg_drop_replication_slot('far_away')").await;
    assert_eq!(holders().await, Vec::<String>::new());
    drop((database, postgres));
}
