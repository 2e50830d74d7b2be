//! The samples of minutes: they are rolled up to hours, pruned, and read as series for charts.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use leasehold::measure;

use super::{a_minute_passes, age};
use crate::sql::{Sql, all, one, run};

#[tokio::test]
async fn hours_are_kept_longer_than_minutes_and_both_are_pruned() {
    let sql = Sql::new().await;
    let (id, generation) = sql.running().await;
    run(&sql.client, &format!("select leasehold.complete({id}::bigint, {generation})")).await;
    a_minute_passes(&sql).await;
    // The next sample is in another hour, so this one is rolled up.
    age(&sql.client, "2 hours").await;
    assert!(measure::sample(&sql.client).await.unwrap().is_some());
    let rolled = "select coalesce(sum(value), 0)::float8 from leasehold_internal.measure_hour where kind = 'queue' and metric = 'completed'";
    assert_eq!(one::<f64>(&sql.client, rolled, &[]).await, 1.0);
    age(&sql.client, "25 hours").await;
    assert!(measure::sample(&sql.client).await.unwrap().is_some());
    run(&sql.client, "select leasehold_internal.prune_measures()").await;
    let old =
        "select count(*) from leasehold_internal.measure where at < now() - interval '24 hours'";
    assert_eq!(one::<i64>(&sql.client, old, &[]).await, 0);
    assert_eq!(one::<f64>(&sql.client, rolled, &[]).await, 1.0);
    assert_eq!(sql.count("tally").await, 0);
    age(&sql.client, "91 days").await;
    assert!(measure::sample(&sql.client).await.unwrap().is_some());
    run(&sql.client, "select leasehold_internal.prune_measures()").await;
    assert_eq!(one::<f64>(&sql.client, rolled, &[]).await, 0.0);
}

#[tokio::test]
async fn series_of_more_than_a_day_is_made_of_hours() {
    let sql = Sql::new().await;
    // Twenty days of hours, 60 completed and a length of 7 in each, and a minute of the hour since.
    run(
        &sql.client,
        "insert into leasehold_internal.measure_hour (at, kind, subject, metric, flow, value, highest, minutes) \
         select date_trunc('hour', now(), 'UTC') - interval '1 hour' * i, v.kind, v.subject, v.metric, v.flow, v.value, v.value, 60 \
           from generate_series(2, 481) i, (values ('queue', 'mail', 'completed', true, 60), \
                ('queue', 'mail', 'length', false, 7), ('database', '', 'sampled', false, 1)) \
                as v (kind, subject, metric, flow, value); \
         insert into leasehold_internal.measure (at, kind, subject, metric, flow, value) \
         select date_trunc('hour', now(), 'UTC') - interval '1 minute', v.kind, v.subject, v.metric, v.flow, 1 \
           from (values ('queue', 'default', 'completed', true), ('database', '', 'sampled', false)) \
                as v (kind, subject, metric, flow)",
    )
    .await;
    let series = async |metric: &str| -> Vec<(Option<f64>, i64)> {
        let text = "select value, minutes from leasehold_internal.series('queue', array[$1], null, '30 days', '6 hours')";
        let rows = sql.client.query(text, &[&metric]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    };
    let completed = series("completed").await;
    // In the first minute of a step there is nothing of it yet.
    assert!([119, 120].contains(&completed.len()), "{} steps", completed.len());
    assert_eq!(completed[10], (None, 0), "no sample was taken a month ago");
    assert_eq!(completed[completed.len() - 20], (Some(360.0), 360));
    let whole: f64 = completed.iter().filter_map(|(value, _)| *value).sum();
    assert_eq!(whole, 480.0 * 60.0 + 1.0, "with what has not been rolled up yet");
    let length = series("length").await;
    assert_eq!(length[length.len() - 20], (Some(7.0), 360));
}

#[tokio::test]
async fn events_without_a_sample_are_counted_once_by_the_next() {
    let sql = Sql::new().await;
    // Sampled until three hours ago. Nothing was sampled in the last hour; its completions were
    // found later, and are in its minutes and in the hour.
    run(
        &sql.client,
        "insert into leasehold_internal.measure_hour (at, kind, subject, metric, flow, value, highest, minutes) values \
         (date_trunc('hour', now(), 'UTC') - interval '3 hours', 'database', '', 'sampled', false, 1, 1, 60), \
         (date_trunc('hour', now(), 'UTC') - interval '1 hour', 'queue', 'mail', 'completed', true, 5, 5, 1); \
         insert into leasehold_internal.measure (at, kind, subject, metric, flow, value) values \
         (date_trunc('hour', now(), 'UTC') - interval '30 minutes', 'queue', 'mail', 'completed', true, 5)",
    )
    .await;
    let text = "select coalesce(sum(value), 0)::float8 \
                  from leasehold_internal.series('queue', '{completed}', null, '30 days', '6 hours')";
    assert_eq!(one::<f64>(&sql.client, text, &[]).await, 5.0);
}

#[tokio::test]
async fn pruning_removes_every_old_row_however_many_there_are() {
    let sql = Sql::new().await;
    let removed = loop {
        run(
            &sql.client,
            "truncate leasehold_internal.measure, leasehold_internal.tally; \
             insert into leasehold_internal.measure (at, kind, subject, metric, flow, value) \
             select now() - interval '25 hours', 'queue', i::text, 'ready', false, 1 from generate_series(1, 250) i; \
             insert into leasehold_internal.tally (at, what, n) \
             select now() - interval '3 hours', 'lost', 1 from generate_series(1, 120)",
        )
        .await;
        // More than one statement removes.
        let began = Instant::now();
        let removed: i64 =
            one(&sql.client, "select leasehold_internal.prune_measures(100)", &[]).await;
        // After five seconds it leaves the rest for the next minute.
        if removed == 370 || began.elapsed() < Duration::from_secs(5) {
            break removed;
        }
    };
    assert_eq!(removed, 370);
    assert_eq!((sql.count("measure").await, sql.count("tally").await), (0, 0));
}

#[tokio::test]
async fn series_has_a_gap_without_a_sample_and_zero_without_events() {
    let sql = Sql::new().await;
    let (id, generation) = sql.running().await;
    run(&sql.client, &format!("select leasehold.complete({id}::bigint, {generation})")).await;
    a_minute_passes(&sql).await;
    a_minute_passes(&sql).await;
    let minutes_of = async |metric: &str| -> Vec<Timestamp> {
        let text = "select distinct at from leasehold_internal.measure \
                     where kind in ('queue', 'database') and metric = $1";
        all(&sql.client, text, &[&metric]).await
    };
    // The clock's minute may turn at any time, so the test reads the minutes and does not compute them.
    let (happened, sampled) = (minutes_of("completed").await, minutes_of("sampled").await);
    assert_eq!((happened.len(), sampled.len()), (1, 2));
    let text = "select at, value from leasehold_internal.series('queue', '{completed}', back => '30 minutes')";
    let rows = sql.client.query(text, &[]).await.unwrap();
    let series: Vec<(Timestamp, Option<f64>)> =
        rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(series.len(), 29, "the current minute is not over");
    for (at, value) in &series {
        let expected = match (happened.contains(at), sampled.contains(at)) {
            (true, _) => Some(1.0),
            (false, true) => Some(0.0),
            (false, false) => None,
        };
        assert_eq!(*value, expected, "{at} in {series:?}");
    }
    for expected in [Some(1.0), Some(0.0), None] {
        assert!(series.iter().any(|(_, value)| *value == expected), "{expected:?} in {series:?}");
    }
    let wide: Vec<Option<f64>> = all(
        &sql.client,
        "select value from leasehold_internal.series('queue', '{completed}', 'default', '24 hours', '5 minutes')",
        &[],
    )
    .await;
    assert_eq!(wide.into_iter().flatten().sum::<f64>(), 1.0);
}

#[tokio::test]
async fn chart_of_a_day_reads_one_metric_and_not_the_day() {
    let sql = Sql::new().await;
    run(
        &sql.client,
        "insert into leasehold_internal.measure (at, kind, subject, metric, flow, value) \
         select date_trunc('minute', now()) - interval '1 minute' * i, 'queue', 'q' || q, 'metric' || m, false, 1 \
           from generate_series(1, 1000) i, generate_series(1, 5) q, generate_series(1, 11) m; \
         analyze leasehold_internal.measure",
    )
    .await;
    // A session of its own, which has read nothing else.
    let reader = sql.actor().await;
    run(&reader, "begin").await;
    let chart = "select count(value) from leasehold_internal.series('queue', '{metric3}', back => '24 hours')";
    assert_eq!(one::<i64>(&reader, chart, &[]).await, 1000, "minutes");
    let met = "select pg_stat_get_xact_tuples_returned('leasehold_internal.measure_series_idx'::regclass)";
    assert_eq!(one::<i64>(&reader, met, &[]).await, 5000, "of 55000, by the index of its metric");
    run(&reader, "commit").await;
}
