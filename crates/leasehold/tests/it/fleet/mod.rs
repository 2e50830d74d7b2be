//! One worker over several databases.

mod faults;
mod fence;
mod share;
mod stopping;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::worker::FleetWorker;
use leasehold::{Ctx, Fleet, Leasehold, State, WorkerError};
use leasehold_testing::TestDatabase;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::fixture::{completed, ended, until};
use crate::support::Note;

/// A worker over a fleet that runs beside the test.
struct RunningFleet {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), WorkerError>>,
}

/// Starts a worker that polls often, so that tests wait little.
fn run<S: Send + Sync + 'static>(worker: FleetWorker<S>) -> RunningFleet {
    let (stop, stopped) = oneshot::channel();
    let worker = worker.poll_every(Duration::from_millis(20));
    let task = tokio::spawn(worker.run_until(async { drop(stopped.await) }));
    RunningFleet { stop, task }
}

impl RunningFleet {
    async fn stop(self) {
        drop(self.stop);
        ended(self.task).await.expect("a clean stop");
    }

    fn ask_to_stop(self) -> JoinHandle<Result<(), WorkerError>> {
        drop(self.stop);
        self.task
    }
}

/// Two databases of one server, named `a` and `b`.
struct Two {
    fleet: Fleet,
    a: Side,
    b: Side,
}

/// One database of a fleet.
struct Side {
    engine: Leasehold,
    client: Client,
    database: TestDatabase,
}

impl Two {
    async fn new() -> Self {
        let (a, b) = (TestDatabase::new().await, TestDatabase::new().await);
        let fleet = Leasehold::fleet([("a", a.url()), ("b", b.url())]).expect("a fleet");
        let (a, b) = (Side::of(&fleet, "a", a).await, Side::of(&fleet, "b", b).await);
        Self { fleet, a, b }
    }
}

impl Side {
    async fn of(fleet: &Fleet, name: &str, database: TestDatabase) -> Self {
        let client = database.connect_directly().await;
        let engine = fleet.get(name).expect("its handle").clone();
        Self { engine, client, database }
    }

    async fn enqueue(&self, jobs: i64) {
        let stored = self.engine.enqueue_many((0..jobs).map(|n| Note { n })).await;
        assert_eq!(stored.expect("enqueued"), jobs as u64);
    }

    async fn all_completed(&self, jobs: i64) {
        let what = format!("{jobs} jobs of {:?} are completed", self.engine.name());
        until(&what, async || completed(&self.client).await == jobs).await;
    }
}

/// Handlers of one database that wait for the test.
struct Gate {
    started: AtomicUsize,
    running: AtomicUsize,
    open: Semaphore,
}

impl Gate {
    fn closed() -> Self {
        Self { started: 0.into(), running: 0.into(), open: Semaphore::new(0) }
    }

    /// Lets this many handlers end.
    fn pass(&self, handlers: usize) {
        self.open.add_permits(handlers);
    }

    fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }

    fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }
}

/// The gate of each database, and the most handlers of both that ran at a time.
#[derive(Clone)]
struct Gates(Arc<(Gate, Gate, AtomicUsize)>);

impl Gates {
    fn closed() -> Self {
        Self(Arc::new((Gate::closed(), Gate::closed(), AtomicUsize::new(0))))
    }

    fn a(&self) -> &Gate {
        &self.0.0
    }

    fn b(&self) -> &Gate {
        &self.0.1
    }

    fn most(&self) -> usize {
        self.0.2.load(Ordering::SeqCst)
    }
}

/// Waits at the gate of the job's database.
async fn gated(_: Note, ctx: Ctx, State(gates): State<Gates>) {
    let gate = match ctx.database() {
        Some("a") => gates.a(),
        Some("b") => gates.b(),
        other => panic!("a job of {other:?}"),
    };
    gate.running.fetch_add(1, Ordering::SeqCst);
    gates.0.2.fetch_max(gates.a().running() + gates.b().running(), Ordering::SeqCst);
    gate.started.fetch_add(1, Ordering::SeqCst);
    gate.open.acquire().await.expect("an open gate").forget();
    gate.running.fetch_sub(1, Ordering::SeqCst);
}
