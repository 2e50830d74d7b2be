//! The handle on one database: connects, enqueues and builds workers.
//!
//! A handle of a [`Fleet`](crate::Fleet) is there before its database is: it connects when it is used first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::admin::{Alarms, Dead, Jobs, Measurements, Mirrors, Queues, Schedules, Sweeps, Workers};
use crate::builder::{LeaseholdBuilder, SchemaCheck};
use crate::database::{
    Database,
    pool::{self, Opener},
};
use crate::error::{AdminError, ConnectError, EnqueueError, SchemaError};
use crate::fleet::Fleet;
use crate::job::Job;
use crate::measure::process::Process;
use crate::migrate;
use crate::queue::enqueue::{Draft, ENQUEUE, EnqueueOn, Enqueued, Values, read_enqueued};
use crate::worker::WorkerBuilder;

/// Leasehold on one database. Cheap to clone.
#[derive(Clone)]
pub struct Leasehold(Arc<Inner>);

struct Inner {
    database: Database,
    pool: deadpool_postgres::Pool,
    /// Known once the handle has checked its database.
    identity: OnceCell<Identity>,
    process: Arc<Process>,
    settings: Settings,
    schema: SchemaCheck,
    /// The name of the database in its fleet.
    name: Option<Arc<str>>,
}

/// Which database a handle is on, whatever its address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    /// The system identifier: one per cluster, the same on its standbys.
    system: String,
    /// The oid of the database in its cluster.
    database: u32,
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.system, self.database)
    }
}

/// Settings of the handle itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) max_connections: usize,
    /// How long an enqueue, a claim or a finish may take. The server's own limit does not cover a commit that
    /// waits for a standby.
    pub(crate) call_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { max_connections: POOL_SIZE, call_timeout: Duration::from_secs(30) }
    }
}

const IDENTITY: &str = "select system_identifier::text, \
     (select oid from pg_database where datname = current_database()) from pg_control_system()";

/// For how long an enqueue with a key is retried without a reply.
const REPEAT_FOR: Duration = Duration::from_secs(10);
/// `enqueue_many` may take this many times as long as an enqueue.
const MANY: u32 = 4;
/// How long after an enqueue the handle looks for a worker of the queue: the program may start its own worker
/// next.
const WORKER_CHECK_AFTER: Duration = Duration::from_secs(10);

impl Leasehold {
    /// Returns a builder: pool, timeouts, TLS, pooler, and what connecting does about the schema.
    pub fn builder() -> LeaseholdBuilder {
        LeaseholdBuilder::default()
    }

    /// Connects, checks the server and the schema, and keeps a pool of at most 16 connections for enqueues
    /// and handlers. `Leasehold::builder().connect(url)`.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(url).await
    }

    /// Like [`Leasehold::connect`], but applies migrations first: for development, tests and small
    /// deployments. `Leasehold::builder().schema(SchemaCheck::Migrate).connect(url)`.
    pub async fn connect_and_migrate(url: &str) -> Result<Self, ConnectError> {
        Self::builder().schema(SchemaCheck::Migrate).connect(url).await
    }

    /// Like [`Leasehold::connect`], on a [`Database`].
    pub async fn from_database(database: Database) -> Result<Self, ConnectError> {
        Self::open(database, Settings::default(), SchemaCheck::Check).await
    }

    pub(crate) async fn open(
        database: Database,
        settings: Settings,
        schema: SchemaCheck,
    ) -> Result<Self, ConnectError> {
        let engine = Self::unconnected(database, settings, schema, None)?;
        engine.check().await?;
        Ok(engine)
    }

    /// Returns a handle that connects when it is used first.
    pub(crate) fn unconnected(
        database: Database,
        settings: Settings,
        schema: SchemaCheck,
        name: Option<Arc<str>>,
    ) -> Result<Self, ConnectError> {
        let pool = pool(&database, settings.max_connections, database.connect_timeout())?;
        let (identity, process) = (OnceCell::new(), Arc::default());
        let inner = Inner { database, pool, identity, process, settings, schema, name };
        Ok(Self(Arc::new(inner)))
    }

    /// Connects and checks the server and the schema, unless that was done before. A handle of a
    /// [`Fleet`](crate::Fleet) does it when it is used first; every other handle has done it already.
    pub async fn check(&self) -> Result<(), ConnectError> {
        self.identity().await.map(|_| ())
    }

    /// Returns which database this is.
    pub(crate) async fn identity(&self) -> Result<&Identity, ConnectError> {
        self.0.identity.get_or_try_init(|| self.identify()).await
    }

    async fn identify(&self) -> Result<Identity, ConnectError> {
        let (database, schema) = (&self.0.database, self.0.schema);
        // Probe first: a session that a pooler shares must not get the engine's settings.
        database.probe_pooler().await?;
        let mut session = database.connect().await?;
        if schema == SchemaCheck::Migrate {
            migrate::up(&mut session).await?;
        }
        Database::check_server(&session).await?;
        if schema != SchemaCheck::None
            && let Some(problem) = migrate::status(&session).await?.problem()
        {
            return Err(problem.into());
        }
        let asking = session.query_typed(IDENTITY, &[]);
        let rows = tokio::time::timeout(self.call_timeout(), asking)
            .await
            .map_err(|_| ConnectError::TimedOut(self.call_timeout()))?
            .map_err(ConnectError::Unreachable)?;
        let row = rows.first().ok_or(ConnectError::Schema(SchemaError::Missing))?;
        Ok(Identity { system: row.get(0), database: row.get(1) })
    }

    /// Returns the name of the database in its [`Fleet`](crate::Fleet); `None` outside of a fleet.
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Names several databases that one worker works side by side:
    /// `Leasehold::builder().fleet(databases)`. Opens nothing.
    pub fn fleet<N, U>(databases: impl IntoIterator<Item = (N, U)>) -> Result<Fleet, ConnectError>
    where
        N: Into<String>,
        U: AsRef<str>,
    {
        Self::builder().fleet(databases)
    }

    /// Returns the database that sessions are opened on.
    pub fn database(&self) -> &Database {
        &self.0.database
    }

    /// Connections for enqueues and handlers. The worker's own work does not use it, so handlers
    /// that hold every connection cannot keep leases from being renewed.
    pub fn pool(&self) -> &deadpool_postgres::Pool {
        &self.0.pool
    }

    /// How long a claim, a finish or an enqueue may take.
    pub(crate) fn call_timeout(&self) -> Duration {
        self.0.settings.call_timeout
    }

    /// What this process counts.
    pub(crate) fn process(&self) -> &Arc<Process> {
        &self.0.process
    }

    /// Returns a text that no other database has.
    pub(crate) fn identity_text(&self) -> String {
        self.0.identity.get().map(Identity::to_string).unwrap_or_default()
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

    /// Sweeps: list them, pause, resume and run them, redrive their dead rows.
    pub fn sweeps(&self) -> Sweeps<'_> {
        Sweeps::of(self)
    }

    /// Mirrors: list them and their differences, re-index rows, order checks and rebuilds.
    pub fn mirrors(&self) -> Mirrors<'_> {
        Mirrors::of(self)
    }

    /// Alarms: list, acknowledge and silence them, and set the thresholds of queues.
    pub fn alarms(&self) -> Alarms<'_> {
        Alarms::of(self)
    }

    /// Samples of the database, and series of them.
    pub fn measurements(&self) -> Measurements<'_> {
        Measurements::of(self)
    }

    /// Runs one statement of an admin handle on a connection of the pool.
    pub(crate) async fn query(
        &self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, AdminError> {
        let client = self.pooled_client().await.map_err(AdminError::NoConnection)?;
        let asked =
            tokio::time::timeout(self.call_timeout(), client.query_typed(sql, params)).await;
        let error = match asked {
            Ok(Ok(rows)) => return Ok(rows),
            Ok(Err(error)) => AdminError::from(error),
            Err(_) => AdminError::TimedOut(self.call_timeout()),
        };
        if error.ends_session() {
            drop(deadpool_postgres::Object::take(client));
            self.0.pool.retain(|_, _| false);
        }
        Err(error)
    }

    /// Builds a worker. Add queues and handlers, then run it.
    pub fn worker(&self) -> WorkerBuilder<()> {
        WorkerBuilder::new(self.clone(), Arc::new(()))
    }

    /// Builds a worker whose handlers share `state`.
    pub fn worker_with<S: Send + Sync + 'static>(&self, state: S) -> WorkerBuilder<S> {
        WorkerBuilder::new(self.clone(), Arc::new(state))
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
        let limit = self.call_timeout().saturating_mul(MANY);
        let stored = match tokio::time::timeout(limit, storing).await {
            Ok(stored) => stored,
            Err(_) => Err(EnqueueError::TimedOut(limit)),
        };
        match stored {
            Ok(stored) => {
                self.enqueued(J::QUEUE, J::NAME, stored);
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
        self.pooled_client().await.map_err(EnqueueError::NoConnection)
    }

    async fn pooled_client(&self) -> Result<deadpool_postgres::Client, String> {
        self.check().await.map_err(|error| error.to_string())?;
        self.0.pool.get().await.map_err(|error| error.to_string())
    }
}

impl EnqueueOn for &Leasehold {
    /// Enqueues in its own transaction. With a key, an enqueue whose reply was lost is retried for up
    /// to ten seconds: the key makes sure that there is only one job.
    async fn enqueue_one(self, draft: Draft) -> Result<Enqueued, EnqueueError> {
        let deadline = Instant::now() + REPEAT_FOR;
        let mut backoff = crate::backoff::RECONNECT.waits();
        loop {
            match self.store(&draft).await {
                Err(error)
                    if draft.key.is_some() && error.may_repeat() && Instant::now() < deadline =>
                {
                    tokio::time::sleep(backoff.next_wait()).await;
                }
                stored => {
                    if stored.as_ref().is_ok_and(|job| job.is_new()) {
                        self.enqueued(&draft.queue, &draft.name, 1);
                    }
                    return stored;
                }
            }
        }
    }
}

impl Leasehold {
    /// Counts stored jobs. The first ones of a queue, and the next ones an hour later, also start a check whether
    /// a worker works that queue, beside the caller.
    fn enqueued(&self, queue: &str, name: &str, jobs: u64) {
        if self.0.process.enqueued(queue, name, jobs) {
            // Weak: the check must not keep the connections of a program that has ended its work.
            let (inner, queue) = (Arc::downgrade(&self.0), queue.to_owned());
            tokio::spawn(async move {
                tokio::time::sleep(WORKER_CHECK_AFTER).await;
                if let Some(inner) = inner.upgrade() {
                    Self(inner).warn_if_unworked(&queue).await;
                }
            });
        }
    }

    /// Logs a warning if no live worker works the queue.
    #[doc(hidden)]
    pub async fn warn_if_unworked(&self, queue: &str) {
        // Without a reply, or without the right to see workers, nothing is known.
        if let Ok(false) = self.queues().is_worked(queue).await {
            tracing::warn!(
                queue,
                "jobs were enqueued into a queue that no live worker works; they wait. Add .queue({queue:?}, slots) \
                 to a worker, or enqueue into another queue"
            );
        }
    }

    async fn store(&self, draft: &Draft) -> Result<Enqueued, EnqueueError> {
        let client = self.client().await?;
        let limit = self.call_timeout();
        let stored = match tokio::time::timeout(limit, self.store_on(&client, draft)).await {
            Ok(stored) => stored,
            Err(_) => Err(EnqueueError::TimedOut(limit)),
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
            return read_enqueued(&client.query_typed(ENQUEUE, &params).await?);
        }
        // A direct session keeps prepared statements.
        let types: Vec<Type> = params.iter().map(|(_, ty)| ty.clone()).collect();
        let statement = client.prepare_typed_cached(ENQUEUE, &types).await?;
        read_enqueued(&client.query(&statement, &params.map(|(value, _)| value)).await?)
    }
}

/// The pool checks whether a connection still accepts writes if it was idle for `ASK_AFTER`, and on
/// every `ASK_EACH`th use.
const ASK_AFTER: Duration = Duration::from_secs(1);
const ASK_EACH: usize = 16;

/// The most connections that the handle keeps by default, for enqueues and for handlers that need one.
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
    let limit = database.connect_timeout();
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
