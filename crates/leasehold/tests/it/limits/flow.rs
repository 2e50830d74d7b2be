//! Ordered keys, rates and a queue limit under claimers that end jobs in every way, die and lose leases.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::chaos::{Dice, claimer, reclaimer};
use super::{complete, look_now, take, walk};
use crate::sql::{Sql, joined};

const JOBS: i32 = 300;
const CLAIMERS: u64 = 4;

/// Keys `o:1` are ordered, keys `r:2` start at most two jobs and then 50 per second.
fn key(n: usize) -> String {
    if n.is_multiple_of(2) { format!("o:{n}") } else { format!("r:{n}") }
}

#[tokio::test(flavor = "multi_thread")]
async fn l12_l14_l28_order_rate_and_queue_limit_hold_whatever_ends_the_jobs() {
    let sql = Sql::new().await;
    sql.run(
        "update leasehold_internal.queue set max_attempts = 1000000, max_lost = 30000; \
         select leasehold.set_limit('default', 'o', 'ann', ordered => true); \
         select leasehold.set_limit('default', 'r', 'ann', rate => 50, per => '1 second', burst => 2); \
         select leasehold.set_limit('default', null, 'ann', 12); \
         create table public.note (at timestamptz default clock_timestamp(), n int generated always as identity, \
                            key text, job bigint, seq int, what text); \
         create function note() returns trigger language plpgsql as $$ begin \
             insert into public.note (key, job, seq, what) values (old.limit_key, old.id, (old.kwargs ->> 'seq')::int, \
                 case when tg_op = 'DELETE' then 'gone' when new.held then 'start' else 'back' end); \
             return null; end $$; \
         create trigger note after update of held on leasehold.job for each row \
             when (old.held <> new.held) execute function note(); \
         create trigger gone after delete on leasehold.job for each row execute function note(); \
         create function tokens() returns trigger language plpgsql as $$ begin \
             insert into public.note (key, job, seq, what) select new.key, 0, 0, 'overdrawn' \
                 where new.full_at > clock_timestamp() + interval '40 ms'; \
             return null; end $$; \
         create trigger tokens after update on leasehold_internal.limit_key for each row execute function tokens()",
    )
    .await;
    let over = Arc::new(AtomicBool::new(false));
    let reclaiming = tokio::spawn(reclaimer(sql.actor().await, Arc::clone(&over)));
    let mut claimers = Vec::new();
    for seed in 0..CLAIMERS {
        claimers.push(tokio::spawn(claimer(sql.actor().await, Dice(seed))));
    }
    let mut dice = Dice(7);
    let too_many = "select count(*) from leasehold.job where held";
    for seq in 0..JOBS {
        let key = key(dice.roll(20));
        let enqueue = "select job_id from leasehold.enqueue('note', jsonb_build_object('seq', $2::int), limit_key => $1)";
        sql.one::<i64>(enqueue, &[&key, &seq]).await;
        assert!(sql.one::<i64>(too_many, &[]).await <= 12);
    }
    for claimer in claimers {
        joined(claimer).await;
    }
    over.store(true, Ordering::SeqCst);
    joined(reclaiming).await;
    sql.run(
        "update leasehold_internal.lease set lease_expires_at = now() - interval '1 s' where ended_at is null; \
         select * from leasehold_internal.reclaim_leases(100000)",
    )
    .await;
    for _ in 0..2000 {
        sql.due().await;
        walk(&sql).await;
        look_now(&sql).await;
        for job in take(&sql.client, 100).await {
            complete(&sql.client, job).await;
        }
        if sql.count("job").await == 0 {
            break;
        }
    }
    assert_eq!(sql.count("job").await, 0, "stuck");
    let rows = sql
        .client
        .query(
            "select key, seq, what from public.note order by at, what <> 'gone', what <> 'back', n",
            &[],
        )
        .await
        .unwrap();
    let mut first: HashMap<String, Vec<i32>> = HashMap::new();
    for row in &rows {
        if row.get::<_, &str>(2) == "overdrawn" {
            continue;
        }
        let all = first.entry(row.get(0)).or_default();
        if !all.contains(&row.get(1)) {
            all.push(row.get(1));
        }
        all.sort_unstable();
    }
    for row in &rows {
        let (key, seq, what): (String, i32, &str) = (row.get(0), row.get(1), row.get(2));
        let Some(left) = first.get_mut(&key) else { continue };
        match what {
            "gone" => left.retain(|other| *other != seq),
            "start" if key.starts_with('o') => assert_eq!(left[0], seq, "the first of {key}"),
            _ => {}
        }
    }
    let overdrawn = "select count(*) from public.note where what = 'overdrawn'";
    assert_eq!(sql.one::<i64>(overdrawn, &[]).await, 0, "more starts than tokens");
}
