//! `leasehold-bench latency`: how soon an idle worker picks up a job, for each way to store it.

use std::time::Instant;

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::ValueEnum;
use futures_util::SinkExt;
use leasehold::database::Session;
use leasehold::{Enqueue, Leasehold};
use leasehold_server::bench::Common;
use leasehold_server::bench::latency::{self, Producer};
use leasehold_server::bench::ours::Noop;
use leasehold_server::bench::report::Report;
use leasehold_server::bench::server::BenchServer;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    common: Common,
    /// Store jobs this way
    #[arg(long, value_enum, default_value_t)]
    from: From,
}

/// Store jobs this way
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum From {
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

pub async fn run(server: &BenchServer, args: &Args) -> Result<Report> {
    let engine = Leasehold::connect(&server.url).await?;
    let by = By::new(args.from, &engine, server).await?;
    let mut report = latency::run(server, &args.common, &engine, by).await?;
    let from = args.from.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
    report.set("from", from.into());
    Ok(report)
}

enum By {
    Engine(Leasehold),
    Transaction(Session),
    Sqlx(sqlx::PgPool),
    Insert(Session),
    Copy(Session),
}

impl By {
    async fn new(from: From, engine: &Leasehold, server: &BenchServer) -> Result<Self> {
        Ok(match from {
            From::Engine => Self::Engine(engine.clone()),
            From::Transaction => Self::Transaction(server.session().await?),
            From::Sqlx => Self::Sqlx(sqlx::PgPool::connect(&server.url).await?),
            From::Insert => Self::Insert(server.session().await?),
            From::Copy => Self::Copy(server.session().await?),
        })
    }
}

impl Producer for By {
    async fn store(&mut self, n: u64) -> Result<Instant> {
        match self {
            Self::Engine(engine) => engine.store(n).await,
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
