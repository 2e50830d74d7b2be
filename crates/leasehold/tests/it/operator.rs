//! What operators do: cancel, promote, redrive, pause. And how that meets what workers do.

use crate::sql::{Sql, all, blocked, claim, joined, one, pid, run};

#[tokio::test]
async fn cancel_ends_a_waiting_job_at_once() {
    let sql = Sql::new().await;
    let id = sql.enqueue(1).await[0];
    let cancel = "select leasehold.cancel($1, 'ann', 'not wanted')";
    assert_eq!(sql.one::<String>(cancel, &[&id]).await, "cancelled");
    assert_eq!(sql.state(id).await, "cancelled");
    assert_eq!(sql.one::<String>(cancel, &[&id]).await, "gone");
}

#[tokio::test]
async fn cancel_asks_a_running_job_to_stop() {
    let sql = Sql::new().await;
    let ids = sql.enqueue(2).await;
    let held = claim(&sql.client, "w", 1).await;
    assert_eq!(held.ids, [ids[0]]);
    let cancel = "select leasehold.cancel($1, 'ann', 'not wanted')";
    assert_eq!(sql.one::<String>(cancel, &[&ids[1]]).await, "cancelled");
    assert_eq!(sql.one::<String>(cancel, &[&ids[0]]).await, "cancel_requested");
    assert_eq!(
        (sql.state(ids[0]).await, sql.state(ids[1]).await),
        ("running".into(), "cancelled".into())
    );
    let asked: Vec<i64> =
        all(&sql.client, "select leasehold_internal.cancel_requests($1)", &[&ids]).await;
    assert_eq!(asked, [ids[0]]);
    let ended = "select leasehold.finish_cancelled($1, $2, 'stopped half-way')";
    assert!(sql.one::<bool>(ended, &[&ids[0], &held.generation]).await);
    assert_eq!(sql.state(ids[0]).await, "cancelled");
    assert_eq!(sql.one::<String>(cancel, &[&ids[0]]).await, "gone");
    let notes: Vec<String> =
        all(&sql.client, "select note from leasehold_internal.finished_job order by id", &[]).await;
    assert_eq!(notes, ["not wanted", "not wanted"]);
    let last: String =
        sql.one("select last_error from leasehold.jobs where id = $1", &[&ids[0]]).await;
    assert_eq!(last, "stopped half-way");
    let audit: Vec<String> =
        all(&sql.client, "select actor || ' ' || detail from leasehold.audit", &[]).await;
    assert_eq!(audit, ["ann cancelled: not wanted", "ann cancel_requested: not wanted"]);
}

/// Why an operator cancelled a running job is the note of its end, however its worker ends it.
#[tokio::test]
async fn a19_reason_of_a_cancelled_running_job_is_kept() {
    let sql = Sql::new().await;
    for (finish, error) in [
        ("select leasehold.fail($1::bigint, $2, 'smtp timed out')", Some("smtp timed out")),
        ("select leasehold.finish_cancelled($1::bigint, $2, 'stopped')::text", Some("stopped")),
        ("select leasehold.finish_cancelled($1::bigint, $2)::text", None),
        ("select leasehold.snooze($1::bigint, $2, '1 day')::text", None),
        ("select leasehold.release(array[$1::bigint], $2)::text", None),
    ] {
        let (id, generation) = sql.running().await;
        // The last reason counts; one without a reason names the operator.
        for (why, note) in [(None, "cancelled by ann"), (Some("wrong address"), "wrong address")] {
            let cancel = "select leasehold.cancel($1, 'ann', $2)";
            assert_eq!(sql.one::<String>(cancel, &[&id, &why]).await, "cancel_requested");
            let reason = "select leasehold_internal.cancel_reason($1)";
            assert_eq!(sql.one::<String>(reason, &[&id]).await, note);
        }
        sql.client.query(finish, &[&id, &generation]).await.unwrap();
        let kept = "select note, last_error from leasehold.jobs where id = $1";
        let row = sql.client.query_one(kept, &[&id]).await.unwrap();
        assert_eq!(row.get::<_, &str>(0), "wrong address", "{finish}");
        assert_eq!(row.get::<_, Option<&str>>(1), error, "{finish}");
    }
}

#[tokio::test]
async fn a19_holder_of_a_cancelled_job_decides_how_it_ends() {
    let sql = Sql::new().await;
    for (finish, end) in [
        ("select leasehold.complete($1::bigint, $2)::text", "completed"),
        ("select leasehold.fail($1::bigint, $2, 'no')", "cancelled"),
        ("select leasehold.snooze($1::bigint, $2, '1 day')::text", "cancelled"),
        ("select leasehold.release(array[$1::bigint], $2)::text", "cancelled"),
        ("select leasehold.finish_cancelled($1::bigint, $2)::text", "cancelled"),
        ("select leasehold.bury($1::bigint, $2, 'useless')::text", "dead"),
    ] {
        let (id, generation) = sql.running().await;
        assert_eq!(
            sql.one::<String>("select leasehold.cancel($1, 'ann')", &[&id]).await,
            "cancel_requested"
        );
        sql.client.query(finish, &[&id, &generation]).await.unwrap();
        assert_eq!(sql.state(id).await, end, "{finish}");
        let live: i64 = sql
            .one("select count(*) from leasehold_internal.lease where ended_at is null", &[])
            .await;
        assert_eq!(live, 0, "{finish}");
    }
}

#[tokio::test]
async fn a19_cancel_request_during_a_snooze_or_a_release_cancels_the_job() {
    for finish in
        ["select leasehold.snooze(%, '1 day')::text", "select leasehold.release(array[%])::text"]
    {
        let sql = Sql::new().await;
        let (id, generation) = sql.running().await;
        let (person, worker) = (sql.actor().await, sql.actor().await);
        run(&person, "begin").await;
        assert_eq!(
            one::<String>(&person, "select leasehold.cancel($1, 'ann')", &[&id]).await,
            "cancel_requested"
        );
        let pid = pid(&worker).await;
        let finish = finish
            .replace("array[%]", &format!("array[{id}::bigint], {generation}"))
            .replace('%', &format!("{id}, {generation}"));
        let finishing = tokio::spawn(async move { worker.query(&finish, &[]).await.is_ok() });
        blocked(&sql.client, pid).await;
        run(&person, "commit").await;
        assert!(joined(finishing).await);
        assert_eq!(
            sql.state(id).await,
            "cancelled",
            "otherwise it would run again after the request"
        );
    }
}

#[tokio::test]
async fn a21_redrive_moves_dead_jobs_and_no_others() {
    let sql = Sql::new().await;
    let (id, generation) = sql.running().await;
    let redrive = "select count(*) from leasehold.redrive(array[$1::bigint], 'ann')";
    assert_eq!(sql.one::<i64>(redrive, &[&id]).await, 0, "it runs");
    assert_eq!(sql.state(id).await, "running");
    sql.run(&format!("select leasehold.bury({id}, {generation}, 'useless')")).await;
    assert_eq!(sql.one::<i64>(redrive, &[&id]).await, 1);
    assert_eq!(sql.one::<i64>(redrive, &[&id]).await, 0, "it waits");
    assert_eq!(sql.state(id).await, "ready");
    let life: bool = sql
        .one(
            "select attempts = 0 and lost_count = 0 and last_error = 'useless' from leasehold.job",
            &[],
        )
        .await;
    assert!(life, "a new life that remembers why it died");
    let next = claim(&sql.client, "w", 1).await;
    assert!(next.ids == [id] && next.generation > generation);
    sql.run(&format!("select leasehold.complete({id}::bigint, {})", next.generation)).await;
    assert_eq!(sql.one::<i64>(redrive, &[&id]).await, 0, "it is done");
    let noted: i64 =
        sql.one("select count(*) from leasehold.audit where action = 'redrive'", &[]).await;
    assert_eq!(noted, 1);
}

#[tokio::test]
async fn a22_concurrent_prune_and_redrive_neither_lose_nor_double_a_dead_job() {
    for prune_first in [true, false] {
        let sql = Sql::new().await;
        let (id, generation) = sql.running().await;
        sql.run(&format!("select leasehold.bury({id}, {generation}, 'useless')")).await;
        sql.run("update leasehold_internal.dead_job set died_at = now() - interval '9 days'").await;
        let prune = "select dead from leasehold_internal.prune(dead_for => '7 days')";
        let redrive = format!("select count(*) from leasehold.redrive(array[{id}::bigint], 'ann')");
        let first = sql.actor().await;
        run(&first, "begin").await;
        if prune_first {
            assert_eq!(one::<i32>(&first, prune, &[]).await, 1);
            let second = sql.actor().await;
            let pid = pid(&second).await;
            let second = tokio::spawn(async move { one::<i64>(&second, &redrive, &[]).await });
            blocked(&sql.client, pid).await;
            run(&first, "commit").await;
            assert_eq!(joined(second).await, 0, "pruned, so redrive returns no job");
            assert_eq!(sql.state(id).await, "gone");
        } else {
            assert_eq!(one::<i64>(&first, &redrive, &[]).await, 1);
            assert_eq!(
                sql.one::<i32>(prune, &[]).await,
                0,
                "prune skips a job that a redrive has locked"
            );
            run(&first, "commit").await;
            assert_eq!(sql.state(id).await, "ready");
        }
        // A late finish from before the burial finds nothing in either case.
        let late: bool =
            sql.one("select leasehold.complete($1::bigint, $2)", &[&id, &generation]).await;
        assert!(!late);
    }
}

#[tokio::test]
async fn a22_prune_keeps_leases_that_ended_just_now() {
    let sql = Sql::new().await;
    let (id, generation) = sql.running().await;
    let (held, _) = sql.running().await;
    assert!(
        sql.one::<bool>("select leasehold.complete($1::bigint, $2)", &[&id, &generation]).await
    );
    let prune = "select leases from leasehold_internal.prune()";
    let explain = "select state from leasehold_internal.explain_finish(array[$1::bigint], $2)";
    assert_eq!(sql.one::<i32>(prune, &[]).await, 0, "ended just now");
    assert_eq!(sql.one::<String>(explain, &[&id, &generation]).await, "finished");
    sql.run(
        "update leasehold_internal.lease set ended_at = ended_at - interval '3 minutes', \
             lease_expires_at = lease_expires_at - interval '3 minutes'",
    )
    .await;
    assert_eq!(sql.one::<i32>(prune, &[]).await, 1, "and never one that holds a job");
    assert_eq!(
        sql.one::<String>(explain, &[&id, &generation]).await,
        "lost",
        "the lease is pruned"
    );
    assert_eq!(sql.state(held).await, "running");
}

#[tokio::test]
async fn explain_finish_returns_finished_to_the_holder_only() {
    let sql = Sql::new().await;
    let (id, generation) = sql.running().await;
    let stranger = sql.running().await.1;
    sql.run(&format!("select leasehold.complete({id}::bigint, {generation})")).await;
    let explain = "select state from leasehold_internal.explain_finish(array[$1::bigint], $2)";
    assert_eq!(sql.one::<String>(explain, &[&id, &generation]).await, "finished");
    assert_eq!(
        sql.one::<String>(explain, &[&id, &stranger]).await,
        "lost",
        "its lease never held the job"
    );
}

#[tokio::test]
async fn promote_makes_waiting_jobs_due_and_touches_no_others() {
    let sql = Sql::new().await;
    let later: i64 = sql
        .one("select job_id from leasehold.enqueue('note', scheduled_at => now() + interval '1 day')", &[])
        .await;
    let (running, _) = sql.running().await;
    sql.run("update leasehold.job set scheduled_at = now() + interval '1 hour' where held").await;
    let moved: Vec<i64> = all(
        &sql.client,
        "select leasehold.promote(array[$1, $2]::bigint[], 'ann')",
        &[&later, &running],
    )
    .await;
    assert_eq!(moved, [later]);
    assert_eq!(claim(&sql.client, "w", 5).await.ids, [later]);
}

#[tokio::test]
async fn set_queue_returns_whether_a_setting_changed() {
    let sql = Sql::new().await;
    let set = "select leasehold.set_queue('mail', 'me', max_lost => 5)";
    assert!(sql.one::<bool>(set, &[]).await);
    assert!(!sql.one::<bool>(set, &[]).await);
}

#[tokio::test]
async fn values_outside_of_a_list_are_refused_with_what_to_do() {
    let sql = Sql::new().await;
    sql.enqueue(1).await;
    let held = claim(&sql.client, "w", 1).await;
    let bury = format!("select leasehold.bury({}, {}, 'x', 'bored')", held.ids[0], held.generation);
    let add = |cron: &str, zone: &str, missed: &str| {
        format!(
            "select leasehold.add_schedule('s', '{cron}', '{zone}', 'default', 'x', '{{}}', 0, \
             '{missed}', now(), 'me')"
        )
    };
    for (text, words) in [
        (bury, "cause is 'bored'; it must be exhausted, lost, rejected, undecodable or expired"),
        (add("not a cron", "UTC", "once"), "cron is 'not a cron'; it must be five fields"),
        (add("0 3 * * *", "Nowhere/X", "once"), "there is no time zone 'Nowhere/X'"),
        (add("@daily", "UTC", "sometimes"), "missed is 'sometimes'; it must be skip, once or all"),
    ] {
        let error = sql.client.simple_query(&text).await.unwrap_err();
        let refused = error.as_db_error().unwrap();
        assert_eq!(refused.code().code(), "LH002", "{text}");
        assert!(refused.message().contains(words), "{}", refused.message());
        assert!(refused.hint().is_some(), "{text}");
    }
    run(&sql.client, &add("@daily", "Europe/Berlin", "all")).await;
    assert_eq!(sql.state(held.ids[0]).await, "running");
}
