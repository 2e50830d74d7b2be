//! What is stored of a handler's error texts.

use leasehold::{Enqueue, Finished, JobError, JobResult};
use leasehold_testing::TestDatabase;

use crate::fixture::{queue_settings, run};
use crate::logs::Logs;
use crate::sql::one;
use crate::support::{Note, engine};

async fn fails(_: Note) -> JobResult {
    Err(JobError::retry("no route to postgres://ann:hunter2@db/x (password=hunter2)"))
}

#[tokio::test(flavor = "multi_thread")]
async fn h25_passwords_do_not_reach_the_table() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect_directly().await);
    let mut worker = run(engine.worker().queue("default", 1).handle(fails));
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    assert_eq!(worker.next_end().await, Finished::Retried);
    worker.stop().await;
    let kept: String = one(&client, "select concat_ws(' ', j.*) from leasehold.job j", &[]).await;
    assert!(kept.contains("no route to postgres://ann:***@db/x (password=***"), "{kept}");
    assert!(!kept.contains("hunter2"), "{kept}");
}

#[tokio::test(flavor = "multi_thread")]
async fn h25_hidden_error_texts_reach_neither_job_nor_history() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect_directly().await);
    queue_settings(&client, "backoff_base = '1 millisecond'").await;
    let handler = async |_: Note, ctx: leasehold::Ctx| -> JobResult {
        match ctx.attempt() {
            1 => Err(JobError::retry("a secret")),
            2 => panic!("a secret"),
            _ => Ok(leasehold::Outcome::Cancel("a secret".into())),
        }
    };
    let worker = engine.worker().queue("default", 1).hide_error_texts();
    let mut worker = run(worker.handle(handler));
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    let ends: Vec<_> = worker.finished(3).await.into_iter().map(|end| end.1).collect();
    assert_eq!(ends, [Finished::Retried, Finished::Retried, Finished::Cancelled]);
    worker.stop().await;
    let kept: String =
        one(&client, "select concat_ws(' ', f.*) from leasehold_internal.finished_job f", &[])
            .await;
    assert!(kept.contains("hides error texts") && !kept.contains("a secret"), "{kept}");
}

#[tokio::test]
async fn h25_hidden_text_of_a_handler_that_was_not_started_is_not_logged() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let logs = Logs::collect();
    let handler = async |_: Note| -> JobResult { Err(JobError::not_started("a secret")) };
    let worker = engine.worker().queue("default", 1).hide_error_texts();
    let mut worker = run(worker.handle(handler));
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    assert_eq!(worker.next_end().await, Finished::Snoozed);
    worker.stop().await;
    assert!(logs.has("WARN", "was not started"), "{}", logs.text());
    assert!(!logs.text().contains("a secret"), "{}", logs.text());
}
