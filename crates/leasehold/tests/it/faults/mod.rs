//! What happens when the network, the pool or the server fails under the engine.

mod cut_off;
mod failover;
mod hosts;
mod load;
mod pool;
mod pooler;
mod replies;
mod server;
mod sessions;
mod slow;
mod wakeups;

use leasehold::Leasehold;
use leasehold_testing::TestDatabase;
use leasehold_testing::proxy::FaultProxy;
use tokio_postgres::Client;

use crate::fixture::sql;

/// Short leases, so that jobs return soon; high limits, so that a slow machine buries none.
const SHORT_LEASES: &str =
    "lease = '2 seconds', backoff_base = '1 millisecond', max_lost = 1000, max_attempts = 1000";

/// A database, an engine that reaches it through a proxy, and a client that connects directly.
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

    /// Returns an engine that connects without the proxy.
    async fn undisturbed(&self) -> Leasehold {
        Leasehold::connect(&self.database.direct_url()).await.expect("an engine")
    }

    async fn count(&self, sql: &str) -> i64 {
        crate::fixture::count(&self.client, sql).await
    }

    /// Asserts that each note is in the ledger once, each job completed once, and nothing is left.
    async fn assert_each_once(&self, jobs: i64) {
        assert_eq!(self.count("select count(*) from ledger").await, jobs);
        assert_eq!(self.count("select count(distinct n) from ledger").await, jobs);
        assert_eq!(crate::fixture::completed(&self.client).await, jobs);
        let left = "select (select count(*) from leasehold.job) + (select count(*) from leasehold_internal.dead_job)";
        assert_eq!(self.count(left).await, 0);
    }
}
