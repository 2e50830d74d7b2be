//! Hundreds of batches, several finishers with open transactions, kills and rollbacks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_testing::TestDatabase;
use tokio_postgres::Client;

use super::*;
use crate::sql::{joined, run};

/// Numbers that look random and repeat with the seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

const BATCHES: i64 = 300;
const FINISHERS: u64 = 6;

/// Records each follow-up, and the members of its batch that had not ended when it was enqueued.
const WATCH: &str = "
    create table public.follow_up (batch_id bigint, seen timestamptz default clock_timestamp());
    create function public.watch() returns trigger language plpgsql security definer as $$
    begin
        if new.name = 'follow' then
            insert into public.follow_up (batch_id) values ((new.kwargs ->> 'batch')::bigint);
            if exists (select from leasehold.job j where j.batch_id = (new.kwargs ->> 'batch')::bigint) then
                insert into public.follow_up (batch_id) values (-1);
            end if;
        end if;
        return null;
    end $$;
    create trigger watch after insert on leasehold.job for each row execute function public.watch();";

/// Opens batches of one to twelve jobs, each with a follow-up that names its batch.
async fn store(client: &Client, dice: &mut Dice) {
    for _ in 0..BATCHES {
        let next: i64 =
            one(client, "select coalesce(max(id), 0) + 1 from leasehold.batches", &[]).await;
        let open = format!(
            "select leasehold.open_batch(on_end => '{{\"name\": \"follow\", \"queue\": \"next\", \"kwargs\": {{\"batch\": {next}}}}}')"
        );
        let batch: i64 = one(client, &open, &[]).await;
        assert_eq!(batch, next);
        let jobs = 1 + dice.below(12);
        let add = format!(
            "select count(*) from leasehold.enqueue_many(array_fill('note'::text, array[{jobs}]), \
             array_fill('{{}}'::jsonb, array[{jobs}]), batch => {batch}); select leasehold.seal_batch({batch})"
        );
        run(client, &add).await;
    }
}

/// Ends jobs in transactions that overlap those of the others, until no job is left.
async fn finish(database: Arc<TestDatabase>, seed: u64, ends: Arc<AtomicU64>) {
    let mut dice = Dice(seed | 1);
    let mut client = database.connect_directly().await;
    loop {
        let left: i64 =
            one(&client, "select count(*) from leasehold.job where queue = 'default'", &[]).await;
        if left == 0 {
            return;
        }
        run(&client, "begin").await;
        let held = claim(&client, "w", 1 + i32::try_from(dice.below(20)).expect("small")).await;
        run(&client, "commit").await;
        if held.ids.is_empty() {
            // Others hold the rest; the leases of those that were killed run out.
            run(&client, "update leasehold_internal.lease set lease_expires_at = now() - interval '1 second' \
                          where claimed_at < now() - interval '200 milliseconds' and ended_at is null").await;
            run(&client, "update leasehold.job set scheduled_at = now() where not held and scheduled_at > now()").await;
            tokio::task::yield_now().await;
            continue;
        }
        run(&client, "begin").await;
        for id in &held.ids {
            let generation = held.generation;
            let end = match dice.below(8) {
                0 => format!("select leasehold.bury({id}, {generation}, 'no')"),
                1 => format!("select leasehold.finish_cancelled({id}, {generation}, 'no')"),
                2 => format!("select leasehold.fail({id}, {generation}, 'again', '0')"),
                3 => format!("select leasehold.snooze({id}, {generation}, '0')"),
                4 => format!(
                    "select leasehold.extend_batch({id}, {generation}); \
                              select leasehold.enqueue('note', batch => j.batch_id, max_attempts => 1) \
                                from leasehold.job j where j.id = {id} and j.max_attempts is null; \
                              select leasehold.complete({id}::bigint, {generation})"
                ),
                _ => format!("select leasehold.complete({id}::bigint, {generation})"),
            };
            if client.batch_execute(&end).await.is_err() {
                // The lease was reclaimed meanwhile: the whole transaction is rolled back.
                run(&client, "rollback; begin").await;
                break;
            }
            ends.fetch_add(1, Ordering::Relaxed);
            if dice.below(3) == 0 {
                tokio::task::yield_now().await;
            }
        }
        match dice.below(10) {
            0 => run(&client, "rollback").await,
            1 => {
                // The session dies with its transaction open.
                drop(client);
                client = database.connect_directly().await;
            }
            _ => run(&client, "commit").await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k19_each_of_many_batches_has_one_follow_up_and_none_before_its_last_end() {
    let sql = Sql::new().await;
    sql.run(WATCH).await;
    store(&sql.client, &mut Dice(0x5EED)).await;
    let Sql { database, client } = sql;
    let (database, ends) = (Arc::new(database), Arc::new(AtomicU64::new(0)));
    let finishers: Vec<_> = (1..=FINISHERS)
        .map(|seed| {
            tokio::spawn(finish(Arc::clone(&database), seed * 0x9E37_79B9, Arc::clone(&ends)))
        })
        .collect();
    for finisher in finishers {
        joined(finisher).await;
    }
    let in_time: i64 =
        one(&client, "select count(*) from leasehold.batches where closed_at is not null", &[])
            .await;
    for _ in 0..3 {
        one::<i32>(
            &client,
            "select closed from leasehold_internal.look_at_batches('-1 day', '1 minute')",
            &[],
        )
        .await;
    }
    let closed: i64 =
        one(&client, "select count(*) from leasehold.batches where closed_at is not null", &[])
            .await;
    let early: i64 =
        one(&client, "select count(*) from public.follow_up where batch_id = -1", &[]).await;
    let twice: i64 = one(
        &client,
        "select count(*) from (select from public.follow_up where batch_id > 0 \
                                    group by batch_id having count(*) > 1) t",
        &[],
    )
    .await;
    let jobs: i64 =
        one(&client, "select count(*) from leasehold.job where queue = 'next'", &[]).await;
    assert_eq!(
        (closed, jobs, early, twice),
        (BATCHES, BATCHES, 0, 0),
        "{in_time} closed by their last end, {} ends",
        ends.load(Ordering::Relaxed)
    );
    let left: i64 = one(
        &client,
        "select (select count(*) from leasehold_internal.batch_member) \
                                   + (select count(*) from leasehold_internal.batch_end)",
        &[],
    )
    .await;
    assert_eq!(left, 0);
}
