//! The handle that everything else hangs on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use crate::database::Database;
use crate::error::{ConnectError, EnqueueError, SchemaError};
use crate::job::Job;
use crate::measure::process::Process;
use crate::migrate;
use crate::queue::enqueue::{
    Draft, ENQUEUE, ENQUEUE_AND_WAKE, EnqueueOn, Enqueued, Values, read_answer,
};
use crate::wake::{self, Wake, Wakes};
use crate::worker::WorkerBuilder;

/// Leasehold on one database. Cheap to clone.
#[derive(Clone)]
pub struct Leasehold(Arc<Inner>);

struct Inner {
    database: Database,
    pool: deadpool_postgres::Pool,
    timeline: i32,
    system_id: String,
    wakes: Wakes,
    process: Arc<Process>,
}

const WAKE: &str = "select leasehold.wake($1)";

/// How long an enqueue with a key is repeated when nobody answers.
const REPEAT_FOR: Duration = Duration::from_secs(10);

impl Leasehold {
    /// Connects, checks the server and the schema, and keeps a small pool for enqueues and for
    /// transactions of handlers.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::on(Database::new(url)?).await
    }

    /// The same with migrations applied first: for development, tests and small deployments.
    pub async fn connect_and_migrate(url: &str) -> Result<Self, ConnectError> {
        let database = Database::new(url)?;
        let mut session = database.connect().await?;
        migrate::up(&mut session).await?;
        drop(session);
        Self::on(database).await
    }

    pub async fn on(mut database: Database) -> Result<Self, ConnectError> {
        database.probe_pooler().await?;
        let session = database.connect().await?;
        Database::check_server(&session).await?;
        if let Some(problem) = migrate::status(&session).await?.problem() {
            return Err(problem.into());
        }
        let rows = session
            .query_typed(
                "select c.timeline_id, s.system_identifier::text \
                 from pg_control_checkpoint() c, pg_control_system() s",
                &[],
            )
            .await
            .map_err(ConnectError::Unreachable)?;
        let row = rows.first().ok_or(ConnectError::Schema(SchemaError::Missing))?;
        let pool = pool(&database)?;
        Ok(Self(Arc::new(Inner {
            pool,
            timeline: row.get(0),
            system_id: row.get(1),
            database,
            wakes: Wakes::default(),
            process: Arc::default(),
        })))
    }

    pub fn database(&self) -> &Database {
        &self.0.database
    }

    /// Connections for enqueues and handlers. The worker's own work does not use it, so handlers
    /// that hold every connection cannot keep leases from being renewed.
    pub fn pool(&self) -> &deadpool_postgres::Pool {
        &self.0.pool
    }

    /// What this process counted.
    pub(crate) fn process(&self) -> &Arc<Process> {
        &self.0.process
    }

    /// The timeline of the server as of the connect; it grows with every failover.
    pub(crate) fn timeline(&self) -> i32 {
        self.0.timeline
    }

    pub(crate) fn system_id(&self) -> &str {
        &self.0.system_id
    }

    /// Begins a worker; give it queues and handlers, then run it.
    pub fn worker(&self) -> WorkerBuilder<()> {
        WorkerBuilder::new(self.clone(), ())
    }

    /// A worker whose handlers share `state`.
    pub fn worker_with<S: Send + Sync + 'static>(&self, state: S) -> WorkerBuilder<S> {
        WorkerBuilder::new(self.clone(), state)
    }

    /// Enqueues many jobs of one kind in one transaction: all or none. By COPY, or
    /// through a transaction pooler, which forgets the statement that COPY needs, by arrays.
    pub async fn enqueue_many<J: Job>(
        &self,
        jobs: impl IntoIterator<Item = J>,
    ) -> Result<u64, EnqueueError> {
        let mut client = self.client().await?;
        let stored = if self.0.database.is_pooled() {
            let transaction = client.transaction().await?;
            let stored = crate::queue::bulk::enqueue_many_by_array(&transaction, jobs, "").await?;
            transaction.commit().await?;
            stored
        } else {
            let client: &tokio_postgres::Client = &client;
            crate::queue::bulk::enqueue_many(client, jobs, "").await?
        };
        self.0.process.enqueued(J::QUEUE, J::NAME, stored);
        self.wake_through(&client, J::QUEUE).await;
        Ok(stored)
    }

    /// Tells idle workers that a queue has work. Call it after the commit of a transaction that
    /// enqueued, when half a second until the next poll is too long.
    pub async fn wake(&self, queue: &str) -> Result<(), EnqueueError> {
        let client = self.client().await?;
        client.query_typed(WAKE, &[(&queue, Type::TEXT)]).await?;
        Ok(())
    }

    pub(crate) async fn client(&self) -> Result<deadpool_postgres::Client, EnqueueError> {
        self.0.pool.get().await.map_err(|error| EnqueueError::NoConnection(error.to_string()))
    }

    /// Wakes the workers of a queue, through a connection at hand or a moment later.
    async fn wake_through(&self, client: &tokio_postgres::Client, queue: &str) {
        match self.0.wakes.ask(queue, Instant::now()) {
            // A hint: when it fails, the workers' poll finds the job.
            Wake::Now => {
                let sent = client.query_typed(WAKE, &[(&queue, Type::TEXT)]).await;
                drop(sent);
            }
            Wake::Later => self.wake_later(queue),
            Wake::Shared => {}
        }
    }
}

impl EnqueueOn for &Leasehold {
    /// Enqueues in a transaction of its own and wakes an idle worker. With a key, an enqueue whose
    /// reply was lost is repeated for up to ten seconds: the key makes sure that there is one job.
    async fn enqueue_one(self, draft: Draft) -> Result<Enqueued, EnqueueError> {
        let give_up = Instant::now() + REPEAT_FOR;
        let mut patience = crate::link::Patience::default();
        loop {
            let wake = self.0.wakes.ask(&draft.queue, Instant::now());
            let sql = if wake == Wake::Now { ENQUEUE_AND_WAKE } else { ENQUEUE };
            let stored = self.store(sql, &draft).await;
            if wake == Wake::Later {
                self.wake_later(&draft.queue);
            }
            match stored {
                Err(error)
                    if draft.key.is_some() && error.may_repeat() && Instant::now() < give_up =>
                {
                    tokio::time::sleep(patience.next_wait()).await;
                }
                answer => {
                    if answer.as_ref().is_ok_and(|stored| stored.is_new()) {
                        self.0.process.enqueued(&draft.queue, &draft.name, 1);
                    }
                    return answer;
                }
            }
        }
    }
}

impl Leasehold {
    async fn store(&self, sql: &str, draft: &Draft) -> Result<Enqueued, EnqueueError> {
        let client = self.client().await?;
        let values = Values::of(draft);
        let params = values.params();
        if self.0.database.is_pooled() {
            return read_answer(&client.query_typed(sql, &params).await?);
        }
        // A session of our own remembers the statement.
        let types: Vec<Type> = params.iter().map(|(_, ty)| ty.clone()).collect();
        let statement = client.prepare_typed_cached(sql, &types).await?;
        read_answer(&client.query(&statement, &params.map(|(value, _)| value)).await?)
    }

    /// Wakes the workers of a queue after a moment, for all who enqueued meanwhile.
    fn wake_later(&self, queue: &str) {
        let (engine, queue) = (self.clone(), queue.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(wake::EVERY).await;
            engine.0.wakes.sending(&queue, Instant::now());
            // A hint: when it fails, the workers' poll finds the job.
            let sent = engine.wake(&queue).await;
            drop(sent);
        });
    }
}

fn pool(database: &Database) -> Result<deadpool_postgres::Pool, ConnectError> {
    use deadpool_postgres::{
        Hook, HookError, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime,
    };
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = match database.tls() {
        Some(tls) => Manager::from_config(database.config().clone(), tls.clone(), recycling),
        None => Manager::from_config(database.config().clone(), tokio_postgres::NoTls, recycling),
    };
    let pooled = database.is_pooled();
    let limit = Some(crate::database::CONNECT_LIMIT);
    Pool::builder(manager)
        .max_size(16)
        .runtime(Runtime::Tokio1)
        .wait_timeout(limit)
        .create_timeout(limit)
        .recycle_timeout(limit)
        .post_create(Hook::async_fn(move |client, _| {
            Box::pin(async move {
                if !pooled {
                    client
                        .batch_execute(include_str!("../queries/session.sql"))
                        .await
                        .map_err(HookError::Backend)?;
                }
                Ok(())
            })
        }))
        .build()
        .map_err(|error| ConnectError::BadUrl(error.to_string()))
}
