//! Claimers that end jobs in every way, die, and lose their leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_postgres::Client;

use super::{enqueue, limit, look_now, take};
use crate::sql::{Sql, joined, one, run};

const KEYS: usize = 200;
const CLAIMERS: u64 = 6;
const CLAIMS: usize = 60;

/// Numbers that are the same in every run.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

/// Key `k3:17` may have three permits.
fn key(n: usize) -> String {
    format!("k{}:{n}", n % 5 + 1)
}

pub async fn claimer(client: Client, mut dice: Dice) {
    for _ in 0..CLAIMS {
        let jobs = take(&client, 1 + dice.roll(8) as i32).await;
        for (id, generation) in jobs {
            let end = match dice.roll(10) {
                0 => "select leasehold.fail($1, $2, 'x', '1 ms') is not null",
                1 => "select leasehold.snooze($1, $2, '1 ms')",
                2 => "select leasehold.defer($1, $2, '1 ms')",
                3 => "select count(*) > 0 from leasehold.release(array[$1::bigint], $2)",
                4 => "select leasehold.finish_cancelled($1, $2)",
                // The claimer dies: a reclaim returns the job.
                5 => continue,
                6 => {
                    run(&client, "begin").await;
                    super::complete(&client, (id, generation)).await;
                    run(&client, "rollback").await;
                    continue;
                }
                _ => "select leasehold.complete($1, $2)",
            };
            one::<bool>(&client, end, &[&id, &generation]).await;
        }
    }
}

pub async fn reclaimer(client: Client, over: Arc<AtomicBool>) {
    while !over.load(Ordering::SeqCst) {
        run(
            &client,
            "update leasehold_internal.lease set lease_expires_at = now() - interval '1 s' \
              where lease_generation in (select lease_generation from leasehold_internal.lease \
                    where ended_at is null order by random() limit 3 for update skip locked); \
             select * from leasehold_internal.reclaim_leases(); \
             select leasehold_internal.walk_limits('-1 day')",
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_l2_l3_no_key_exceeds_its_limit_and_none_is_stuck_whatever_ends_its_jobs() {
    let sql = Sql::new().await;
    sql.run("update leasehold_internal.queue set max_attempts = 1000000, max_lost = 30000").await;
    for n in 1..=5 {
        limit(&sql, &format!("k{n}"), n).await;
    }
    // One permit per key: the database refuses a second one.
    sql.run(
        "create unique index on leasehold.job (limit_key) where permit and limit_key like 'k1:%'",
    )
    .await;
    let over = Arc::new(AtomicBool::new(false));
    let reclaiming = tokio::spawn(reclaimer(sql.actor().await, Arc::clone(&over)));
    let mut claimers = Vec::new();
    for seed in 0..CLAIMERS {
        claimers.push(tokio::spawn(claimer(sql.actor().await, Dice(seed))));
    }
    let mut dice = Dice(99);
    let too_many = "select count(*) from (select from leasehold.job where permit group by limit_key \
                    having count(*) > substr(limit_key, 2, 1)::int) o";
    for _ in 0..300 {
        let key = key(dice.roll(KEYS));
        if dice.roll(4) == 0 {
            let plain =
                "insert into leasehold.job (name, tag, limit_key) values ('note', 'plain', $1)";
            sql.client.execute(plain, &[&key]).await.unwrap();
        } else {
            enqueue(&sql.client, &key, 1 + dice.roll(3)).await;
        }
        assert_eq!(sql.one::<i64>(too_many, &[]).await, 0);
    }
    for claimer in claimers {
        joined(claimer).await;
    }
    over.store(true, Ordering::SeqCst);
    joined(reclaiming).await;
    assert_eq!(sql.one::<i64>(too_many, &[]).await, 0);
    let stuck = "select count(*) from (select distinct limit_key as key from leasehold.job where not permit) w \
                  where leasehold_internal.key_has_due('default', w.key) \
                    and leasehold_internal.has_room('default', w.key) \
                    and not exists (select from leasehold_internal.limit_key k \
                                     where k.key = w.key and k.look_at is not null) \
                    and not exists (select from leasehold_internal.limit_signal s where s.key = w.key) \
                    and not exists (select from leasehold.job j where j.limit_key = w.key and j.tag = 'plain')";
    assert_eq!(sql.one::<i64>(stuck, &[]).await, 0, "a key with work and room, without a signal");
    // Plain inserts need the walk, the others do not.
    super::walk(&sql).await;
    sql.run(
        "update leasehold_internal.lease set lease_expires_at = now() - interval '1 s' where ended_at is null; \
         select * from leasehold_internal.reclaim_leases(100000)",
    )
    .await;
    sql.due().await;
    for _ in 0..1000 {
        look_now(&sql).await;
        for job in take(&sql.client, 100).await {
            super::complete(&sql.client, job).await;
        }
        if sql.count("job").await == 0 {
            break;
        }
    }
    assert_eq!(sql.count("job").await, 0, "stuck");
}
