//! The examples in Python and Node.js: producers and consumers in plain SQL, beside Rust.

use leasehold::{Enqueue, Job, JobResult, JobTx};
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;

use crate::scripts::{BOTH, Consumer, Language, produce, refused_consumer, try_produce};
use crate::support::{engine, until};

/// Long enough that a lease ends when a test expires it, and not because the machine is slow.
const LEASE: &str = "1 hour";

/// The job of the scripts, as a Rust type.
#[derive(Job, Serialize, Deserialize)]
#[job(name = "letter.print", queue = "letters")]
struct PrintLetter {
    letter: i64,
}

async fn print_letter(job: PrintLetter, tx: JobTx) -> JobResult {
    tx.execute("insert into printed values ($1, 'rust')", &[&job.letter]).await?;
    Ok(tx.complete().await?)
}

/// Stores letters and enqueues their jobs, as the producer scripts do.
async fn produce_from_rust(database: &TestDatabase, first: i64, count: i64) {
    let mut client = database.connect().await;
    for letter in first..first + count {
        let tx = client.transaction().await.expect("a transaction");
        tx.execute("insert into letter values ($1, 'reader')", &[&letter]).await.expect("a letter");
        PrintLetter { letter }.enqueue(&tx).await.expect("enqueued");
        tx.commit().await.expect("committed");
    }
}

/// Returns the letters and who printed them, in order.
async fn printed(client: &Client) -> Vec<(i64, String)> {
    let sql = "select letter, by from printed order by letter, by";
    let rows = client.query(sql, &[]).await.expect("printed");
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect(sql).get(0)
}

/// Waits until a consumer blocks on its insert into `printed`.
async fn until_blocked(client: &Client) {
    let sql = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' \
               and query like 'insert into printed%' and datname = current_database()";
    until(async || count(client, sql).await == 1).await;
}

#[tokio::test]
async fn each_language_consumes_jobs_of_the_others() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    for (n, consumer) in
        [Some(Language::Python), Some(Language::Node), None].into_iter().enumerate()
    {
        let first = 100 * i64::try_from(n).expect("small");
        produce(Language::Python, &database, first, 4).await;
        produce(Language::Node, &database, first + 4, 4).await;
        produce_from_rust(&database, first + 8, 4).await;
        let by = match consumer {
            Some(language) => {
                let mut consumer = Consumer::start(language, &database, LEASE).await;
                consumer.finishes(12).await;
                assert_eq!(consumer.stop().await, Vec::<String>::new());
                language.name()
            }
            None => {
                let worker = engine(&database).await.worker().handle(print_letter);
                assert_eq!(worker.run_until_idle().await.expect("it ends").completed, 12);
                "rust"
            }
        };
        let wanted: Vec<_> = (first..first + 12).map(|letter| (letter, by.to_owned())).collect();
        assert_eq!(printed(&client).await, wanted);
        client.batch_execute("delete from printed").await.expect("cleared");
    }
    assert_eq!(count(&client, "select count(*) from leasehold.job").await, 0);
    assert_eq!(count(&client, "select count(*) from leasehold_internal.finished_job").await, 36);
}

#[tokio::test]
async fn python_and_node_share_a_queue_and_each_job_runs_once() {
    let database = TestDatabase::new().await;
    produce(Language::Python, &database, 0, 40).await;
    produce(Language::Node, &database, 40, 40).await;
    let mut python = Consumer::start(Language::Python, &database, LEASE).await;
    let mut node = Consumer::start(Language::Node, &database, LEASE).await;
    for _ in 0..80 {
        let line = tokio::select! {
            line = python.next_line() => line,
            line = node.next_line() => line,
        };
        assert!(line.starts_with("done "), "{line}");
    }
    assert_eq!(python.stop().await, Vec::<String>::new());
    assert_eq!(node.stop().await, Vec::<String>::new());
    let client = database.connect_directly().await;
    let letters: Vec<i64> = printed(&client).await.into_iter().map(|(letter, _)| letter).collect();
    assert_eq!(letters, (0..80).collect::<Vec<_>>());
    let ends = "select count(*) from leasehold_internal.finished_job where outcome = 'completed' and attempts = 1";
    assert_eq!(count(&client, ends).await, 80);
}

#[tokio::test]
async fn consumer_refuses_an_sql_interface_of_another_version() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let later = "create or replace function leasehold.contract() returns int language sql immutable as 'select 2'";
    client.batch_execute(later).await.expect("replaced");
    for language in BOTH {
        let text = refused_consumer(language, &database).await;
        assert!(text.contains("has version 2"), "{}: {text}", language.name());
    }
}

#[tokio::test]
async fn producer_that_runs_twice_enqueues_one_job() {
    let database = TestDatabase::new().await;
    assert_eq!(produce(Language::Python, &database, 0, 5).await, "5 new jobs, 0 known");
    assert_eq!(produce(Language::Python, &database, 0, 6).await, "1 new jobs, 5 known");
    // The keys are the same in both languages, and so are the kwargs.
    assert_eq!(produce(Language::Node, &database, 0, 8).await, "2 new jobs, 6 known");
    let client = database.connect_directly().await;
    assert_eq!(count(&client, "select count(*) from leasehold.job").await, 8);
}

#[tokio::test]
async fn producer_whose_commit_fails_leaves_neither_letter_nor_job() {
    for language in BOTH {
        let database = TestDatabase::new().await;
        produce(language, &database, 0, 1).await;
        let client = database.connect_directly().await;
        let at_commit = "
            create function refuse() returns trigger language plpgsql as
                $$ begin raise exception 'job % is refused', new.id; end $$;
            create constraint trigger refuse after insert on leasehold.job
                deferrable initially deferred for each row
                when (new.kwargs->>'letter' = '3') execute function refuse()";
        client.batch_execute(at_commit).await.expect("a rule that is checked at commit");
        let problem = try_produce(language, &database, 1, 9).await.expect_err("job 3 is refused");
        assert!(problem.contains("is refused"), "{problem}");
        for sql in [
            "select (kwargs->>'letter')::bigint from leasehold.job order by 1",
            "select number from letter order by 1",
        ] {
            let rows = client.query(sql, &[]).await.expect(sql);
            let numbers: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
            assert_eq!(numbers, [0, 1, 2], "{language:?}: {sql}");
        }
    }
}

#[tokio::test]
async fn consumer_renews_its_lease_during_long_work() {
    for language in BOTH {
        let database = TestDatabase::new().await;
        produce(language, &database, 0, 1).await;
        let mut holder = database.connect_directly().await;
        let lock = holder.transaction().await.expect("a transaction");
        lock.batch_execute("lock table printed in share mode").await.expect("the lock");
        let mut consumer = Consumer::start(language, &database, "1 second").await;
        let client = database.connect_directly().await;
        until_blocked(&client).await;
        // Longer than the lease that the claim gave.
        let renewed = "select count(*) from leasehold_internal.lease where ended_at is null \
                       and lease_expires_at > claimed_at + 2 * lease";
        until(async || count(&client, renewed).await == 1).await;
        lock.rollback().await.expect("unlocked");
        consumer.finishes(1).await;
        consumer.stop().await;
        let attempts = "select attempts::bigint from leasehold_internal.finished_job";
        assert_eq!(count(&client, attempts).await, 1, "{language:?}");
    }
}

#[tokio::test]
async fn consumer_that_lost_its_lease_drops_its_result() {
    for language in BOTH {
        let database = TestDatabase::new().await;
        produce(language, &database, 0, 1).await;
        let mut holder = database.connect_directly().await;
        let lock = holder.transaction().await.expect("a transaction");
        lock.batch_execute("lock table printed in share mode").await.expect("the lock");
        let mut consumer = Consumer::start(language, &database, LEASE).await;
        let client = database.connect_directly().await;
        until_blocked(&client).await;
        // In one transaction: a renewal must not slip in between.
        let expire = "begin; update leasehold_internal.lease set lease_expires_at = now() - interval '1 second'; \
                      select leasehold_internal.reclaim_leases(); commit";
        client.batch_execute(expire).await.expect("the lease is over");
        let finish = "select count(*) from leasehold.claim('another', 'letters') c \
                      where leasehold.complete(c.id, c.lease_generation)";
        assert_eq!(count(&client, finish).await, 1);
        lock.rollback().await.expect("unlocked");
        let line = consumer.next_line().await;
        assert!(line.starts_with("lost "), "{language:?}: {line}");
        consumer.stop().await;
        assert_eq!(printed(&client).await, [], "{language:?}");
    }
}

#[tokio::test]
async fn failed_attempt_is_recorded_and_retried() {
    for language in BOTH {
        let database = TestDatabase::new().await;
        produce(language, &database, 0, 1).await;
        let client = database.connect_directly().await;
        client.batch_execute("delete from letter").await.expect("no letter to print");
        // The second attempt must not begin before the stop.
        let patient = "insert into leasehold_internal.queue (name, backoff_base) values ('letters', '1 hour')";
        client.batch_execute(patient).await.expect("settings");
        let mut consumer = Consumer::start(language, &database, LEASE).await;
        let line = consumer.next_line().await;
        assert!(line.starts_with("retry "), "{language:?}: {line}");
        consumer.stop().await;
        let row = client.query_one("select attempts, held, last_error from leasehold.job", &[]);
        let row = row.await.expect("the job waits");
        assert_eq!((row.get::<_, i32>(0), row.get::<_, bool>(1)), (1, false));
        assert!(row.get::<_, &str>(2).contains("there is no letter 0"), "{row:?}");
    }
}

#[tokio::test]
async fn consumer_that_stops_releases_jobs_that_it_has_not_begun() {
    for language in BOTH {
        let database = TestDatabase::new().await;
        produce(language, &database, 0, 10).await;
        let mut holder = database.connect_directly().await;
        let lock = holder.transaction().await.expect("a transaction");
        lock.batch_execute("lock table printed in share mode").await.expect("the lock");
        let consumer = Consumer::start(language, &database, LEASE).await;
        let client = database.connect_directly().await;
        until_blocked(&client).await;
        consumer.ask_to_stop().await;
        lock.rollback().await.expect("unlocked");
        let lines = consumer.stopped().await;
        assert_eq!(lines.len(), 1, "{language:?}: {lines:?}");
        let handed_back = "select count(*) from leasehold.job where not held and attempts = 0";
        assert_eq!(count(&client, handed_back).await, 9, "{language:?}");
        assert_eq!(count(&client, "select count(*) from leasehold.job").await, 9);
    }
}
