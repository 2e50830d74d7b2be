//! One node of our service as a process: `leasehold bench node`, started by the benchmark.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use leasehold::Leasehold;
use pastes::{Bearer, Limits, Pastes, Settings, Store};
use tokio_util::sync::CancellationToken;

#[derive(Clone, Debug, clap::Args)]
pub struct NodeArgs {
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    store: PathBuf,
    #[arg(long, env = "LEASEHOLD_OPERATOR_TOKEN", hide_env_values = true)]
    operator_token: String,
}

/// Serves until `stop` ends: HTTP, uploads, the sweep and its jobs in one process.
pub async fn serve(args: &NodeArgs, url: &str, stop: impl Future<Output = ()>) -> Result<()> {
    let settings = Settings {
        base_url: format!("http://{}", args.listen),
        // One address sends everything here; real services limit it.
        limits: Limits { creates_per_second: 0, reads_per_second: 0, ..Limits::default() },
        operator_token: Bearer::new(&args.operator_token),
        ..Settings::default()
    };
    let engine = Leasehold::connect(url).await?;
    let pastes = Pastes::start(engine.clone(), Store::local(&args.store)?, settings).await?;
    let listener = tokio::net::TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    let ending = CancellationToken::new();
    let worker = pastes::worker(&pastes, engine.worker())?;
    let worker = tokio::spawn(worker.run_until(ending.clone().cancelled_owned()));
    pastes::http::serve(listener, pastes::router(pastes.clone()), stop).await;
    ending.cancel();
    worker.await?.context("the worker failed")?;
    Ok(())
}
