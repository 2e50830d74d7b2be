//! How much runs at once, and for how long.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use leasehold::events::Event;
use leasehold::worker::StopReason;
use leasehold::{
    Ctx, Draft, Enqueue, FinishError, Finished, Job, JobError, JobId, JobResult, State,
};
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};
use tokio::sync::Barrier;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::fixture::{Running, completed, count, jobs, run, soon, until};
use crate::support::{Note, engine, wait_for};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "brief", run_limit = "100ms", backoff = "1ms..1ms")]
struct Brief {}

/// Waits until an attempt of a job ends like this. How the others end depends on the machine: a limit
/// may pass once more, and a report that takes too long is left to the lease.
async fn ends(worker: &mut Running, id: JobId, wanted: Finished) {
    wait_for(&mut worker.events, |event| match event {
        Event::Finished { job, finished: outcome, .. } => {
            (*job == id && *outcome == wanted).then_some(())
        }
        _ => None,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a17_handler_that_waits_for_ever_fails_at_its_run_limit_and_frees_its_slot() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let worker = engine
        .worker()
        .queue("default", 1)
        .handle(async |_: Brief| std::future::pending::<()>().await)
        .handle(async |_: Note| {});
    let mut worker = run(worker);
    let id = Brief {}.enqueue(&engine).await.expect("enqueued").id();
    worker.started(id).await;
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    ends(&mut worker, id, Finished::Retried).await;
    let failed = "select count(*) from leasehold.job where name = 'brief' and attempts >= 1 \
                and last_error = 'the handler ran longer than 0.1 s'";
    until("the failure is recorded", async || count(&client, failed).await == 1).await;
    // The one slot is free again: the other job runs.
    until("the other job", async || completed(&client).await == 1).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a17_handler_is_asked_to_stop_at_its_run_limit_and_its_error_is_recorded() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let handler = async |_: Brief, ctx: Ctx| -> JobResult {
        let reason = ctx.stopped().await;
        assert_eq!(reason, StopReason::RunLimit);
        Err(JobError::permanent("got as far as page 3"))
    };
    let mut worker = run(engine.worker().queue("default", 1).handle(handler));
    let id = Brief {}.enqueue(&engine).await.expect("enqueued").id();
    ends(&mut worker, id, Finished::Buried).await;
    let kept = "select count(*) from leasehold_internal.dead_job where last_error = 'got as far as page 3'";
    assert_eq!(count(&client, kept).await, 1);
    worker.stop().await;
}

/// Blocks its thread, so that no cancellation reaches it, then completes the job after all.
async fn stuck(_: Brief, ctx: Ctx, State((gate, late)): State<(Gate, Late)>) {
    if ctx.attempt() > 1 {
        return;
    }
    let _ = gate.lock().expect("no panic").recv();
    // In a task that the worker cannot abort: the strongest case of a late result.
    tokio::spawn(async move {
        let mut client = ctx.engine().pool().get().await.expect("a connection");
        let transaction = client.transaction().await.expect("a transaction");
        let _ = late.send(ctx.complete_in(&transaction).await);
    });
}

type Gate = Arc<Mutex<mpsc::Receiver<()>>>;
type Late = UnboundedSender<Result<(), FinishError>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn g7_handler_that_blocks_its_thread_fails_at_its_run_limit_and_its_late_result_is_rejected()
{
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let (let_go, gate) = mpsc::channel::<()>();
    let (late, mut late_results) = unbounded_channel();
    let state = (Arc::new(Mutex::new(gate)), late);
    let mut worker = run(engine.worker_with(state).queue("default", 2).handle(stuck));
    let id = Brief {}.enqueue(&engine).await.expect("enqueued").id();
    // By another attempt: the first one is still stuck.
    ends(&mut worker, id, Finished::Completed).await;
    drop(let_go);
    let result = soon(late_results.recv()).await.expect("a result");
    assert!(matches!(result, Err(FinishError::LeaseLost { .. })), "{result:?}");
    worker.stop().await;
    assert_eq!((completed(&client).await, jobs(&client).await), (1, 0));
}

struct Busy {
    now: AtomicUsize,
    most: AtomicUsize,
    /// Opens when as many jobs wait as there are slots.
    full: Barrier,
}

impl Busy {
    fn new(slots: usize) -> Self {
        Self { now: AtomicUsize::new(0), most: AtomicUsize::new(0), full: Barrier::new(slots) }
    }

    async fn work(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.full.wait().await;
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_queue_runs_as_many_jobs_as_it_has_slots_and_no_more() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let state = Arc::new((Busy::new(5), Busy::new(2)));
    let handler = async |_: Note, State(busy): State<Arc<(Busy, Busy)>>, ctx: Ctx| {
        let queue = if ctx.queue() == "default" { &busy.0 } else { &busy.1 };
        queue.work().await;
    };
    for n in 0..100 {
        let queue = if n % 2 == 0 { "default" } else { "slow" };
        let draft = Draft::of(&Note { n }).expect("a draft").queue(queue);
        draft.enqueue(&engine).await.expect("enqueued");
    }
    let worker = engine.worker_with(Arc::clone(&state)).queue("default", 5).queue("slow", 2);
    let mut worker = run(worker.handle(handler));
    worker.finished(100).await;
    worker.stop().await;
    assert_eq!(state.0.most.load(Ordering::SeqCst), 5);
    assert_eq!(state.1.most.load(Ordering::SeqCst), 2);
}
