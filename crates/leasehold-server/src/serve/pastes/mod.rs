//! The paste service of `leasehold serve`: [`options`] and [`store`] read the command line.

mod options;
mod store;

use leasehold::Leasehold;
use pastes::{Pastes, Settings, StartError, Store};
use tokio::net::TcpListener;

use super::parts;
use crate::dev::services::{Service, Stopping};
use crate::exit::{Code, Failure};

pub use options::PasteOptions;
pub use store::StoreOptions;

/// Where the service listens when nobody says.
pub const LISTEN: &str = "127.0.0.1:8080";

const QUEUE: &str = "pastes";

/// The service on a database whose schemas are there.
pub async fn start(engine: Leasehold, store: Store, settings: Settings) -> Result<Pastes, Failure> {
    let pastes = Pastes::start(engine, store, settings).await?;
    parts::watch(pastes.engine(), QUEUE, &[]).await?;
    Ok(pastes)
}

/// The part that answers requests.
pub fn answering(pastes: &Pastes, listener: TcpListener, stopping: &Stopping) -> Service {
    let router = pastes::router(pastes.clone());
    let queue = (pastes.engine(), Some(QUEUE));
    parts::answering("pastes", &pastes.settings().base_url, queue, (router, listener), stopping)
}

/// The part that uploads, expires and cleans up.
pub fn working(pastes: &Pastes, stopping: &Stopping) -> Result<Service, Failure> {
    let worker = pastes::worker(pastes, pastes.engine().worker().name("pastes"))?;
    let says = "uploads pastes, deletes expired ones, keeps house";
    Ok(parts::working("worker", says, worker, stopping))
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Settings(text) => Self::usage(text),
            StartError::Store(_) => Self::failed(&error)
                .hint("name a directory that can be written, or check the bucket and its keys"),
            StartError::NotMigrated => Self::conflict(
                "the tables of the paste service are not there, or of another release",
            )
            .hint("run: leasehold migrate up --service pastes"),
            StartError::Unavailable(why) => Self::new(Code::Unreachable, why),
        }
    }
}
