//! Upload jobs that end without an upload: their pastes become FAILED, for every way in which a job ends.

use leasehold::{Job, JobError};
use pastes::{ReadError, ShortCode};
use serde::{Deserialize, Serialize};

use crate::fixture::Fixture;

/// Starts a service whose check of uploads runs only when a test enqueues it.
async fn start() -> Fixture {
    let fixture = Fixture::new().await;
    // The first worker declares the schedules.
    fixture.work().await;
    let pause = "select leasehold.pause_schedule('pastes.check_uploads', 'test')";
    fixture.client.batch_execute(pause).await.unwrap();
    fixture
}

/// Asserts that the upload job is dead, for this cause.
async fn assert_dead(fixture: &Fixture, cause: &str) {
    let sql = "select cause from leasehold.jobs where name = 'pastes.upload' and state = 'dead'";
    let row = fixture.client.query_one(sql, &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), cause);
}

/// Runs the scheduled job that looks for uploads whose job has ended.
async fn check_uploads(fixture: &Fixture) {
    let sql = "select leasehold.enqueue('pastes.check_uploads', queue => 'pastes.housekeeping')";
    fixture.client.batch_execute(sql).await.unwrap();
    fixture.work().await;
}

/// Asserts that the paste still waits, and that the check then marks it FAILED.
async fn assert_found_by_the_check(fixture: &Fixture, code: &ShortCode) {
    assert_eq!(fixture.status(code).await, "IN_PROGRESS", "no hook ran");
    check_uploads(fixture).await;
    assert_eq!(fixture.status(code).await, "FAILED");
    assert!(matches!(fixture.pastes.read(code).await, Err(ReadError::NotFound)));
}

#[tokio::test]
async fn e41_worker_that_buries_an_upload_marks_its_paste_failed() {
    let fixture = start().await;
    let (code, other) = (fixture.paste("one").await, fixture.paste("other").await);
    fixture
        .client
        .batch_execute(
            "update leasehold.job set attempts = 5 where kwargs ->> 'code' = \
                 (select short_code from pastes.pastes where content_hash = encode(sha256('one'), 'hex')); \
             update pastes.contents set content_hash = repeat('0', 64) \
              where content_hash = encode(sha256('one'), 'hex')",
        )
        .await
        .unwrap();
    fixture.work().await;
    assert_dead(&fixture, "exhausted").await;
    assert_eq!(fixture.status(&code).await, "FAILED");
    assert_eq!(fixture.status(&other).await, "PROCESSED");
}

/// The upload job, as a worker sees it that dies before its hook runs.
#[derive(Serialize, Deserialize)]
struct Upload {}

impl Job for Upload {
    const NAME: &'static str = "pastes.upload";
    const QUEUE: &'static str = "pastes";
}

#[tokio::test]
async fn e41_paste_fails_if_the_worker_dies_between_the_burial_and_its_hook() {
    let fixture = start().await;
    let code = fixture.paste("lost hook").await;
    let hookless = fixture.engine.worker().queue("pastes", 1);
    let hookless = hookless
        .handle(async |_: Upload| -> Result<(), JobError> { Err(JobError::permanent("no")) });
    hookless.run_until_idle().await.unwrap();
    assert_dead(&fixture, "rejected").await;
    assert_found_by_the_check(&fixture, &code).await;
}

#[tokio::test]
async fn e41_paste_fails_if_housekeeping_buries_a_lost_upload() {
    let fixture = start().await;
    let code = fixture.paste("lost worker").await;
    fixture
        .client
        .batch_execute(
            "update leasehold.job set lost_count = 2; \
             select leasehold.claim('a worker that dies', queue => 'pastes'); \
             update leasehold_internal.lease set lease_expires_at = now() - interval '1 second'",
        )
        .await
        .unwrap();
    fixture.work().await;
    assert_dead(&fixture, "lost").await;
    assert_found_by_the_check(&fixture, &code).await;
}

#[tokio::test]
async fn e41_paste_fails_if_housekeeping_buries_an_expired_upload() {
    let fixture = start().await;
    let code = fixture.paste("expired job").await;
    let expire = "update leasehold.job set expires_at = now() - interval '1 second', \
                  scheduled_at = now() - interval '2 seconds'";
    fixture.client.batch_execute(expire).await.unwrap();
    fixture.work().await;
    assert_dead(&fixture, "expired").await;
    assert_found_by_the_check(&fixture, &code).await;
}

#[tokio::test]
async fn e41_paste_fails_if_an_operator_ends_its_upload() {
    for end in [
        "select leasehold.cancel(id, 'ann', 'no') from leasehold.job",
        "delete from leasehold.job where name = 'pastes.upload'",
    ] {
        let fixture = start().await;
        let code = fixture.paste("ended").await;
        fixture.client.batch_execute(end).await.unwrap();
        assert_found_by_the_check(&fixture, &code).await;
    }
}

#[tokio::test]
async fn e41_check_leaves_pastes_whose_job_waits_or_runs() {
    let fixture = start().await;
    let (waits, runs) = (fixture.paste("waits").await, fixture.paste("runs").await);
    let claim = "select leasehold.claim('worker', queue => 'pastes', claim_size => 1)";
    fixture.client.batch_execute(claim).await.unwrap();
    assert_eq!(fixture.pastes.check_uploads().await.unwrap(), 0);
    for code in [waits, runs] {
        assert_eq!(fixture.status(&code).await, "IN_PROGRESS");
    }
}

#[tokio::test]
async fn e41_check_reads_every_page_of_waiting_pastes() {
    let fixture = start().await;
    fixture.paste("many").await;
    // Copies of one content, and of others: the pages end within a content, too.
    fixture
        .client
        .batch_execute(
            "insert into pastes.pastes select (jsonb_populate_record(p, jsonb_build_object( \
                 'short_code', 'copy' || i, 'paste_id', gen_random_uuid(), \
                 'content_id', p.content_id + i / 1500, \
                 'created_at', now() - interval '2 hours'))).* \
               from pastes.pastes p, generate_series(1, 2500) i; \
             delete from leasehold.job",
        )
        .await
        .unwrap();
    assert_eq!(fixture.pastes.check_uploads().await.unwrap(), 2501);
    let waiting = "select count(*) from pastes.pastes where status = 'IN_PROGRESS'";
    assert_eq!(fixture.count(waiting).await, 0);
}

#[tokio::test]
async fn e41_check_reads_no_other_pastes_and_jobs() {
    let fixture = start().await;
    fixture.paste("waits").await;
    let check = "select failed::bigint from pastes.check_uploads(0, '', 1000)";
    // The session plans the statements now, and keeps the plans.
    assert_eq!(fixture.count(check).await, 0);
    fixture
        .client
        .batch_execute(
            "insert into pastes.pastes select (jsonb_populate_record(p, jsonb_build_object( \
                 'short_code', 'done' || i, 'paste_id', gen_random_uuid(), \
                 'status', 'PROCESSED', 's3_url', 'x'))).* \
               from pastes.pastes p, generate_series(1, 1000) i; \
             insert into leasehold.job (name, queue) \
                 select 'other', 'other' from generate_series(1, 1000); \
             begin",
        )
        .await
        .unwrap();
    let read = "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint \
                from pg_stat_xact_user_tables \
                where relid in ('pastes.pastes'::regclass, 'leasehold.job'::regclass)";
    let before = fixture.count(read).await;
    assert_eq!(fixture.count(check).await, 0);
    let rows = fixture.count(read).await - before;
    assert!(rows < 10, "{rows} rows were read");
}

#[tokio::test]
async fn e11_upload_that_succeeds_after_its_burial_changes_nothing() {
    let fixture = Fixture::new().await;
    let code = fixture.paste("late").await;
    // A worker has put the object and sleeps; meanwhile its job ends.
    fixture.client.batch_execute("delete from leasehold.job").await.unwrap();
    assert_eq!(fixture.pastes.check_uploads().await.unwrap(), 1);
    assert_eq!(fixture.status(&code).await, "FAILED");
    let finish = "select pastes.finish_uploads(array_agg(content_id), array_agg('x'::text)) \
                  from pastes.contents";
    fixture.client.query(finish, &[]).await.unwrap();
    assert_eq!(fixture.status(&code).await, "FAILED", "FAILED is final");
    assert_eq!(fixture.count("select count(*) from pastes.staged").await, 1, "the bytes are kept");
    // The bytes can be pasted again; the late object serves them.
    let again = fixture.paste("late").await;
    fixture.work().await;
    assert_eq!(fixture.bytes(&again).await, b"late");
}
