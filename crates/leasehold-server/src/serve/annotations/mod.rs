//! The annotation service of `leasehold serve`: [`options`] and [`index`] read the command line.

mod index;
mod options;

use annotations::{Annotations, Settings, StartError};
use leasehold::Leasehold;
use tokio::net::TcpListener;

use super::parts;
use crate::dev::services::{Service, Stopping};
use crate::exit::{Code, Failure};

pub use index::IndexOptions;
pub use options::{AnnotationOptions, LISTEN};

/// The service on a database whose schemas are there.
pub async fn start(
    engine: Leasehold,
    index: &IndexOptions,
    settings: Settings,
) -> Result<Annotations, Failure> {
    let notes = Annotations::start(engine, index.open().await?, settings).await?;
    parts::watch(notes.engine(), annotations::QUEUE, &BULK).await?;
    Ok(notes)
}

/// Work that is long on purpose.
const BULK: [&str; 5] = ["reindex_*", "rename_user", "delete_user", "move_group", "mirror.repair"];

/// The part that answers requests.
pub fn answering(notes: &Annotations, listener: TcpListener, stopping: &Stopping) -> Service {
    let router = annotations::router(notes.clone());
    let queue = (notes.engine(), annotations::QUEUE);
    parts::answering("annotations", &notes.settings().base_url, queue, (router, listener), stopping)
}

/// The part that keeps the index equal to the table.
pub fn working(notes: &Annotations, stopping: &Stopping) -> Result<Service, Failure> {
    let worker = annotations::worker(notes, notes.engine().worker().name("annotations"))?;
    let says = "keeps the search index equal to the notes";
    Ok(parts::working("indexing", says, worker, stopping))
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Settings(text) => Self::usage(text),
            StartError::NotMigrated => Self::conflict(StartError::NotMigrated)
                .hint("run: leasehold migrate up --service annotations"),
            StartError::Index(_) => Self::failed(&error)
                .hint("name a directory that can be written, or check the address of OpenSearch"),
            StartError::Unavailable(why) => Self::new(Code::Unreachable, why),
        }
    }
}

impl From<annotations::Refused> for Failure {
    fn from(error: annotations::Refused) -> Self {
        use annotations::Refused;
        match error {
            Refused::NotFound => Self::not_found("there is no such person, page or piece of work"),
            Refused::NoSuchGroup => Self::not_found(error),
            Refused::Malformed(text) => Self::usage(text),
            Refused::Unavailable(why) => Self::new(Code::Unreachable, why),
            other => Self::conflict(other),
        }
    }
}
