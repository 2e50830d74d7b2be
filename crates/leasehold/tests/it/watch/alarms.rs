//! The life of an alarm: raised once, notified once, silenced, acknowledged, cleared.

use leasehold::alarm::{self, Thresholds};
use leasehold::database::Database;
use leasehold::measure;

use super::{a_minute_passes, age, up};
use crate::sql::{Sql, all, one, refused, run};

async fn receiver(sql: &Sql) {
    run(&sql.client, "select leasehold_internal.declare_alarm_receiver('leasehold.alarm.webhook')")
        .await;
}

/// Returns the events of the notifications, in order.
async fn notifications(sql: &Sql) -> Vec<String> {
    let text = "select kwargs ->> 'event' || ' ' || (kwargs ->> 'rule') from leasehold.job \
                 where queue = 'leasehold.alarms' and kwargs ->> 'subject' <> 'leasehold.alarms' order by id";
    all(&sql.client, text, &[]).await
}

/// Adds one job that was not started in time.
async fn an_expired_job(sql: &Sql) {
    run(&sql.client, "insert into leasehold.job (name, scheduled_at, expires_at) values ('late', now() - interval '1 minute', now())").await;
    run(&sql.client, "select leasehold_internal.expire_jobs()").await;
}

#[tokio::test]
async fn alarm_is_raised_by_the_thresholds_of_the_process_that_takes_the_sample() {
    let sql = Sql::new().await;
    let (id, generation) = sql.running().await;
    run(&sql.client, &format!("select leasehold.bury({id}, {generation}, 'no', 'rejected')")).await;
    age(&sql.client, "1 minute").await;
    let database = Database::new(&sql.database.direct_url()).expect("an address");
    let strict = Thresholds::default().max_dead(1);
    let sampled = measure::run_once(&database, &strict).await.expect("a sample");
    let raised = sampled.expect("a minute has passed").changes;
    assert_eq!(raised.len(), 1, "{raised:?}");
    assert_eq!((raised[0].raised, &*raised[0].rule), (true, "dead_jobs_growing"));
}

async fn the_alarm(sql: &Sql) -> i64 {
    one(&sql.client, "select id from leasehold_internal.alarm where cleared_at is null", &[]).await
}

#[tokio::test]
async fn alarm_is_raised_once_notified_once_and_clears_by_itself() {
    let sql = Sql::new().await;
    receiver(&sql).await;
    assert_eq!(a_minute_passes(&sql).await.changes, []);
    an_expired_job(&sql).await;
    let raised = a_minute_passes(&sql).await.changes;
    assert_eq!(raised.len(), 1);
    assert!(raised[0].raised && raised[0].rule == "expired_jobs" && raised[0].subject == "default");
    assert_eq!(a_minute_passes(&sql).await.changes, [], "it is up already");
    assert_eq!(up(&sql.client).await, ["expired_jobs default"]);
    run(
        &sql.client,
        "select leasehold.redrive(array(select id from leasehold_internal.dead_job), 'ann')",
    )
    .await;
    let cleared = a_minute_passes(&sql).await.changes;
    assert!(cleared.len() == 1 && !cleared[0].raised, "{cleared:?}");
    assert_eq!(up(&sql.client).await, Vec::<String>::new());
    assert_eq!(notifications(&sql).await, ["raised expired_jobs", "cleared expired_jobs"]);
}

#[tokio::test]
async fn notification_is_retried_for_seven_days() {
    let sql = Sql::new().await;
    receiver(&sql).await;
    an_expired_job(&sql).await;
    a_minute_passes(&sql).await;
    // The backoff doubles from a second to an hour; each wait is as short as jitter can make it.
    let shortest: f64 = one(
        &sql.client,
        "select sum(least(power(2, n - 1), 3600) * 0.8)::float8 \
           from leasehold.job j, generate_series(1, j.max_attempts - 1) n where j.queue = 'leasehold.alarms'",
        &[],
    )
    .await;
    assert!(shortest > 7.0 * 86_400.0, "{} days", shortest / 86_400.0);
    let over = "select extract(epoch from expires_at - enqueued_at)::float8 / 86400 from leasehold.job \
                 where queue = 'leasehold.alarms'";
    assert_eq!(one::<f64>(&sql.client, over, &[]).await.round(), 7.0);
}

#[tokio::test]
async fn i12_alarm_counts_as_notified_only_when_a_receiver_is_there() {
    let sql = Sql::new().await;
    an_expired_job(&sql).await;
    a_minute_passes(&sql).await;
    let notified = "select notified_at is not null, delivered_at is not null from leasehold.alarms";
    let state = async || {
        let row = sql.client.query_one(notified, &[]).await.expect("an alarm");
        (row.get::<_, bool>(0), row.get::<_, bool>(1))
    };
    assert_eq!(state().await, (false, false), "no receiver");
    receiver(&sql).await;
    a_minute_passes(&sql).await;
    assert_eq!(state().await, (true, false), "the receiver that came later gets it");
    assert_eq!(notifications(&sql).await, ["raised expired_jobs"]);
    a_minute_passes(&sql).await;
    assert_eq!(notifications(&sql).await, ["raised expired_jobs"], "once");
    let alarm = the_alarm(&sql).await;
    for by in ["leasehold.alarm.webhook", "leasehold.alarm.command"] {
        let note = "select leasehold_internal.note_alarm_delivery($1, $2)";
        sql.client.execute(note, &[&alarm, &by]).await.expect("noted");
    }
    assert_eq!(state().await, (true, true));
    let by: String = one(&sql.client, "select delivered_by from leasehold.alarms", &[]).await;
    assert_eq!(by, "leasehold.alarm.webhook", "the first one counts");
}

#[tokio::test]
async fn alarm_without_a_receiver_enqueues_no_notification() {
    let sql = Sql::new().await;
    an_expired_job(&sql).await;
    a_minute_passes(&sql).await;
    assert_eq!(notifications(&sql).await, Vec::<String>::new());
    assert_eq!(
        one::<i32>(&sql.client, "select leasehold_internal.test_alarm('ann')", &[]).await,
        0
    );
    receiver(&sql).await;
    assert_eq!(
        one::<i32>(&sql.client, "select leasehold_internal.test_alarm('ann')", &[]).await,
        1
    );
    assert_eq!(notifications(&sql).await, ["test test"]);
    run(
        &sql.client,
        "update leasehold_internal.alarm_receiver set seen_at = now() - interval '8 days'",
    )
    .await;
    assert_eq!(
        one::<i32>(&sql.client, "select leasehold_internal.test_alarm('ann')", &[]).await,
        0
    );
}

#[tokio::test]
async fn silenced_alarm_sends_no_notification_until_the_silence_ends() {
    let sql = Sql::new().await;
    receiver(&sql).await;
    an_expired_job(&sql).await;
    a_minute_passes(&sql).await;
    let id = the_alarm(&sql).await;
    run(&sql.client, &format!("select leasehold.silence_alarm({id}, '1 hour', 'ann', 'known')"))
        .await;
    // The alarm clears and comes back: it is still silenced.
    run(&sql.client, "delete from leasehold_internal.dead_job").await;
    a_minute_passes(&sql).await;
    an_expired_job(&sql).await;
    a_minute_passes(&sql).await;
    assert_eq!(up(&sql.client).await, ["expired_jobs default"]);
    assert_eq!(notifications(&sql).await, ["raised expired_jobs", "cleared expired_jobs"]);
    let why: String = one(
        &sql.client,
        "select silenced_why from leasehold_internal.alarm where cleared_at is null",
        &[],
    )
    .await;
    assert_eq!(why, "known");
    // The silence is over, the alarm is not.
    age(&sql.client, "1 hour").await;
    a_minute_passes(&sql).await;
    assert_eq!(notifications(&sql).await.len(), 3);
    // The end of the alarm is notified, too.
    run(&sql.client, "delete from leasehold_internal.dead_job").await;
    a_minute_passes(&sql).await;
    assert_eq!(notifications(&sql).await.len(), 4);
}

#[tokio::test]
async fn acknowledged_alarm_shows_its_actor_and_reason() {
    let sql = Sql::new().await;
    an_expired_job(&sql).await;
    a_minute_passes(&sql).await;
    let id = the_alarm(&sql).await;
    let done: bool =
        one(&sql.client, "select leasehold.acknowledge_alarm($1, 'ann', 'on it')", &[&id]).await;
    assert!(done);
    let state =
        "select state || ' ' || acknowledged_by || ' ' || acknowledged_why from leasehold.alarms";
    assert_eq!(one::<String>(&sql.client, state, &[]).await, "acknowledged ann on it");
    run(&sql.client, "delete from leasehold_internal.dead_job").await;
    a_minute_passes(&sql).await;
    let again: bool =
        one(&sql.client, "select leasehold.acknowledge_alarm($1, 'ann', 'late')", &[&id]).await;
    assert!(!again, "it is over");
    let audit: Vec<String> =
        all(&sql.client, "select action || ' ' || subject from leasehold.audit", &[]).await;
    assert_eq!(audit, [format!("acknowledge alarm {id}")]);
}

#[tokio::test]
async fn acknowledge_and_silence_need_an_actor_and_a_reason() {
    let sql = Sql::new().await;
    an_expired_job(&sql).await;
    a_minute_passes(&sql).await;
    let id = the_alarm(&sql).await;
    for signed in ["'ann', null", "'ann', ''", "'ann', '  '", "null, 'why'", "' ', 'why'"] {
        for call in ["acknowledge_alarm({id}, ", "silence_alarm({id}, interval '1 hour', "] {
            let call = call.replace("{id}", &id.to_string());
            let (code, text) =
                refused(&sql.client, &format!("select leasehold.{call}{signed})"), &[]).await;
            assert_eq!(code, "LH002", "{call}{signed}: {text}");
        }
    }
    let state: String = one(&sql.client, "select state from leasehold.alarms", &[]).await;
    assert_eq!(state, "open");
}

#[tokio::test]
async fn evaluator_that_stalled_changes_nothing() {
    let sql = Sql::new().await;
    an_expired_job(&sql).await;
    let sampled = a_minute_passes(&sql).await;
    assert_eq!(up(&sql.client).await, ["expired_jobs default"]);
    // An earlier sample, when all was well, judged only now.
    let before = sampled.minute - jiff::SignedDuration::from_mins(1);
    assert_eq!(alarm::evaluate(&sql.client, before).await.unwrap(), []);
    let sql_text = "select count(*) from leasehold_internal.apply_alarms($1, '[]')";
    assert_eq!(one::<i64>(&sql.client, sql_text, &[&before]).await, 0);
    assert_eq!(up(&sql.client).await, ["expired_jobs default"]);
}

#[tokio::test]
async fn watch_of_an_operator_takes_precedence_over_a_declared_one() {
    let sql = Sql::new().await;
    let declare = "select leasehold_internal.watch_queue('mail', 'service', true, max_length => 7)";
    assert!(one::<bool>(&sql.client, declare, &[]).await);
    assert!(!one::<bool>(&sql.client, declare, &[]).await);
    run(&sql.client, "select leasehold_internal.watch_queue('mail', 'ann', max_length => 9)").await;
    run(&sql.client, declare).await;
    let length = "select max_length from leasehold_internal.watch";
    assert_eq!(one::<i64>(&sql.client, length, &[]).await, 9);
    assert!(
        one::<bool>(&sql.client, "select leasehold_internal.unwatch_queue('mail', 'ann')", &[])
            .await
    );
    assert!(!one::<bool>(&sql.client, declare, &[]).await);
    assert!(one::<bool>(&sql.client, "select off from leasehold_internal.watch", &[]).await);
    run(&sql.client, "select leasehold_internal.watch_queue('mail', 'ann', max_length => -1)")
        .await;
    let off: Option<i64> = one(&sql.client, length, &[]).await;
    assert_eq!(off, None);
}

#[tokio::test]
async fn watch_without_max_age_keeps_the_default_age() {
    let sql = Sql::new().await;
    let age = "select extract(epoch from max_age)::float8 from leasehold_internal.watch where queue = 'mail'";
    run(&sql.client, "select leasehold_internal.watch_queue('mail', 'service', true)").await;
    assert_eq!(one::<Option<f64>>(&sql.client, age, &[]).await, Some(3600.0));
    for (given, then) in
        [("'2 hours'", Some(7200.0)), ("null", Some(7200.0)), ("'0'", None), ("null", None)]
    {
        let text =
            format!("select leasehold_internal.watch_queue('mail', 'ann', max_age => {given})");
        run(&sql.client, &text).await;
        assert_eq!(one::<Option<f64>>(&sql.client, age, &[]).await, then, "{given}");
    }
    // Off from the start.
    run(&sql.client, "select leasehold_internal.watch_queue('hooks', 'ann', max_age => '0')").await;
    let hooks = age.replace("mail", "hooks");
    assert_eq!(one::<Option<f64>>(&sql.client, &hooks, &[]).await, None);
}
