//! The helpers with which users test their jobs, tested the way users call them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod time;

use std::time::Duration;

use leasehold::worker::FromRef;
use leasehold::{
    Ctx, Enqueue, EnqueueError, Finished, FinishedCounts, Job, JobError, JobResult, JobTx, Outcome,
    State,
};
use leasehold_testing::TestEngine;
use serde::{Deserialize, Serialize};

const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, Job, Serialize, Deserialize)]
#[job(name = "email.send", queue = "mail", max_attempts = 2, backoff = "2h..4h")]
struct SendEmail {
    to: String,
}

#[derive(Debug, Job, Serialize, Deserialize)]
#[job(name = "account.refund")]
struct Refund {
    order: i64,
}

fn mail(to: &str) -> SendEmail {
    SendEmail { to: to.to_owned() }
}

/// A handler that returns every kind of outcome.
async fn send_email(job: SendEmail, State(Mailer { broken }): State<Mailer>) -> JobResult {
    match job.to.as_str() {
        "later" => Ok(Outcome::Snooze(HOUR)),
        "unwanted" => Ok(Outcome::Cancel("not wanted".to_owned())),
        "nonsense" => Err(JobError::permanent("no such address")),
        _ if broken => Err(std::io::Error::other("the line is busy").into()),
        _ => Ok(Outcome::Complete),
    }
}

#[derive(Clone)]
struct Mailer {
    broken: bool,
}

async fn panic_of(test: impl Future<Output = ()> + Send + 'static) -> String {
    let panic = tokio::spawn(test).await.expect_err("it panics").into_panic();
    panic.downcast_ref::<String>().expect("a message").clone()
}

async fn count(t: &TestEngine, sql: &str) -> i64 {
    let client = t.database().connect_directly().await;
    client.query_one(sql, &[]).await.expect(sql).get(0)
}

#[tokio::test]
async fn assert_enqueued_finds_a_job_by_its_arguments() {
    let t = TestEngine::new().await;
    mail("bob").enqueue(t.engine()).await.expect("enqueued");
    let draft =
        mail("ada").draft().expect("a draft").key("k").tag("test").run_after(HOUR).priority(3);
    let id = draft.enqueue(t.engine()).await.expect("enqueued").id();
    let found = t.assert_enqueued::<SendEmail>(|job| job.to == "ada").await;
    assert_eq!((found.id, found.job.to.as_str(), found.queue.as_str()), (id, "ada", "mail"));
    assert_eq!((found.priority, found.tag.as_str(), found.key.as_deref()), (3, "test", Some("k")));
    assert_eq!((found.attempts, found.last_error), (0, None));
    assert!(found.scheduled_at > jiff::Timestamp::now());
    t.refute_enqueued::<Refund>().await;
    let all: Vec<_> =
        t.all_enqueued::<SendEmail>().await.into_iter().map(|job| job.job.to).collect();
    assert_eq!(all, ["bob", "ada"]);
}

#[tokio::test]
async fn failed_assertion_names_its_line_and_waiting_jobs() {
    let text = panic_of(async {
        let t = TestEngine::new().await;
        mail("bob").enqueue(t.engine()).await.expect("enqueued");
        t.assert_enqueued::<SendEmail>(|job| job.to == "ada").await;
    });
    let text = text.await;
    assert!(text.contains("no waiting email.send fits"), "{text}");
    assert!(
        text.contains(&format!("{}:", file!())) && text.contains(r#"in mail: {"to": "bob"}"#),
        "{text}"
    );
    let text = panic_of(async {
        let t = TestEngine::new().await;
        mail("bob").enqueue(t.engine()).await.expect("enqueued");
        t.refute_enqueued::<SendEmail>().await;
    });
    assert!(text.await.contains("email.send is waiting (asked at "));
}

#[tokio::test]
async fn perform_runs_one_handler() {
    let t = TestEngine::new().await;
    let perform = |to: &str| t.perform(send_email, mail(to)).with_state(Mailer { broken: false });
    perform("ada").await.assert_done();
    assert_eq!(perform("later").await.assert_snoozed(), HOUR);
    assert_eq!(perform("unwanted").await.assert_cancelled(), "not wanted");
    assert_eq!(perform("nonsense").await.assert_dead(), "no such address");
    let broken = t.perform(send_email, mail("ada")).with_state(Mailer { broken: true }).await;
    assert_eq!(broken.assert_retry(), "the line is busy");
    assert_eq!(count(&t, "select count(*) from leasehold.jobs").await, 0);
    assert_eq!(count(&t, "select count(*) from leasehold_internal.lease").await, 0);
}

#[tokio::test]
async fn perform_assertion_fails_on_another_outcome() {
    let text = panic_of(async {
        let t = TestEngine::new().await;
        t.perform(async |_: Refund| Outcome::Snooze(HOUR), Refund { order: 1 }).await.assert_done();
    });
    assert!(text.await.contains("the job is not done: Ok(Snooze(3600s))"));
}

#[tokio::test]
async fn performed_handler_has_attempt_and_state() {
    #[derive(Clone)]
    struct Limit(i64);
    struct App;
    impl FromRef<App> for Limit {
        fn from_ref(_: &App) -> Self {
            Self(7)
        }
    }
    async fn refund(job: Refund, ctx: Ctx, State(limit): State<Limit>) -> Result<(), JobError> {
        assert_eq!((ctx.attempt(), ctx.name(), limit.0, job.order), (3, "account.refund", 7, 9));
        let paid = ctx.once_do("pay", async || Ok(true)).await?;
        if paid { Ok(()) } else { Err(JobError::retry("not paid")) }
    }
    let t = TestEngine::new().await;
    t.perform(refund, Refund { order: 9 }).with_state(App).on_attempt(3).await.assert_done();
}

#[tokio::test]
async fn performed_handler_may_complete_in_a_transaction() {
    async fn refund(job: Refund, tx: JobTx) -> JobResult {
        tx.execute("insert into refunds values ($1)", &[&job.order]).await?;
        Ok(tx.complete().await?)
    }
    async fn forgetful(_: Refund, ctx: Ctx) -> JobResult {
        let mut client = ctx.engine().pool().get().await?;
        let tx = client.transaction().await?;
        ctx.complete_in(&tx).await?;
        Ok(Outcome::Complete) // and no commit
    }
    let t = TestEngine::new().await;
    let client = t.client().await;
    client.batch_execute("create table refunds (id bigint)").await.expect("a table");
    t.perform(refund, Refund { order: 9 }).await.assert_done();
    assert_eq!(count(&t, "select count(*) from refunds where id = 9").await, 1);
    let why = t.perform(forgetful, Refund { order: 9 }).await.assert_retry();
    assert!(why.contains("did not commit"), "{why}");
    assert_eq!(count(&t, "select count(*) from leasehold.job").await, 0);
}

#[tokio::test]
async fn drain_runs_due_jobs_and_counts_their_ends() {
    let t = TestEngine::new().await;
    for to in ["ada", "bob", "later", "unwanted", "nonsense"] {
        mail(to).enqueue(t.engine()).await.expect("enqueued");
    }
    mail("ada")
        .draft()
        .expect("a draft")
        .run_after(HOUR)
        .enqueue(t.engine())
        .await
        .expect("enqueued");
    let counts = t.drain(t.worker_with(Mailer { broken: false }).handle(send_email)).await;
    let wanted = FinishedCounts::from([
        (Finished::Completed, 2),
        (Finished::Snoozed, 1),
        (Finished::Cancelled, 1),
        (Finished::Buried, 1),
    ]);
    assert_eq!(counts, wanted);
    assert_eq!(t.all_enqueued::<SendEmail>().await.len(), 2);
}

#[tokio::test]
async fn drain_runs_jobs_that_jobs_enqueue() {
    async fn refund(job: Refund, ctx: Ctx) -> Result<(), JobError> {
        mail(&format!("owner of {}", job.order)).enqueue(ctx.engine()).await?;
        Ok(())
    }
    let t = TestEngine::new().await;
    Refund { order: 1 }.enqueue(t.engine()).await.expect("enqueued");
    let worker = t.worker_with(Mailer { broken: false }).handle(refund).handle(send_email);
    assert_eq!(t.drain(worker).await.completed, 2);
}

/// When a drain last started to check whether anything is left to do.
const LOOKED: &str = "select max(query_start)::text from pg_stat_activity \
    where datname = current_database() and query like '-- Returns whether a worker has nothing to do.%'";

#[tokio::test]
async fn drain_waits_for_running_jobs() {
    async fn refund(_: Refund, ctx: Ctx) -> Result<(), JobError> {
        // No job is due meanwhile, however often the drain checks; this waits until it has checked
        // twice.
        let client = ctx.engine().pool().get().await?;
        let (mut looks, mut last) = (0, None);
        while looks < 3 {
            let looked: Option<String> = client.query_one(LOOKED, &[]).await?.get(0);
            if looked != last {
                (looks, last) = (looks + 1, looked);
            }
            tokio::task::yield_now().await;
        }
        mail("ada").enqueue(ctx.engine()).await?;
        Ok(())
    }
    let t = TestEngine::new().await;
    Refund { order: 1 }.enqueue(t.engine()).await.expect("enqueued");
    let worker = t.worker_with(Mailer { broken: false }).handle(refund).handle(send_email);
    assert_eq!(t.drain(worker).await, FinishedCounts::from([(Finished::Completed, 2)]));
}

#[tokio::test]
async fn enqueue_errors_reach_the_test() {
    let t = TestEngine::new().await;
    let refused = mail("ada").draft().expect("a draft").queue("Mail").enqueue(t.engine()).await;
    assert!(matches!(refused, Err(EnqueueError::Refused(_))));
}
