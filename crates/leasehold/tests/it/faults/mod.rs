//! What happens when the network, the pool or the server fails under the engine.

mod cut_off;
mod pool;
mod pooler;
mod replies;
mod server;
mod slow;
mod wakeups;

use leasehold::Leasehold;
use leasehold_testing::TestDatabase;
use leasehold_testing::proxy::FaultProxy;
use tokio_postgres::Client;

use crate::rig::sql;

/// Settings of a queue whose jobs come back soon, and are not buried for what a slow machine does.
const SHORT_LEASES: &str =
    "lease = '2 seconds', backoff_base = '1 millisecond', max_lost = 1000, max_attempts = 1000";

/// A database, an engine that reaches it through a proxy, and a client that goes straight there.
struct Setup {
    proxy: FaultProxy,
    engine: Leasehold,
    client: Client,
    database: TestDatabase,
}

impl Setup {
    async fn new() -> Self {
        let database = TestDatabase::new().await;
        let client = database.connect_directly().await;
        sql(&client, "create table ledger (n bigint)").await;
        let proxy = FaultProxy::before(&database.direct_config()).expect("a proxy");
        let engine = Leasehold::connect(&proxy.url()).await.expect("an engine");
        Self { proxy, engine, client, database }
    }

    /// An engine whose connections nothing disturbs.
    async fn undisturbed(&self) -> Leasehold {
        Leasehold::connect(&self.database.direct_url()).await.expect("an engine")
    }

    async fn count(&self, sql: &str) -> i64 {
        crate::rig::count(&self.client, sql).await
    }

    /// Each note once in the ledger, each job completed once, nothing left.
    async fn assert_each_once(&self, jobs: i64) {
        assert_eq!(self.count("select count(*) from ledger").await, jobs);
        assert_eq!(self.count("select count(distinct n) from ledger").await, jobs);
        assert_eq!(crate::rig::completed(&self.client).await, jobs);
        let left = "select (select count(*) from leasehold.job) + (select count(*) from leasehold.dead_job)";
        assert_eq!(self.count(left).await, 0);
    }
}
