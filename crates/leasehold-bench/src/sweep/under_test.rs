//! The service as deployed: HTTP in front, workers with the expiry sweep behind.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use leasehold::{Leasehold, WorkerError};
use pastes::{Expiry, Limits, Pastes, Settings, Store, When};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Workers release their claims when they stop; a longer stop is a hang.
const STOP: Duration = Duration::from_secs(60);

pub struct UnderTest {
    pub address: SocketAddr,
    /// One per worker: they share nothing but the database and the store.
    services: Vec<Pastes>,
    workers: Vec<JoinHandle<Result<(), WorkerError>>>,
    stop: CancellationToken,
    http: JoinHandle<()>,
}

impl UnderTest {
    /// Starts everything but the workers.
    pub async fn start(
        url: &str,
        store: &Store,
        workers: usize,
        claim_size: usize,
    ) -> Result<Self> {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let settings = Settings {
            base_url: format!("http://{address}"),
            // One address creates all pastes, and the default limits would throttle it.
            limits: Limits { creates_per_second: 0, reads_per_second: 0, ..Limits::default() },
            expiry: Expiry {
                when: When::Continuous { every: Duration::from_secs(1) },
                claim_size,
                ..Expiry::default()
            },
            ..Settings::default()
        };
        let mut services = Vec::new();
        for _ in 0..workers {
            let engine = Leasehold::connect(url).await?;
            services.push(Pastes::start(engine, store.clone(), settings.clone()).await?);
        }
        let front = services.first().context("no worker")?.clone();
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let http = tokio::spawn(pastes::http::serve(listener, pastes::router(front), stopped));
        Ok(Self { address, services, workers: Vec::new(), stop, http })
    }

    /// Starts the workers, which delete expired pastes from now on.
    pub fn work(&mut self) -> Result<()> {
        for (number, service) in self.services.iter().enumerate() {
            let builder = service.engine().worker().name(format!("sweeper-{}", number + 1));
            let worker = pastes::worker(service, builder)?;
            self.workers.push(tokio::spawn(worker.run_until(self.stop.clone().cancelled_owned())));
        }
        Ok(())
    }

    /// Fails if a worker has ended: no stop was requested.
    pub async fn ensure_working(&mut self) -> Result<()> {
        if let Some(at) = self.workers.iter().position(JoinHandle::is_finished) {
            self.workers.swap_remove(at).await?.context("a worker failed")?;
            anyhow::bail!("a worker ended early");
        }
        Ok(())
    }

    pub async fn stop(self) -> Result<()> {
        self.stop.cancel();
        for worker in self.workers {
            tokio::time::timeout(STOP, worker)
                .await
                .context("a worker does not stop")??
                .context("a worker failed")?;
        }
        self.http.abort();
        Ok(())
    }
}
