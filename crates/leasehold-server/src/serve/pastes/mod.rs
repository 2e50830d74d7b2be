//! The paste service of `leasehold serve`: [`options`] and [`store`] read the command line.

mod options;
mod store;

use leasehold::Leasehold;
use pastes::{Pastes, Settings, StartError, Store, UPLOAD_QUEUE};
use tokio::net::TcpListener;

use super::parts;
use crate::exit::{Code, Failure};
use crate::run::{Service, Stopping};

pub use options::PasteOptions;
pub use store::StoreOptions;

/// The default address.
pub const LISTEN: &str = "127.0.0.1:8080";

/// Starts the service on a database with current schemas.
pub async fn start(engine: Leasehold, store: Store, settings: Settings) -> Result<Pastes, Failure> {
    let pastes = Pastes::start(engine, store, settings).await?;
    parts::watch(pastes.engine(), UPLOAD_QUEUE, &[]).await?;
    Ok(pastes)
}

/// Builds the service that serves requests.
pub fn http_service(pastes: &Pastes, listener: TcpListener, stopping: &Stopping) -> Service {
    let router = pastes::router(pastes.clone());
    let queue = (pastes.engine(), Some(UPLOAD_QUEUE));
    let (settings, web) = (pastes.settings(), (router, listener));
    let proxies = settings.limits.trusted_proxies;
    parts::http_service("pastes", &settings.base_url, queue, web, proxies, stopping)
}

/// Builds the service that uploads, expires and cleans up.
pub fn working(pastes: &Pastes, stopping: &Stopping) -> Result<Service, Failure> {
    let worker = pastes::worker(pastes, pastes.engine().worker().name("pastes"))?;
    let description = "uploads pastes, deletes expired ones, runs housekeeping";
    Ok(parts::working("worker", description, worker, stopping))
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Settings(text) => Self::usage(text),
            StartError::Store(_) => Self::failed(&error)
                .hint("name a directory that can be written, or check the bucket and its keys"),
            StartError::AnotherStore { .. } => Self::conflict(&error).hint(
                "name the store of this database; or, if this one is meant, see \"The store\" in docs/pastes.md",
            ),
            StartError::NotMigrated => Self::conflict(
                "the tables of the paste service are missing, or of another release",
            )
            .hint("run: leasehold migrate up --service pastes"),
            StartError::Unavailable(why) => Self::new(Code::Unreachable, why),
        }
    }
}
