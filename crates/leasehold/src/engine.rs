//! The handle on one database: connects, enqueues and builds workers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::admin::{Dead, Jobs, Queues, Schedules, Workers};
use crate::database::{
    Database,
    pool::{self, Opener},
};
use crate::error::{AdminError, ConnectError, EnqueueError, SchemaError};
use crate::job::Job;
use crate::measure::process::Process;
use crate::migrate;
use crate::queue::enqueue::{Draft, ENQUEUE, EnqueueOn, Enqueued, Values, read_answer};
use crate::worker::WorkerBuilder;

/// Leasehold on one database. Cheap to clone.
#[derive(Clone)]
pub struct Leasehold(Arc<Inner>);

struct Inner {
    database: Database,
    pool: deadpool_postgres::Pool,
    system_id: String,
    process: Arc<Process>,
}

/// For how long an enqueue with a key is retried without a reply.
const REPEAT_FOR: Duration = Duration::from_secs(10);
/// How long an enqueue, or a call of an admin handle, may take. The server's own limit does not cover a commit that waits for a
/// standby.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// The same for `enqueue_many`.
const MANY_LIMIT: Duration = Duration::from_secs(120);

impl Leasehold {
    /// Connects, checks the server and the schema, and keeps a small pool for enqueues and for
    /// transactions of handlers.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::from_database(Database::new(url)?).await
    }

    /// Like [`Leasehold::connect`], but applies migrations first: for development, tests and small
    /// deployments.
    pub async fn connect_and_migrate(url: &str) -> Result<Self, ConnectError> {
        let database = Database::new(url)?;
        // Probe first: a session that a pooler shares must not get the engine's settings.
        database.probe_pooler().await?;
        let mut session = database.connect().await?;
        migrate::up(&mut session).await?;
        drop(session);
        Self::from_database(database).await
    }

    pub async fn from_database(database: Database) -> Result<Self, ConnectError> {
        database.probe_pooler().await?;
        let session = database.connect().await?;
        Database::check_server(&session).await?;
        if let Some(problem) = migrate::status(&session).await?.problem() {
            return Err(problem.into());
        }
        let rows = session
            .query_typed("select system_identifier::text from pg_control_system()", &[])
            .await
            .map_err(ConnectError::Unreachable)?;
        let row = rows.first().ok_or(ConnectError::Schema(SchemaError::Missing))?;
        let pool = pool(&database, POOL_SIZE, crate::database::CONNECT_LIMIT)?;
        Ok(Self(Arc::new(Inner { pool, system_id: row.get(0), database, process: Arc::default() })))
    }

    pub fn database(&self) -> &Database {
        &self.0.database
    }

    /// Connections for enqueues and handlers. The worker's own work does not use it, so handlers
    /// that hold every connection cannot keep leases from being renewed.
    pub fn pool(&self) -> &deadpool_postgres::Pool {
        &self.0.pool
    }

    /// What this process counts.
    pub(crate) fn process(&self) -> &Arc<Process> {
        &self.0.process
    }

    pub(crate) fn system_id(&self) -> &str {
        &self.0.system_id
    }

    /// Jobs: list, cancel, redrive, promote, delete and update them.
    pub fn jobs(&self) -> Jobs<'_> {
        Jobs::of(self)
    }

    /// Dead jobs: list, group and redrive them.
    pub fn dead(&self) -> Dead<'_> {
        Dead::of(self)
    }

    /// Queues: list them, pause, resume and set them.
    pub fn queues(&self) -> Queues<'_> {
        Queues::of(self)
    }

    /// Schedules: list, add, remove, pause, resume and run them.
    pub fn schedules(&self) -> Schedules<'_> {
        Schedules::of(self)
    }

    /// Worker processes.
    pub fn workers(&self) -> Workers<'_> {
        Workers::of(self)
    }

    /// Runs one statement of an admin handle on a connection of the pool.
    pub(crate) async fn query(
        &self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, AdminError> {
        let client = self.0.pool.get().await;
        let client = client.map_err(|error| AdminError::NoConnection(error.to_string()))?;
        let asked = tokio::time::timeout(ANSWER_LIMIT, client.query_typed(sql, params)).await;
        let error = match asked {
            Ok(Ok(rows)) => return Ok(rows),
            Ok(Err(error)) => AdminError::from(error),
            Err(_) => AdminError::TimedOut(ANSWER_LIMIT),
        };
        if error.ends_session() {
            drop(deadpool_postgres::Object::take(client));
            self.0.pool.retain(|_, _| false);
        }
        Err(error)
    }

    /// Builds a worker; give it queues and handlers, then run it.
    pub fn worker(&self) -> WorkerBuilder<()> {
        WorkerBuilder::new(self.clone(), ())
    }

    /// Builds a worker whose handlers share `state`.
    pub fn worker_with<S: Send + Sync + 'static>(&self, state: S) -> WorkerBuilder<S> {
        WorkerBuilder::new(self.clone(), state)
    }

    /// Enqueues many jobs of one name in one transaction: all or none. Uses COPY; behind a transaction
    /// pooler, which forgets the prepared statement that COPY needs, it uses arrays.
    pub async fn enqueue_many<J: Job>(
        &self,
        jobs: impl IntoIterator<Item = J>,
    ) -> Result<u64, EnqueueError> {
        let mut client = self.client().await?;
        let storing = async {
            if self.0.database.is_pooled() {
                let transaction = client.transaction().await?;
                let stored =
                    crate::queue::bulk::enqueue_many_by_array(&transaction, jobs, "").await?;
                transaction.commit().await?;
                return Ok(stored);
            }
            let client: &tokio_postgres::Client = &client;
            crate::queue::bulk::enqueue_many(client, jobs, "").await
        };
        let stored = match tokio::time::timeout(MANY_LIMIT, storing).await {
            Ok(stored) => stored,
            Err(_) => Err(EnqueueError::TimedOut(MANY_LIMIT)),
        };
        match stored {
            Ok(stored) => {
                self.0.process.enqueued(J::QUEUE, J::NAME, stored);
                Ok(stored)
            }
            Err(error) => Err(self.without(client, error)),
        }
    }

    /// Keeps a connection out of the pool if its error shows that the session is useless, and closes
    /// the idle ones: they were opened to the same server.
    fn without(&self, client: deadpool_postgres::Client, error: EnqueueError) -> EnqueueError {
        if let EnqueueError::Database(source) = &error
            && crate::error::is_lost_statement(source)
        {
            self.0.database.lost_a_statement();
        }
        if error.ends_session() {
            drop(deadpool_postgres::Object::take(client));
            self.0.pool.retain(|_, _| false);
        }
        error
    }

    pub(crate) async fn client(&self) -> Result<deadpool_postgres::Client, EnqueueError> {
        self.0.pool.get().await.map_err(|error| EnqueueError::NoConnection(error.to_string()))
    }
}

impl EnqueueOn for &Leasehold {
    /// Enqueues in its own transaction. With a key, an enqueue whose reply was lost is retried for up
    /// to ten seconds: the key makes sure that there is only one job.
    async fn enqueue_one(self, draft: Draft) -> Result<Enqueued, EnqueueError> {
        let give_up = Instant::now() + REPEAT_FOR;
        let mut backoff = crate::link::ReconnectBackoff::default();
        loop {
            match self.store(&draft).await {
                Err(error)
                    if draft.key.is_some() && error.may_repeat() && Instant::now() < give_up =>
                {
                    tokio::time::sleep(backoff.next_wait()).await;
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
    async fn store(&self, draft: &Draft) -> Result<Enqueued, EnqueueError> {
        let client = self.client().await?;
        let stored = match tokio::time::timeout(ANSWER_LIMIT, self.store_on(&client, draft)).await {
            Ok(stored) => stored,
            Err(_) => Err(EnqueueError::TimedOut(ANSWER_LIMIT)),
        };
        stored.map_err(|error| self.without(client, error))
    }

    async fn store_on(
        &self,
        client: &deadpool_postgres::Client,
        draft: &Draft,
    ) -> Result<Enqueued, EnqueueError> {
        let values = Values::of(draft);
        let params = values.params();
        if self.0.database.is_pooled() {
            return read_answer(&client.query_typed(ENQUEUE, &params).await?);
        }
        // A direct session keeps prepared statements.
        let types: Vec<Type> = params.iter().map(|(_, ty)| ty.clone()).collect();
        let statement = client.prepare_typed_cached(ENQUEUE, &types).await?;
        read_answer(&client.query(&statement, &params.map(|(value, _)| value)).await?)
    }
}

/// The pool checks whether a connection still accepts writes if it was idle for `ASK_AFTER`, and on
/// every `ASK_EACH`th use.
const ASK_AFTER: Duration = Duration::from_secs(1);
const ASK_EACH: usize = 16;

/// Connections that the handle keeps for enqueues and for handlers that need one.
const POOL_SIZE: usize = 16;

/// Returns a pool of at most `size` connections. `wait`: how long a caller waits for one.
pub(crate) fn pool(
    database: &Database,
    size: usize,
    wait: Duration,
) -> Result<deadpool_postgres::Pool, ConnectError> {
    use deadpool_postgres::{
        Hook, HookError, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime,
    };
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager =
        Manager::from_connect(database.config().clone(), Opener(database.clone()), recycling);
    let database = database.clone();
    let limit = crate::database::CONNECT_LIMIT;
    Pool::builder(manager)
        .max_size(size)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(wait))
        .create_timeout(Some(limit))
        .recycle_timeout(Some(limit))
        .post_create(Hook::async_fn(move |client, _| {
            let database = database.clone();
            Box::pin(async move {
                database
                    .prepare(client)
                    .await
                    .map_err(|error| HookError::message(error.to_string()))
            })
        }))
        .pre_recycle(Hook::async_fn(move |client, metrics| {
            let lent_often = metrics.recycle_count % ASK_EACH == 0;
            let ask = lent_often || metrics.last_used() >= ASK_AFTER;
            Box::pin(async move {
                if !ask || pool::accepts_writes(client).await {
                    return Ok(());
                }
                Err(HookError::message("the session accepts no writes, or is gone"))
            })
        }))
        .build()
        .map_err(|error| ConnectError::BadUrl(error.to_string()))
}
