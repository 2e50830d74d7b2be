//! All calls take locks in the same order, so they never deadlock.

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use tokio_postgres::Client;

use crate::sql::{Sql, blocked, claim, code, joined, pid, run, text};

/// Ways to write several jobs of one lease.
const BATCHES: [&str; 3] = [
    "select leasehold.complete_many($1::bigint[], $2)",
    "select leasehold_internal.complete_rows($1::bigint[], $2)",
    "select leasehold.release($1::bigint[], $2)",
];

#[tokio::test(flavor = "multi_thread")]
async fn c6_batches_lock_rows_in_one_order_under_every_plan() {
    for (one_batch, other_batch) in [(0, 0), (0, 2), (2, 1), (2, 2)] {
        for plan in [
            "set enable_indexscan = off; set enable_seqscan = off",
            "set enable_indexscan = off; set enable_bitmapscan = off",
        ] {
            let sql = Sql::new().await;
            let ids = sql.enqueue(3).await;
            let held = claim(&sql.client, "w", 3).await;
            // Their physical order on the page is now reversed.
            for id in [ids[1], ids[0]] {
                sql.run(&format!("update leasehold.job set priority = 1 where id = {id}")).await;
            }
            let locker = sql.actor().await;
            run(
                &locker,
                &format!("begin; select from leasehold.job where id = {} for update", ids[1]),
            )
            .await;
            let mut batches = Vec::new();
            for (batch, plan) in [
                (one_batch, "set enable_bitmapscan = off; set enable_seqscan = off"),
                (other_batch, plan),
            ] {
                let client = sql.actor().await;
                run(&client, plan).await;
                let (pid, ids, generation) = (pid(&client).await, ids.clone(), held.generation);
                batches.push(tokio::spawn(async move {
                    let done = client.query(BATCHES[batch], &[&ids, &generation]).await;
                    done.map(|rows| rows.len()).map_err(|error| code(&error))
                }));
                blocked(&sql.client, pid).await;
            }
            run(&locker, "commit").await;
            let mut done = Vec::new();
            for batch in batches {
                done.push(joined(batch).await);
            }
            done.sort();
            assert_eq!(
                done,
                [Ok(0), Ok(3)],
                "{} and {} after {plan}",
                BATCHES[one_batch],
                BATCHES[other_batch]
            );
        }
    }
}

/// Makes one random call of the contract, on leases and jobs that every other connection uses, too.
async fn random_call(client: &Client, random: &mut StdRng) -> Result<(), tokio_postgres::Error> {
    let picked = client
        .query_opt("select lease_generation, job_ids from leasehold_internal.lease where ended_at is null order by random() limit 1", &[])
        .await?;
    let Some(picked) = picked else {
        client.query("select id from leasehold.claim('w', claim_size => 12)", &[]).await?;
        return Ok(());
    };
    let generation: i64 = picked.get(0);
    let mut ids: Vec<i64> = picked.get(1);
    ids.shuffle(random);
    ids.truncate(random.random_range(1..=12));
    let some = *ids.choose(random).unwrap_or(&0);
    let sql = match random.random_range(0..12) {
        0 | 1 => {
            format!("select leasehold.complete_many('{{{}}}'::bigint[], {generation})", list(&ids))
        }
        2 | 3 => format!("select leasehold.release('{{{}}}', {generation})", list(&ids)),
        4 => format!("select leasehold.renew('{{{generation}}}')"),
        5 => format!(
            "with late as (update leasehold_internal.lease set lease_expires_at = now() - interval '1 second' where \
             lease_generation = (select lease_generation from leasehold_internal.lease where lease_generation = {generation} \
             for update skip locked)) select leasehold_internal.reclaim_leases()"
        ),
        6 => "select leasehold_internal.reclaim_leases()".to_owned(),
        7 => format!("select leasehold.cancel({some}, 'ann')"),
        8 => format!("select leasehold.fail({some}, {generation}, 'no', '0')"),
        9 => format!("select leasehold.bury({some}, {generation}, 'no')"),
        10 => format!(
            "select leasehold.redrive('{{{}}}', 'ann'), leasehold.promote('{{{}}}', 'ann')",
            list(&ids),
            list(&ids)
        ),
        _ => "select id from leasehold.claim('w', claim_size => 12)".to_owned(),
    };
    client.query(&sql, &[]).await.map(drop)
}

fn list(ids: &[i64]) -> String {
    ids.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
}

#[tokio::test(flavor = "multi_thread")]
async fn c6_eight_connections_on_the_same_jobs_do_not_deadlock() {
    let sql = Sql::new().await;
    sql.run("select leasehold_internal.queue_settings('default')").await;
    let mut tasks = Vec::new();
    for seed in 0..8_u64 {
        let client = sql.actor().await;
        // Different plans read rows in different orders.
        let plan = [
            "",
            "set enable_indexscan = off; set enable_seqscan = off",
            "set enable_bitmapscan = off; set enable_seqscan = off",
            "set enable_indexscan = off; set enable_bitmapscan = off",
        ];
        run(&client, plan[seed as usize % 4]).await;
        tasks.push(tokio::spawn(async move {
            let mut random = StdRng::seed_from_u64(seed);
            for call in 0..75 {
                if call % 15 == 0 {
                    let sql = "select leasehold.enqueue_many(array_fill('note'::text, array[20]), array_fill('{}'::jsonb, array[20]))";
                    run(&client, sql).await;
                }
                if let Err(error) = random_call(&client, &mut random).await {
                    panic!("call {call} of seed {seed}: {} {}", code(&error), text(&error));
                }
            }
        }));
    }
    for task in tasks {
        joined(task).await;
    }
    let stuck: i64 = sql
        .one(
            "select count(*) from leasehold.job j where held and not exists (select from leasehold_internal.lease l \
             where l.lease_generation = j.lease_generation and ended_at is null)",
            &[],
        )
        .await;
    assert_eq!(stuck, 0);
    let (everywhere, ids): (i64, i64) = {
        let row = sql
            .client
            .query_one("select count(*), count(distinct id) from leasehold.jobs", &[])
            .await
            .unwrap();
        (row.get(0), row.get(1))
    };
    assert_eq!((everywhere, ids), (800, 800), "each of them once");
}
