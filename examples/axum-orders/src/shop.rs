//! The tables of the shop, and the server and the worker in one process.

use std::future::Future;

use leasehold::Leasehold;
use sqlx::PgPool;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::orders;
use crate::receipts::{Letterhead, send_receipt};

const TABLES: &str = "
    create table if not exists shelf (
        item text primary key,
        left_over int not null check (left_over >= 0)
    );
    create table if not exists orders (
        id bigint generated always as identity primary key,
        item text not null,
        quantity int not null check (quantity > 0),
        -- Null: the client sent no key. Nulls do not collide.
        request_key text unique
    );
    create table if not exists receipts (
        order_id bigint not null references orders (id),
        text text not null
    );
    insert into shelf values ('teapot', 10), ('cup', 100) on conflict (item) do nothing;";

pub type Problem = Box<dyn std::error::Error + Send + Sync>;

/// The shop, connected and with its tables.
pub struct Shop {
    leasehold: Leasehold,
    pool: PgPool,
}

impl Shop {
    /// Connects and creates the tables.
    pub async fn new(url: &str) -> Result<Self, Problem> {
        let leasehold = Leasehold::connect_and_migrate(url).await?;
        let pool = PgPool::connect(url).await?;
        sqlx::raw_sql(TABLES).execute(&pool).await?;
        Ok(Self { leasehold, pool })
    }

    /// Serves requests and runs jobs until `stop`; then finishes running work, and returns.
    pub async fn run(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Problem> {
        // One stop for both. When either half ends, for any reason, the other ends too.
        let stopping = CancellationToken::new();
        let server = axum::serve(listener, orders::routes(self.pool))
            .with_graceful_shutdown(stopping.clone().cancelled_owned());
        let worker = self
            .leasehold
            .worker_with(Letterhead("The Tea Shop".to_owned()))
            .name("axum-orders")
            .handle(send_receipt)
            .run_until(stopping.clone().cancelled_owned());

        let serving = async {
            let served = server.await.map_err(Problem::from);
            stopping.cancel();
            served
        };
        let working = async {
            let worked = worker.await.map_err(Problem::from);
            stopping.cancel();
            worked
        };
        let waiting = async {
            if stopping.run_until_cancelled(stop).await.is_some() {
                stopping.cancel();
            }
        };
        let (served, worked, ()) = tokio::join!(serving, working, waiting);
        served.and(worked)
    }
}
