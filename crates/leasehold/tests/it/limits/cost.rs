//! What a claim reads, whatever waits beside it and whatever the statistics say.

use super::{enqueue, ids, tenants};
use crate::sql::Sql;

/// Returns how many rows of the jobs one claim reads.
async fn rows_read(sql: &Sql, claim: &str) -> i64 {
    sql.run("begin").await;
    let before: i64 = sql.one(READ, &[]).await;
    sql.one::<i64>(&format!("select count(*) from {claim}"), &[]).await;
    let after: i64 = sql.one(READ, &[]).await;
    sql.run("rollback").await;
    after - before
}

const READ: &str = "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where relid = 'leasehold.job'::regclass";
const KEYED: &str = "leasehold_internal.claim_limited('w', 'default', 50, null, null, null)";
const PLAIN: &str = "leasehold_internal.claim_next('w', 'default', 50, null, null, null, null, false, -2147483648, \
                     true, 2147483647, true, '{}', '{}', '{}', '{}')";

#[tokio::test]
async fn l15_full_key_with_many_jobs_costs_the_claims_of_others_nothing() {
    let sql = tenants(1).await;
    enqueue(&sql.client, "tenant:full", 1).await;
    assert_eq!(ids(&sql.client, 10).await.len(), 1);
    sql.run("insert into leasehold.job (name, limit_key) select 'note', 'tenant:full' from generate_series(1, 5000); \
             insert into leasehold.job (name, limit_key, scheduled_at) select 'note', 'tenant:later-' || n, now() + interval '1 day' from generate_series(1, 2000) n")
        .await;
    super::walk(&sql).await;
    ids(&sql.client, 10).await;
    sql.enqueue(10).await;
    let plain = rows_read(&sql, PLAIN).await;
    assert!(plain <= 40, "{plain} rows read for 10 jobs without a key");
    for n in 0..10 {
        enqueue(&sql.client, &format!("tenant:{n}"), 1).await;
    }
    let keyed = rows_read(&sql, KEYED).await;
    assert!(keyed <= 100, "{keyed} rows read for 10 jobs of 10 keys");
}

#[tokio::test]
async fn l22_plans_stay_when_the_statistics_are_wrong() {
    for statistics in ["of no job", "of one key"] {
        let sql = tenants(2).await;
        if statistics == "of one key" {
            sql.run("insert into leasehold.job (name, limit_key) select 'note', 'tenant:7' from generate_series(1, 3000)").await;
        }
        sql.run("analyze leasehold.job; analyze leasehold_internal.limit_key; analyze leasehold_internal.limit_signal").await;
        // A session keeps the plans that it made then.
        ids(&sql.client, 10).await;
        sql.run("insert into leasehold.job (name, limit_key) select 'note', 'tenant:' || n % 500 from generate_series(1, 5000) n").await;
        for n in 0..10 {
            enqueue(&sql.client, &format!("tenant:new-{n}"), 1).await;
        }
        sql.run(
            "delete from leasehold_internal.limit_signal where key not like 'tenant:new%'; \
                 update leasehold_internal.limit_key set look_at = null",
        )
        .await;
        let keyed = rows_read(&sql, KEYED).await;
        assert!(keyed <= 100, "{keyed} rows read for 10 jobs, with statistics {statistics}");
    }
}
