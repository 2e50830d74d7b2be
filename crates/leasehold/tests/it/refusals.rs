//! Arguments that the functions refuse: a mistake must not block a queue, and its error says what to do.

use crate::sql::{Sql, all, claim, refused};

/// Checks that each statement fails with this code and these words.
async fn refuses(sql: &Sql, code: &str, statements: &[(&str, &str)]) {
    for (statement, words) in statements {
        let (given, text) = refused(&sql.client, statement, &[]).await;
        assert_eq!(given, code, "{statement}: {text}");
        assert!(text.contains(words), "{statement}: {text}");
    }
}

#[tokio::test]
async fn claim_takes_no_more_jobs_than_its_claim_size() {
    let sql = Sql::new().await;
    // A job that lost a worker is claimed by a path of its own.
    let (lost, generation) = sql.running().await;
    sql.expire(generation).await;
    sql.enqueue(2).await;
    let claimed = "select count(*) from leasehold.claim('w', claim_size => 0)";
    assert_eq!(sql.one::<i64>(claimed, &[]).await, 0);
    assert_eq!(sql.state(lost).await, "ready");
    let bad = [
        ("select leasehold.claim('w', claim_size => -1)", "claim_size is -1"),
        ("select leasehold.claim('', claim_size => 1)", "worker is ''"),
        ("select leasehold.claim(null, claim_size => 1)", "worker is null"),
    ];
    refuses(&sql, "LH002", &bad).await;
    refuses(&sql, "LH001", &[("select leasehold.claim('w', null)", "queue name null")]).await;
    assert_eq!(claim(&sql.client, "w", 1).await.ids, [lost]);
    // The queue's setting is the most that one claim takes.
    sql.enqueue(1).await;
    sql.run("select leasehold.set_queue('default', 'ann', claim_size => 2)").await;
    assert_eq!(claim(&sql.client, "w", 3).await.ids.len(), 2);
}

#[tokio::test]
async fn every_function_refuses_an_invalid_queue_name() {
    let sql = Sql::new().await;
    let bad = [
        ("select leasehold.pause('Bad Name', 'ann')", "'Bad Name'"),
        ("select leasehold.set_queue('Bad Name', 'ann', max_lost => 4)", "'Bad Name'"),
        ("select leasehold_internal.watch_queue('Bad Name', 'ann', max_length => 4)", "'Bad Name'"),
        ("select leasehold.enqueue('a', queue => 'Bad Name')", "'Bad Name'"),
        ("select leasehold.pause(null, 'ann')", "null"),
    ];
    refuses(&sql, "LH001", &bad).await;
    let created = "select count(*) from leasehold_internal.queue where name <> 'default'";
    assert_eq!(sql.one::<i64>(created, &[]).await, 0);
}

#[tokio::test]
async fn queue_of_a_plain_insert_can_be_paused() {
    let sql = Sql::new().await;
    // A plain INSERT checks only the length, so operators must be able to act on what it stored.
    sql.run("insert into leasehold.job (name, queue) values ('a', 'Bad Name')").await;
    for act in ["pause('Bad Name', 'ann')", "resume('Bad Name', 'ann')"] {
        assert!(sql.one::<bool>(&format!("select leasehold.{act}"), &[]).await, "{act}");
    }
    let claimed: Vec<i64> =
        all(&sql.client, "select id from leasehold.claim('w', 'Bad Name')", &[]).await;
    assert_eq!(claimed.len(), 1);
}

#[tokio::test]
async fn settings_that_would_block_a_queue_are_refused() {
    let sql = Sql::new().await;
    let bad = [
        ("lease => '100 years'", "lease is"),
        ("run_limit => '-1 second'", "run_limit is"),
        ("run_limit => '2 years'", "run_limit is"),
        ("backoff_base => '-1 second'", "backoff_base is"),
        ("backoff_cap => '2 years'", "backoff_cap is"),
        ("backoff_base => '1 hour', backoff_cap => '1 second'", "at most backoff_cap"),
        ("backoff_base => '2 hours'", "at most backoff_cap"),
        ("max_attempts => 0", "max_attempts is 0"),
        ("max_lost => 0", "max_lost is 0"),
        ("claim_size => 0", "claim_size is 0"),
    ];
    for (setting, words) in bad {
        let statement = format!("select leasehold.set_queue('mail', 'ann', {setting})");
        refuses(&sql, "LH002", &[(statement.as_str(), words)]).await;
    }
    sql.run("select leasehold.set_queue('mail', 'ann', lease => '1 day 1 hour')").await;
    let lease =
        "select lease = interval '25 hours' from leasehold_internal.queue where name = 'mail'";
    assert!(sql.one::<bool>(lease, &[]).await);
}

#[tokio::test]
async fn actions_without_an_actor_are_refused() {
    let sql = Sql::new().await;
    let (running, _) = sql.running().await;
    let waiting = sql.enqueue(1).await;
    let cancel = format!("select leasehold.cancel({running}, null)");
    let redo = format!("select leasehold.update_job({}, null, priority => 1)", waiting[0]);
    let bad = [
        (cancel.as_str(), "actor is null"),
        (redo.as_str(), "actor is null"),
        ("select leasehold.pause('mail', '')", "actor is ''"),
        ("select leasehold.set_queue('mail', null, max_lost => 4)", "actor is null"),
        ("select leasehold.pause('mail', repeat('x', 201))", "1 to 200 bytes"),
    ];
    refuses(&sql, "LH002", &bad).await;
    assert_eq!(sql.count("audit").await, 0);
}

#[tokio::test]
async fn schedules_with_times_that_never_come_are_refused() {
    let sql = Sql::new().await;
    let add = |zone: &str, slot: &str| {
        format!(
            "select leasehold.add_schedule('nightly', '0 3 * * *', '{zone}', 'default', 'report', '{{}}', 0, \
                    'once', '{slot}', 'ann')"
        )
    };
    for (statement, words) in [
        (add("UTC", "infinity"), "next_slot is infinity"),
        (add("CEST-2", "2100-01-01"), "no time zone"),
        (add("+02", "2100-01-01"), "no time zone"),
    ] {
        refuses(&sql, "LH002", &[(statement.as_str(), words)]).await;
    }
    sql.run(&add("Europe/Berlin", "2100-01-01")).await;
}

#[tokio::test]
async fn key_ttl_below_zero_is_refused() {
    let sql = Sql::new().await;
    let negative = "select leasehold.enqueue('a', key => 'k', key_ttl => '-1 hour')";
    refuses(&sql, "LH002", &[(negative, "key_ttl is -01:00:00")]).await;
    assert_eq!(sql.count("job").await, 0);
}

/// A job that waits for a retry beyond its expiry must not live on because its priority changed.
#[tokio::test]
async fn update_of_a_priority_leaves_the_expiry() {
    let sql = Sql::new().await;
    let id = sql.enqueue(1).await[0];
    sql.run("update leasehold.job set expires_at = now() + interval '1 hour', scheduled_at = now() + interval '2 hours'")
        .await;
    let expiry = "select expires_at::text from leasehold.job";
    let before: String = sql.one(expiry, &[]).await;
    let update = "select leasehold.update_job($1, 'ann', priority => 1)";
    assert!(sql.one::<bool>(update, &[&id]).await);
    assert_eq!(sql.one::<String>(expiry, &[]).await, before);
}

#[tokio::test]
async fn promote_ends_the_deferral_of_a_due_job() {
    let sql = Sql::new().await;
    let id = sql.enqueue(1).await[0];
    sql.run("update leasehold.job set deferred = true").await;
    let promote = "select count(*) from leasehold.promote(array[$1::bigint], 'ann')";
    assert_eq!(sql.one::<i64>(promote, &[&id]).await, 1);
    assert_eq!(sql.one::<i64>(promote, &[&id]).await, 0, "it is due and not deferred");
    assert!(!sql.one::<bool>("select deferred from leasehold.job", &[]).await);
}

/// Leases whose jobs have all ended must not keep the jobs of a dead worker waiting behind them.
#[tokio::test]
async fn reclaim_counts_only_leases_that_held_a_job() {
    let (sql, mut ended) = (Sql::new().await, Vec::new());
    for _ in 0..10 {
        let (id, generation) = sql.running().await;
        sql.run(&format!("delete from leasehold.job where id = {id}")).await;
        ended.push(generation);
    }
    let (id, generation) = sql.running().await;
    let overdue = "update leasehold_internal.lease set lease_expires_at = now() - interval '1 minute' \
                    where lease_generation = any ($1)";
    sql.client.execute(overdue, &[&ended]).await.unwrap();
    sql.overdue(generation).await;
    let reclaim = "select returned from leasehold_internal.reclaim_leases(1)";
    assert_eq!(sql.one::<i32>(reclaim, &[]).await, 1);
    assert_eq!(sql.state(id).await, "ready");
}
