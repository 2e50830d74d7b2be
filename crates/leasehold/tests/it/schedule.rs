//! Schedules: a slot fires once, however many housekeepers see it.

use crate::sql::{Sql, blocked, joined, one, pid, run};

const FIRE: &str =
    "select leasehold_internal.fire_schedule('tick', '2026-01-01 00:00Z', '2026-01-01 00:01Z')";

async fn declared(sql: &Sql) {
    sql.run(
        "insert into leasehold_internal.schedule (name, cron, job_name, next_slot) \
         values ('tick', '* * * * *', 'tidy', '2026-01-01 00:00Z')",
    )
    .await;
}

#[tokio::test]
async fn d10_two_workers_fire_a_slot_once() {
    for (end, second_fires) in [("commit", false), ("rollback", true)] {
        let sql = Sql::new().await;
        declared(&sql).await;
        let (first, second) = (sql.actor().await, sql.actor().await);
        run(&first, "begin").await;
        assert!(one::<Option<i64>>(&first, FIRE, &[]).await.is_some());
        let second_pid = pid(&second).await;
        let second = tokio::spawn(async move { one::<Option<i64>>(&second, FIRE, &[]).await });
        blocked(&sql.client, second_pid).await;
        run(&first, end).await;
        assert_eq!(joined(second).await.is_some(), second_fires, "after {end}");
        assert_eq!(sql.count("job").await, 1, "after {end}: the slot and its job, both or neither");
        let moved: bool = sql
            .one(
                "select next_slot = '2026-01-01 00:01Z' and last_job_id is not null from leasehold_internal.schedule",
                &[],
            )
            .await;
        assert!(moved);
    }
}

#[tokio::test]
async fn d10_eight_workers_fire_each_of_fifty_slots_once() {
    let sql = Sql::new().await;
    declared(&sql).await;
    let mut firers = Vec::new();
    for _ in 0..8 {
        let client = sql.actor().await;
        firers.push(tokio::spawn(async move {
            let mut fired = 0;
            for slot in 0..50 {
                let call = format!(
                    "select leasehold_internal.fire_schedule('tick', '2026-01-01 00:00Z'::timestamptz + {slot} * interval '1 minute', \
                     '2026-01-01 00:00Z'::timestamptz + {} * interval '1 minute')",
                    slot + 1
                );
                fired += usize::from(one::<Option<i64>>(&client, &call, &[]).await.is_some());
            }
            fired
        }));
    }
    let mut fired = 0;
    for firer in firers {
        fired += joined(firer).await;
    }
    assert_eq!((fired, sql.count("job").await), (50, 50));
}

#[tokio::test]
async fn paused_schedule_does_not_fire() {
    let sql = Sql::new().await;
    declared(&sql).await;
    sql.run("update leasehold_internal.schedule set paused_at = now()").await;
    assert_eq!(sql.one::<Option<i64>>(FIRE, &[]).await, None);
    assert_eq!(sql.count("job").await, 0);
}

#[tokio::test]
async fn skipped_slot_makes_no_job() {
    let sql = Sql::new().await;
    declared(&sql).await;
    let skip = "select leasehold_internal.fire_schedule('tick', '2026-01-01 00:00Z', '2026-01-01 00:05Z', 4, false)";
    assert_eq!(sql.one::<Option<i64>>(skip, &[]).await, Some(0));
    assert_eq!(sql.count("job").await, 0);
    assert_eq!(
        sql.one::<i64>("select missed_slots from leasehold_internal.schedule", &[]).await,
        4
    );
}
