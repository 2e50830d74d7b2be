//! Wake-ups: a job starts an idle worker at once, wherever it comes from; busy workers are left alone.

mod due;
mod quiet;
mod sessions;
mod ways;

use std::time::Duration;

use leasehold::database::{Database, Session};
use leasehold::events::Event;
use leasehold::worker::WorkerBuilder;
use leasehold::{Finished, Leasehold};
use leasehold_testing::TestDatabase;
use tokio::sync::mpsc;
use tokio_postgres::Client;

use crate::fixture::{Running, run_as_is, until};
use crate::support::Note;

/// The longest poll interval of a worker. Its first poll comes after 48 s at the earliest.
const POLL: Duration = Duration::from_secs(60);
/// Long before the first poll: what happens within it was not found by polling.
const BEFORE_THE_POLL: Duration = Duration::from_secs(30);

/// Counts the announcements of idle workers that producers see.
const IDLE: &str = "select count(*) from pg_locks where locktype = 'advisory' and classid = 7306 \
                    and mode = 'ShareLock' and granted \
                    and database = (select oid from pg_database where datname = current_database())";

struct Place {
    database: TestDatabase,
    engine: Leasehold,
    client: Client,
}

impl Place {
    async fn new() -> Self {
        Self::on(TestDatabase::new().await).await
    }

    async fn on(database: TestDatabase) -> Self {
        let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
        let client = database.connect_directly().await;
        Self { database, engine, client }
    }

    /// Starts a worker of one queue that does not poll while a test runs, and waits until it is idle.
    async fn idle_worker(&self) -> Running {
        let worker = self.engine.worker().queue("default", 4).handle(async |_: Note| {});
        self.idle(worker).await
    }

    async fn idle<S: Send + Sync + 'static>(&self, worker: WorkerBuilder<S>) -> Running {
        let running = run_as_is(worker.poll_every(POLL).without_housekeeping());
        self.is_idle(1).await;
        running
    }

    async fn is_idle(&self, queues: i64) {
        until("the expected queues are idle", async || {
            crate::fixture::number(&self.client, IDLE).await == queues
        })
        .await;
    }

    /// Waits until the worker has nothing more to do before its next poll: its last query asks when
    /// the next job falls due.
    async fn asleep(&self) {
        let asked = "select count(*) from pg_stat_activity where datname = current_database() \
                     and pid <> pg_backend_pid() and state = 'idle' and query ~ 'next_due'";
        until("it sleeps", async || crate::fixture::number(&self.client, asked).await > 0).await;
    }

    async fn sql(&self, text: &str) {
        crate::fixture::sql(&self.client, text).await;
    }

    async fn listener(&self) -> Listener {
        Listener::start(&self.database).await
    }
}

/// Returns how the next attempt ended, if it did before the worker could poll.
async fn next_end(worker: &mut Running) -> Finished {
    let next = async {
        loop {
            if let Event::Finished { finished: outcome, .. } =
                worker.events.recv().await.expect("an event")
            {
                return outcome;
            }
        }
    };
    tokio::time::timeout(BEFORE_THE_POLL, next).await.expect("woken, not found by a poll")
}

/// A session that listens, and may announce itself as an idle worker.
struct Listener {
    session: Session,
    heard: mpsc::UnboundedReceiver<String>,
}

impl Listener {
    async fn start(database: &TestDatabase) -> Self {
        let (tell, heard) = mpsc::unbounded_channel();
        let database = Database::new(&database.direct_url()).expect("a database");
        let listening = database.listen(move |queue| drop(tell.send(queue.to_owned())));
        let (session, _) = listening.await.expect("a session that listens");
        Self { session, heard }
    }

    async fn begin_idle(&self, queue: &str) {
        let sql = format!("select leasehold_internal.begin_idle('{queue}')");
        let row = self.session.query_one(&sql, &[]).await.expect("an answer");
        assert!(row.get::<_, bool>(0), "no other session holds the lock of {queue}");
    }

    /// Returns the wake-ups sent until now, in order.
    async fn heard(&mut self) -> Vec<String> {
        crate::fixture::sql(&self.session, "select pg_notify('leasehold_wake', '(the last)')")
            .await;
        let mut heard = Vec::new();
        let hearing = async {
            loop {
                match self.heard.recv().await.expect("the session lives") {
                    last if last == "(the last)" => return,
                    queue => heard.push(queue),
                }
            }
        };
        crate::fixture::soon(hearing).await;
        heard
    }
}
