//! The paste service of `leasehold dev`.
//!
//! # Invariants
//! - It runs next to a private server, with its content in `blobs` there. The user's own database gets
//!   its tables only if the user names a directory for the content.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use leasehold::Leasehold;
use pastes::{Settings, Store};

use super::server::Server;
use crate::exit::Failure;
use crate::private_server;
use crate::run::{Service, Stopping};
use crate::serve;

#[derive(Args, Debug)]
pub struct Options {
    /// Serve pastes at this address. Default: 127.0.0.1:8080, or a free port if that is taken
    #[arg(long, value_name = "ADDRESS:PORT", env = "LEASEHOLD_LISTEN")]
    listen: Option<SocketAddr>,
    /// Keep the content of pastes here. Default: blobs next to the private server; with a named
    /// database no paste service starts without it
    #[arg(long, value_name = "DIR", env = "LEASEHOLD_STORE")]
    store: Option<PathBuf>,
    /// Start no paste service
    #[arg(long, conflicts_with_all = ["listen", "store"])]
    no_pastes: bool,
}

impl Options {
    /// Returns the directory for the content. `None`: no paste service.
    pub fn store(&self, server: &Server) -> Option<PathBuf> {
        match (self.no_pastes, &self.store, server) {
            (true, _, _) => None,
            (false, Some(store), _) => Some(store.clone()),
            (false, None, Server::Private { postgres, .. }) => Some(postgres.dir().join("blobs")),
            (false, None, Server::Named { .. }) => None,
        }
    }

    /// Starts the services. Also returns the URL of the paste service.
    pub async fn start(
        &self,
        engine: &Leasehold,
        store: &std::path::Path,
        server: &Server,
        stopping: &Stopping,
    ) -> Result<(Vec<Service>, String), Failure> {
        let listener = serve::listen_somewhere(self.listen, serve::pastes::LISTEN).await;
        let listener = listener.map_err(serve::named_by("--listen"))?;
        let url = format!("http://{}", serve::reachable(listener.local_addr()?));
        // On one machine a paste should be readable at once, and all requests come from one address, which rate
        // limits would block.
        let mut settings =
            Settings { base_url: url.clone(), serve_staged: true, ..Settings::default() };
        settings.limits.creates_per_second = 0;
        settings.limits.reads_per_second = 0;
        let store = Store::local(store)?;
        let pastes = serve::pastes::start(engine.clone(), store, settings).await?;
        if let Server::Private { postgres, .. } = server {
            private_server::write_url(&private_server::pastes_file(postgres.dir()), &url)?;
        }
        let http_service = serve::pastes::http_service(&pastes, listener, stopping);
        Ok((vec![http_service, serve::pastes::working(&pastes, stopping)?], url))
    }
}
