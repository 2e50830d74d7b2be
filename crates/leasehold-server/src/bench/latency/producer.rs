//! The ways in which a producer stores a job.

use std::time::Instant;

use anyhow::{Context, Result};
use bytes::Bytes;
use futures_util::SinkExt;
use leasehold::database::Session;
use leasehold::{Enqueue, Leasehold};

use super::super::ours::Noop;
use super::super::server::BenchServer;

/// Where the job comes from
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum From {
    /// `enqueue` on the engine's handle
    #[default]
    Engine,
    /// `enqueue` in a transaction of tokio-postgres
    Transaction,
    /// `enqueue` in a transaction of sqlx
    Sqlx,
    /// A plain INSERT
    Insert,
    /// COPY of one row
    Copy,
}

pub enum Producer {
    Engine(Leasehold),
    Transaction(Session),
    Sqlx(sqlx::PgPool),
    Insert(Session),
    Copy(Session),
}

impl Producer {
    pub async fn new(from: From, engine: &Leasehold, server: &BenchServer) -> Result<Self> {
        Ok(match from {
            From::Engine => Self::Engine(engine.clone()),
            From::Transaction => Self::Transaction(server.session().await?),
            From::Sqlx => Self::Sqlx(sqlx::PgPool::connect(&server.url).await?),
            From::Insert => Self::Insert(server.session().await?),
            From::Copy => Self::Copy(server.session().await?),
        })
    }

    /// Stores one job; returns when the call that commits it began.
    pub async fn store(&mut self, n: u64) -> Result<Instant> {
        match self {
            Self::Engine(engine) => {
                let called = Instant::now();
                Noop { n }.enqueue(&*engine).await?;
                Ok(called)
            }
            Self::Transaction(session) => {
                let transaction = session.transaction().await?;
                Noop { n }.enqueue(&transaction).await?;
                let called = Instant::now();
                transaction.commit().await?;
                Ok(called)
            }
            Self::Sqlx(pool) => {
                let mut transaction = pool.begin().await?;
                Noop { n }.enqueue(&mut *transaction).await?;
                let called = Instant::now();
                transaction.commit().await?;
                Ok(called)
            }
            Self::Insert(session) => {
                let insert = session
                    .prepare("insert into leasehold.job (queue, name, kwargs) values ('bench', 'noop', $1)")
                    .await?;
                let called = Instant::now();
                session.execute(&insert, &[&serde_json::json!({ "n": n })]).await?;
                Ok(called)
            }
            Self::Copy(session) => {
                let copy = "copy leasehold.job (queue, name, kwargs) from stdin";
                let sink = session.copy_in(copy).await?;
                futures_util::pin_mut!(sink);
                sink.send(Bytes::from(format!("bench\tnoop\t{{\"n\":{n}}}\n"))).await?;
                let called = Instant::now();
                let rows = sink.finish().await?;
                (rows == 1).then_some(called).context("COPY stored no row")
            }
        }
    }
}
