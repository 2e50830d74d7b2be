//! The sample of a minute: which process takes it, what it holds, how long it is kept.

use std::collections::BTreeSet;

use leasehold::measure;

use super::{a_minute_passes, a_worker, age, happened, up, value};
use crate::sql::{Sql, all, claim, joined, one, run};

#[tokio::test]
async fn one_process_takes_the_sample_of_a_minute() {
    let sql = Sql::new().await;
    let mut asking = Vec::new();
    for _ in 0..8 {
        let actor = sql.actor().await;
        asking.push(tokio::spawn(async move { measure::sample(&actor).await.unwrap() }));
    }
    let mut taken = Vec::new();
    for asked in asking {
        taken.extend(joined(asked).await.map(|sampled| sampled.minute));
    }
    // The minute may turn meanwhile: then the next one is taken too, and none twice.
    assert!(!taken.is_empty());
    let minutes: BTreeSet<_> = taken.iter().collect();
    assert_eq!(minutes.len(), taken.len(), "{taken:?}");
    age(&sql.client, "1 minute").await;
    assert!(one::<bool>(&sql.client, "select leasehold_internal.sample_due()", &[]).await);
    let mut again = Vec::new();
    while let Some(sampled) = measure::sample(&sql.client).await.unwrap() {
        let minute = sampled.minute;
        assert!(
            !again.contains(&minute),
            "{minute} twice: a second sample in one minute must change nothing"
        );
        again.push(minute);
    }
    assert!(!again.is_empty());
}

#[tokio::test]
async fn sampler_that_dies_leaves_the_minute_to_the_next() {
    let sql = Sql::new().await;
    let dying = sql.actor().await;
    run(&dying, "begin; select leasehold_internal.sample()").await;
    // Another session takes the sample, so this one does not wait for it.
    assert_eq!(measure::sample(&sql.client).await.unwrap(), None);
    drop(dying);
    crate::sql::until(
        &sql.client,
        "select count(*) = 0 from pg_stat_activity where query like 'begin; select leasehold_internal.take%'",
        &[],
    )
    .await;
    assert!(measure::sample(&sql.client).await.unwrap().is_some());
}

#[tokio::test]
async fn sample_has_the_events_of_its_minute_by_queue_and_tag() {
    let sql = Sql::new().await;
    a_worker(&sql.client, "default").await;
    run(
        &sql.client,
        "update leasehold_internal.queue set max_lost = 2, backoff_base = interval '1 hour'",
    )
    .await;
    for (tag, jobs) in [("api", 3), ("bulk", 2)] {
        let text = format!(
            "insert into leasehold.job (name, tag) select 'note', '{tag}' from generate_series(1, {jobs})"
        );
        run(&sql.client, &text).await;
    }
    // One batch of two tags, completed whole.
    let five = claim(&sql.client, "w", 5).await;
    let ids = format!("{:?}", five.ids);
    run(&sql.client, &format!("select leasehold.complete_many(array{ids}, {})", five.generation))
        .await;
    // One retried, one buried, one lost, one that expired, one cancelled.
    for end in ["fail({id}, {generation}, 'no')", "bury({id}, {generation}, 'no')"] {
        let (id, generation) = sql.running().await;
        let call =
            end.replace("{id}", &id.to_string()).replace("{generation}", &generation.to_string());
        run(&sql.client, &format!("select leasehold.{call}")).await;
    }
    let (_, generation) = sql.running().await;
    sql.overdue(generation).await;
    run(&sql.client, "select leasehold_internal.reclaim_leases()").await;
    run(&sql.client, "insert into leasehold.job (name, scheduled_at, expires_at) values ('late', now() - interval '1 minute', now())").await;
    run(&sql.client, "select leasehold_internal.expire_jobs()").await;
    let id = sql.enqueue(1).await[0];
    run(&sql.client, &format!("select leasehold.cancel({id}, 'ann')")).await;
    a_minute_passes(&sql).await;
    for (kind, subject, metric, expected) in [
        ("queue", "default", "completed", 5.0),
        ("tag", "default/api", "completed", 3.0),
        ("tag", "default/bulk", "completed", 2.0),
        ("queue", "default", "retried", 1.0),
        ("queue", "default", "buried", 1.0),
        ("queue", "default", "lost", 1.0),
        ("queue", "default", "expired", 1.0),
        ("queue", "default", "cancelled", 1.0),
    ] {
        let counted = happened(&sql.client, kind, subject, metric).await;
        assert_eq!(counted, expected, "{subject} {metric}");
    }
    for (kind, subject, metric, expected) in [
        ("queue", "default", "retrying", 1.0),
        ("queue", "default", "ready", 1.0),
        ("queue", "default", "length", 2.0),
        ("queue", "default", "dead", 1.0),
        ("queue", "default", "dead_expired", 1.0),
        ("queue", "default", "workers", 1.0),
        ("queue", "default", "paused", 0.0),
        ("database", "", "sampled", 1.0),
    ] {
        assert_eq!(value(&sql.client, kind, subject, metric).await, expected, "{subject} {metric}");
    }
    let age = value(&sql.client, "queue", "default", "oldest_ready_age").await;
    assert!((60.0..3600.0).contains(&age), "{age}");
    // The next minute is another one.
    a_minute_passes(&sql).await;
    assert!(value(&sql.client, "queue", "default", "completed").await.is_nan());
    assert_eq!(up(&sql.client).await, ["expired_jobs default"]);
}

#[tokio::test]
async fn h26_job_with_an_infinite_due_time_keeps_no_age_from_being_measured() {
    let sql = Sql::new().await;
    run(
        &sql.client,
        "insert into leasehold.job (name, queue, scheduled_at) values ('note', 'odd', '-infinity'), \
         ('note', 'default', now() - interval '2 hours')",
    )
    .await;
    run(&sql.client, "select leasehold_internal.sample()").await;
    let age = value(&sql.client, "queue", "default", "oldest_ready_age").await;
    assert!((7200.0..9000.0).contains(&age), "{age}");
    assert!(value(&sql.client, "queue", "odd", "oldest_ready_age").await > 9000.0);
}

#[tokio::test]
async fn queue_without_a_ready_job_has_age_zero() {
    let sql = Sql::new().await;
    run(
        &sql.client,
        "insert into leasehold.job (name, queue, scheduled_at) values ('note', 'later', now() + interval '1 hour')",
    )
    .await;
    let age = "select leasehold_internal.oldest_ready_age('later')";
    assert_eq!(one::<f64>(&sql.client, age, &[]).await, 0.0);
}

#[tokio::test]
async fn completions_are_counted_without_history() {
    let sql = Sql::new().await;
    run(&sql.client, "update leasehold_internal.queue set keep_history = false").await;
    let (id, generation) = sql.running().await;
    run(&sql.client, &format!("select leasehold.complete({id}::bigint, {generation})")).await;
    let id = sql.enqueue(1).await[0];
    run(&sql.client, &format!("select leasehold.complete_waiting(array[{id}::bigint])")).await;
    assert_eq!(sql.count("history").await, 0);
    a_minute_passes(&sql).await;
    assert_eq!(happened(&sql.client, "queue", "default", "completed").await, 2.0);
}

#[tokio::test]
async fn events_that_commit_late_are_counted_in_their_minute() {
    let sql = Sql::new().await;
    let slow = sql.actor().await;
    run(
        &slow,
        "begin; insert into leasehold_internal.history (outcome, queue, lease_generation, job_ids, names, tags, \
         attempts, enqueued_at, kwargs) values ('completed', 'default', 1, '{1}', '{note}', '{\"\"}', '{1}', \
         array[now()], array['{}'::jsonb])",
    )
    .await;
    let sampled = a_minute_passes(&sql).await.minute;
    assert!(happened(&sql.client, "queue", "default", "completed").await.is_nan());
    run(&slow, "commit").await;
    // Finished in the minute that was sampled.
    let late = "update leasehold_internal.history set finished_at = $1";
    assert_eq!(sql.client.execute(late, &[&sampled]).await.unwrap(), 1);
    a_minute_passes(&sql).await;
    assert_eq!(happened(&sql.client, "queue", "default", "completed").await, 1.0);
}

#[tokio::test]
async fn minute_is_read_by_its_index_and_not_by_reading_a_day() {
    let sql = Sql::new().await;
    run(
        &sql.client,
        "insert into leasehold_internal.history (finished_at, outcome, queue, lease_generation, job_ids, names, tags, attempts, enqueued_at, kwargs) \
         select now() - interval '1 second' * i, 'completed', 'default', i, array[i], '{note}', '{a}', '{1}', array[now()], array['{}'::jsonb] \
           from generate_series(86400, 1, -1) i",
    )
    .await;
    run(&sql.client, "vacuum analyze leasehold_internal.history_rest").await;
    let plan: Vec<String> = {
        run(&sql.client, "set enable_seqscan = off").await;
        all(
            &sql.client,
            "explain (analyze, buffers, costs off, timing off) select tags from leasehold_internal.history \
             where finished_at >= now() - interval '3 minutes' and finished_at < now()",
            &[],
        )
        .await
    };
    let plan = plan.join("\n");
    assert!(plan.contains("history_rest_finished_at_idx"), "{plan}");
    let pages: i64 =
        one(&sql.client, "select pg_relation_size('leasehold_internal.history_rest') / 8192", &[])
            .await;
    // The pages of the whole plan, from memory or from disk.
    let buffers = plan.lines().find_map(|line| line.trim().strip_prefix("Buffers: shared "));
    let read: i64 = buffers
        .expect("buffers")
        .split([' ', ','])
        .filter_map(|part| part.strip_prefix("hit=").or_else(|| part.strip_prefix("read=")))
        .map(|pages| pages.parse::<i64>().expect("a number"))
        .sum();
    assert!(read * 5 < pages, "{read} of {pages} pages for three minutes of a day:\n{plan}");
}

#[tokio::test]
async fn bulk_work_does_not_count_into_the_watched_length() {
    let sql = Sql::new().await;
    run(
        &sql.client,
        "select leasehold_internal.watch_queue('default', 'ann', bulk_tags => '{reindex_*,import}')",
    )
    .await;
    for (tag, jobs) in [("api", 3), ("reindex_user", 5), ("import", 7), ("important", 1)] {
        run(&sql.client, &format!("insert into leasehold.job (name, tag) select 'note', '{tag}' from generate_series(1, {jobs})")).await;
    }
    a_minute_passes(&sql).await;
    assert_eq!(value(&sql.client, "queue", "default", "length").await, 16.0);
    assert_eq!(value(&sql.client, "queue", "default", "watched_length").await, 4.0);
}

#[tokio::test]
async fn one_tag_per_job_makes_a_bounded_number_of_lines() {
    let sql = Sql::new().await;
    run(&sql.client, "insert into leasehold.job (name, tag) select 'note', 'user ' || i from generate_series(1, 500) i").await;
    let all_of_them = claim(&sql.client, "w", 400).await;
    run(
        &sql.client,
        &format!(
            "select leasehold.complete_many(array{:?}, {})",
            all_of_them.ids, all_of_them.generation
        ),
    )
    .await;
    a_minute_passes(&sql).await;
    let lines: i64 =
        one(&sql.client, "select count(*) from leasehold_internal.measure where kind = 'tag'", &[])
            .await;
    assert!(lines <= 62, "{lines} lines");
    let done: f64 = one(
        &sql.client,
        "select sum(value) from leasehold_internal.measure where kind = 'tag' and metric = 'completed'",
        &[],
    )
    .await;
    assert_eq!(done, 400.0);
}
