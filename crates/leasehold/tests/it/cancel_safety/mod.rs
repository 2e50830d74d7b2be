//! Futures that are dropped in the middle of a database call leave nothing behind.

mod enqueuing;
mod handling;

use leasehold::Leasehold;
use leasehold_testing::TestDatabase;
use tokio_postgres::Client;

use crate::fixture::{count, sql};

/// A database with one pooled connection in use at a time, so that the next user gets what was left.
struct Setup {
    engine: Leasehold,
    client: Client,
    /// Dropped last.
    _database: TestDatabase,
}

impl Setup {
    async fn new() -> Self {
        let database = TestDatabase::new().await;
        let client = database.connect_directly().await;
        sql(&client, "create table ledger (n bigint)").await;
        let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
        Self { engine, client, _database: database }
    }

    async fn count(&self, sql: &str) -> i64 {
        count(&self.client, sql).await
    }

    async fn assert_no_open_transaction(&self, when: &str) {
        let open = open_transactions(&self.engine).await;
        assert_eq!(open, 0, "{when}: a pooled connection is inside a transaction");
    }
}

/// Takes every idle connection of the pool and counts those that are inside a transaction.
async fn open_transactions(engine: &Leasehold) -> usize {
    let pool = engine.pool();
    let mut taken = Vec::new();
    while pool.status().available > 0 {
        taken.push(pool.get().await.expect("a connection"));
    }
    let mut open = 0;
    for connection in &taken {
        // Inside a transaction now() does not advance; inside a failed one every query is an error.
        let clock = "select extract(epoch from now()) * 1000000";
        let first = connection.simple_query(clock).await;
        let (Ok(first), Ok(second)) = (first, connection.simple_query(clock).await) else {
            open += 1;
            continue;
        };
        open += usize::from(format!("{first:?}") == format!("{second:?}"));
    }
    open
}
