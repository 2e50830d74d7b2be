//! Services beside the jobs, and handlers of names that are known only at run time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::error::CallError;
use leasehold::worker::{ManyJobs, ServiceContext, UntypedJob, WorkerBuilder, WorkerService};
use leasehold::{Ctx, Draft, Finished, JobResult, Outcome, WorkerError};
use leasehold_testing::TestDatabase;
use serde_json::json;
use tokio::sync::Notify;

use crate::fixture::{count, run, soon, until};
use crate::support::engine;

/// What a service did, as the test sees it.
#[derive(Default)]
struct Seen {
    prepared: AtomicUsize,
    started: AtomicUsize,
    stopped: AtomicUsize,
    counted: AtomicU64,
    began: Notify,
}

/// Counts jobs, and behaves as a test says.
#[derive(Default)]
struct Counter {
    name: &'static str,
    seen: Arc<Seen>,
    refuses: bool,
    /// How often `run` panics before it runs.
    panics: AtomicUsize,
    /// How many times `is_idle` returns false.
    busy: AtomicUsize,
}

impl WorkerService for Counter {
    fn name(&self) -> String {
        format!("counter {:?}", self.name)
    }

    fn register<S: Send + Sync + 'static>(
        self: &Arc<Self>,
        worker: WorkerBuilder<S>,
    ) -> WorkerBuilder<S> {
        let seen = Arc::clone(&self.seen);
        let job = UntypedJob::new(format!("count.{}", self.name)).queue("counts").slots(3);
        worker.handle_untyped(job, move |_| {
            seen.counted.fetch_add(1, Ordering::SeqCst);
            async {}
        })
    }

    async fn prepare(&self, _: &ServiceContext) -> Result<(), WorkerError> {
        self.seen.prepared.fetch_add(1, Ordering::SeqCst);
        match self.refuses {
            true => Err(WorkerError::Config("the counter has no abacus; add one".to_owned())),
            false => Ok(()),
        }
    }

    async fn run(self: Arc<Self>, context: ServiceContext) {
        self.seen.started.fetch_add(1, Ordering::SeqCst);
        self.seen.began.notify_waiters();
        let left = self.panics.load(Ordering::SeqCst);
        if left > 0 {
            self.panics.store(left - 1, Ordering::SeqCst);
            panic!("on purpose");
        }
        context.stopped().await;
        self.seen.stopped.fetch_add(1, Ordering::SeqCst);
    }

    async fn is_idle(&self, _: &ServiceContext) -> Result<bool, CallError> {
        let left = self.busy.load(Ordering::SeqCst);
        self.busy.store(left.saturating_sub(1), Ordering::SeqCst);
        Ok(left == 0)
    }
}

fn counter(name: &'static str) -> (Counter, Arc<Seen>) {
    let seen = Arc::<Seen>::default();
    (Counter { name, seen: Arc::clone(&seen), ..Default::default() }, seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn service_runs_beside_its_jobs_until_the_worker_stops() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let (service, seen) = counter("a");
    // The worker names another queue; the service still works its own.
    let mut worker = run(engine.worker().queue("default", 2).service(service));
    let draft = Draft::untyped("count.a", &json!({})).expect("a draft").queue("counts");
    draft.enqueue(&engine).await.expect("enqueued");
    assert_eq!(worker.next_end().await, Finished::Completed);
    until("it runs", async || seen.started.load(Ordering::SeqCst) == 1).await;
    assert_eq!(seen.stopped.load(Ordering::SeqCst), 0);
    worker.stop().await;
    let load = |number: &AtomicUsize| number.load(Ordering::SeqCst);
    assert_eq!((load(&seen.prepared), load(&seen.started), load(&seen.stopped)), (1, 1, 1));
    assert_eq!(seen.counted.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_service_that_refuses_stops_the_start() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let (service, seen) = counter("a");
    let service = Counter { refuses: true, ..service };
    let (other, others) = counter("b");
    let worker = engine.worker().service(other).service(service);
    let error = soon(worker.run_until(std::future::pending::<()>())).await.expect_err("refused");
    assert!(error.to_string().contains("abacus"), "{error}");
    assert_eq!(seen.started.load(Ordering::SeqCst) + others.started.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_two_services_of_one_name_are_refused() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let worker = engine.worker().service(counter("a").0).service(counter("a").0);
    let error = worker.run_until(std::future::ready(())).await.expect_err("refused");
    assert!(error.to_string().contains("counter \"a\" is named twice"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn g6_service_that_panics_is_started_again() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let (service, seen) = counter("a");
    let service = Counter { panics: AtomicUsize::new(1), ..service };
    let worker = run(engine.worker().service(service));
    until("it runs again", async || seen.started.load(Ordering::SeqCst) == 2).await;
    worker.stop().await;
    assert_eq!(seen.stopped.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_is_idle_only_when_its_services_are() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let (service, seen) = counter("a");
    let service = Arc::new(Counter { busy: AtomicUsize::new(3), ..service });
    struct Shared(Arc<Counter>);
    impl WorkerService for Shared {
        fn name(&self) -> String {
            WorkerService::name(&*self.0)
        }
        async fn run(self: Arc<Self>, context: ServiceContext) {
            Arc::clone(&self.0).run(context).await;
        }
        async fn is_idle(&self, context: &ServiceContext) -> Result<bool, CallError> {
            self.0.is_idle(context).await
        }
    }
    soon(engine.worker().service(Shared(Arc::clone(&service))).run_until_idle())
        .await
        .expect("it ends");
    assert_eq!(service.busy.load(Ordering::SeqCst), 0, "it was asked until it was idle");
    assert_eq!(seen.started.load(Ordering::SeqCst), seen.stopped.load(Ordering::SeqCst));
}

#[tokio::test(flavor = "multi_thread")]
async fn untyped_handler_of_many_jobs_gets_those_of_one_group_together() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    for n in 0..12 {
        let draft = Draft::untyped("mixed", &json!({ "n": n })).expect("a draft");
        draft.priority(n % 3).enqueue(&engine).await.expect("enqueued");
    }
    let (mixed, largest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (mixing, growing) = (Arc::clone(&mixed), Arc::clone(&largest));
    let handler = move |jobs: Vec<Ctx>| {
        let urgent = jobs.iter().filter(|job| job.priority() == 0).count();
        if urgent != 0 && urgent != jobs.len() {
            mixing.fetch_add(1, Ordering::SeqCst);
        }
        growing.fetch_max(jobs.len(), Ordering::SeqCst);
        async move { jobs.iter().map(|_| Outcome::Complete).collect::<Vec<Outcome>>() }
    };
    let jobs = ManyJobs::up_to(4).group_by(|job| i64::from(job.priority() == 0));
    let mut worker =
        run(engine.worker().queue("default", 12).handle_many_untyped("mixed", jobs, handler));
    let ends = worker.finished(12).await;
    assert!(ends.iter().all(|end| end.1 == Finished::Completed), "{ends:?}");
    worker.stop().await;
    assert_eq!(mixed.load(Ordering::SeqCst), 0, "no call has jobs of both groups");
    assert!(largest.load(Ordering::SeqCst) <= 4);
    assert_eq!(count(&client, "select count(*) from leasehold.job").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn group_that_panics_does_not_stop_the_claims() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    for n in 0..3 {
        let draft = Draft::untyped("mixed", &json!({ "n": n })).expect("a draft");
        draft.enqueue(&engine).await.expect("enqueued");
    }
    let jobs = ManyJobs::up_to(2).group_by(|_| panic!("on purpose"));
    let handler = async |jobs: Vec<Ctx>| -> Vec<JobResult> {
        jobs.iter().map(|_| Ok(Outcome::Complete)).collect()
    };
    let mut worker = run(engine.worker().handle_many_untyped("mixed", jobs, handler));
    assert!(worker.finished(3).await.iter().all(|end| end.1 == Finished::Completed));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn untyped_job_has_its_own_run_limit() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    Draft::untyped("slow", &json!({})).expect("a draft").enqueue(&engine).await.expect("enqueued");
    let job = UntypedJob::new("slow").run_limit(Duration::from_millis(200));
    let handler = async |ctx: Ctx| -> JobResult {
        ctx.stopped().await;
        Ok(Outcome::Cancel(format!("{:?}", ctx.stop_reason())))
    };
    let mut worker = run(engine.worker().handle_untyped(job, handler));
    assert_eq!(worker.next_end().await, Finished::Cancelled);
    worker.stop().await;
}
