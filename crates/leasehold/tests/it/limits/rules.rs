//! Which limit holds, and what operators see of it.

use leasehold::admin::{By, LimitSource, LimitState, Toggle};
use leasehold::{AdminError, JobId, Limit};

use super::{complete, enqueue, ids, limit, permits, take, tenants};
use crate::sql::Sql;
use crate::support::engine;

#[tokio::test]
async fn l11_limit_that_is_lowered_raised_or_removed_holds_for_the_next_start() {
    let sql = tenants(3).await;
    let jobs = enqueue(&sql.client, "tenant:7", 10).await;
    let running = take(&sql.client, 10).await;
    assert_eq!(running.len(), 3);
    limit(&sql, "tenant", 1).await;
    assert!(complete(&sql.client, running[0]).await);
    assert!(complete(&sql.client, running[1]).await);
    assert_eq!(ids(&sql.client, 10).await, [0_i64; 0], "one still runs");
    limit(&sql, "tenant", 2).await;
    assert_eq!(ids(&sql.client, 10).await, jobs[3..4]);
    // The rule of the key itself comes before the one of its prefix.
    limit(&sql, "tenant:7", 4).await;
    assert_eq!(ids(&sql.client, 10).await, jobs[4..6]);
    for key in ["tenant:7", "tenant"] {
        sql.client
            .execute("select leasehold.remove_limit('default', $1, 'ann')", &[&key])
            .await
            .unwrap();
    }
    assert_eq!(ids(&sql.client, 10).await, jobs[6..], "no limit");
    assert_eq!(permits(&sql).await, ["tenant:7 8"]);
}

#[tokio::test]
async fn l11_limit_of_an_operator_comes_before_the_declared_one() {
    let sql = Sql::new().await;
    let engine = engine(&sql.database).await;
    let (limits, by) = (engine.limits(), By::new("ann").why("a large customer"));
    let declare = "select leasehold_internal.declare_limits('web', '[{\"queue\": \"default\", \"key\": \"tenant\", \"max_running\": 2}]')";
    sql.run(declare).await;
    let found = limits.get("default", "tenant").await.unwrap().expect("declared");
    assert_eq!(
        (found.max_running, found.source, found.set_by.as_str()),
        (Some(2), LimitSource::Code, "web")
    );
    limits.set("default", &Limit::new("tenant").max_running(5), &by).await.unwrap();
    sql.run(declare).await;
    let found = limits.list(Some("default")).await.unwrap().remove(0);
    assert_eq!((found.max_running, found.source), (Some(5), LimitSource::Operator));
    assert_eq!(found.declared_max_running, Some(2));
    enqueue(&sql.client, "tenant:7", 9).await;
    assert_eq!(take(&sql.client, 20).await.len(), 5);
    assert_eq!(limits.remove("default", "tenant", &by).await.unwrap(), Toggle::Changed);
    assert_eq!(limits.remove("default", "tenant", &by).await.unwrap(), Toggle::NotFound);
    assert_eq!(
        limits.get("default", "tenant").await.unwrap().expect("declared").max_running,
        Some(2)
    );
    assert_eq!(limits.retire("default", "tenant", &by).await.unwrap(), Toggle::Changed);
    assert!(limits.list(None).await.unwrap().is_empty());
    assert_eq!(sql.count("audit").await, 3);
}

#[tokio::test]
async fn paused_key_waits_and_shows_why() {
    let sql = tenants(1).await;
    let engine = engine(&sql.database).await;
    let (limits, by) = (engine.limits(), By::new("ann").why("its provider is down"));
    let jobs = enqueue(&sql.client, "tenant:7", 3).await;
    let why = async |id: i64| engine.jobs().why_waiting(JobId(id)).await.unwrap();
    assert_eq!(
        why(jobs[1]).await.as_deref(),
        Some("it waits for the turn of limit tenant:7, 0 of 1 running, 1 before it")
    );
    assert_eq!(limits.pause("default", "tenant:7", &by).await.unwrap(), Toggle::Changed);
    assert_eq!(limits.pause("default", "tenant:7", &by).await.unwrap(), Toggle::Already);
    assert_eq!(ids(&sql.client, 10).await, [0_i64; 0]);
    assert_eq!(
        why(jobs[0]).await.as_deref(),
        Some("limit key tenant:7 is paused by ann: its provider is down")
    );
    let keys = limits.keys("default", "", 10).await.unwrap();
    assert_eq!((keys[0].state, keys[0].waiting), (LimitState::Paused, 3));
    assert_eq!(limits.resume("default", "tenant:7", &by).await.unwrap(), Toggle::Changed);
    assert_eq!(limits.resume("default", "tenant:7", &by).await.unwrap(), Toggle::Already);
    assert_eq!(ids(&sql.client, 10).await, jobs[..1]);
    assert_eq!(
        why(jobs[2]).await.as_deref(),
        Some("it waits for limit tenant:7, 1 of 1 running, 1 before it")
    );
    assert_eq!(why(jobs[0]).await.as_deref(), Some("it is running"));
    assert_eq!(why(1_000_000).await, None);
    let keys = limits.keys("default", "", 10).await.unwrap();
    assert_eq!((keys[0].state, keys[0].running, keys[0].waiting), (LimitState::Full, 1, 2));
}

#[tokio::test]
async fn limit_that_is_not_allowed_is_refused_with_its_value() {
    let sql = Sql::new().await;
    let engine = engine(&sql.database).await;
    let by = By::new("ann");
    let error = engine.limits().set("default", &Limit::new("tenant").max_running(0), &by).await;
    let AdminError::Refused(text) = error.expect_err("refused") else { panic!("another error") };
    assert_eq!(text, "max_running is 0; it must be between 1 and 1000000");
    let refused =
        async |call: &str| crate::sql::refused(&sql.client, &format!("select {call}"), &[]).await;
    for (call, text) in [
        ("leasehold.set_limit('default', 'tenant', 'ann', -1)", "max_running is -1"),
        ("leasehold.set_limit('default', 'tenant', 'ann', weight => 0)", "weight is 0"),
        ("leasehold.set_limit('default', '', 'ann', 1)", "this limit key has 0 bytes"),
        (
            "leasehold.pause_limit('default', repeat('x', 201), 'ann')",
            "this limit key has 201 bytes",
        ),
    ] {
        let (code, message) = refused(call).await;
        assert_eq!(code, "LH002", "{call}");
        assert!(message.starts_with(text), "{message}");
    }
    assert_eq!(sql.count("audit").await, 0);
}
