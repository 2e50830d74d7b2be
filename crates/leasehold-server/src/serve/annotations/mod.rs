//! The annotation service of `leasehold serve`: [`options`] and [`index`] read the command line.

mod index;
mod options;

use annotations::{Annotations, Settings, StartError};
use leasehold::Leasehold;
use tokio::net::TcpListener;

use super::parts;
use crate::exit::{Code, Failure};
use crate::run::{Service, Stopping};

pub use index::IndexOptions;
pub use options::{AnnotationOptions, LISTEN, origins};

/// Starts the service on a database with current schemas. `works`: [`working`] will run, too.
pub async fn start(
    engine: Leasehold,
    index: &IndexOptions,
    settings: Settings,
    works: bool,
) -> Result<Annotations, Failure> {
    let notes = Annotations::start(engine, index.open(works).await?, settings).await?;
    if let Some(queue) = queue_of(&notes) {
        parts::watch(notes.engine(), queue, &BULK).await?;
    }
    Ok(notes)
}

/// Returns the queue to watch. Without an index no worker claims its jobs: silence there is no alarm,
/// and a canary would wait for ever.
fn queue_of(notes: &Annotations) -> Option<&'static str> {
    notes.has_index().then_some(annotations::QUEUE)
}

/// Tags of bulk work, which is long on purpose: the alarm about the queue's length does not count it.
const BULK: [&str; 5] = ["reindex_*", "rename_user", "delete_user", "move_group", "mirror.repair"];

/// Builds the service that serves requests.
pub fn http_service(notes: &Annotations, listener: TcpListener, stopping: &Stopping) -> Service {
    let router = annotations::router(notes.clone());
    let queue = (notes.engine(), queue_of(notes));
    let (settings, web) = (notes.settings(), (router, listener));
    let proxies = settings.limits.trusted_proxies;
    parts::http_service("annotations", &settings.base_url, queue, web, proxies, stopping)
}

/// Builds the service that keeps the index equal to the table. While another process writes to the
/// index, this one does the rest of the work, and takes over when the other is gone.
pub fn working(notes: &Annotations, stopping: &Stopping) -> Result<Service, Failure> {
    let worker = annotations::worker(notes, notes.engine().worker().name("annotations"))?;
    if notes.writes_index() {
        let description = "keeps the search index equal to the notes";
        return Ok(parts::working("indexing", description, worker, stopping));
    }
    let description = match notes.has_index() {
        true => "waits for its turn to write to the search index",
        false => "changes many notes at once, and prunes; there is no search index",
    };
    let (stop, immediate) = (stopping.clone(), stopping.clone());
    let (notes, asked, cut_short) = (notes.clone(), stopping.clone(), stopping.clone());
    Ok(Service::new("indexing", description, async move {
        let rest = async {
            Ok::<_, Failure>(worker.run_with_shutdown(stop.asked(), immediate.cut_short()).await?)
        };
        let index = async {
            tokio::select! {
                () = asked.clone().asked() => return Ok(()),
                () = notes.becomes_writer() => {}
            }
            tracing::info!("the search index is written by this process now");
            let worker = notes.engine().worker().name("annotations-index").without_housekeeping();
            let worker = annotations::index_worker(&notes, worker);
            Ok::<_, Failure>(worker.run_with_shutdown(asked.asked(), cut_short.cut_short()).await?)
        };
        tokio::try_join!(rest, index).map(|_| ())
    }))
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Settings(text) => Self::usage(text),
            StartError::NotMigrated => Self::conflict(StartError::NotMigrated)
                .hint("run: leasehold migrate up --service annotations"),
            StartError::Index(_) => Self::failed(&error)
                .hint("name a directory that can be written, or check the address of OpenSearch"),
            StartError::OtherIndex { .. } => Self::conflict(&error).hint(
                "name the former index; if it is lost, or to replace it: \
                 leasehold annotations index forget, then start again",
            ),
            StartError::Unavailable(why) => Self::new(Code::Unreachable, why),
        }
    }
}

impl From<annotations::Refused> for Failure {
    fn from(error: annotations::Refused) -> Self {
        use annotations::{Refused, Unavailable};
        match error {
            Refused::NotFound
            | Refused::NoSuchPerson
            | Refused::NoSuchPage
            | Refused::NoSuchReindex
            | Refused::NoSuchGroup => Self::not_found(error),
            Refused::Malformed(text) => Self::usage(text),
            Refused::Unavailable(Unavailable::TimedOut(limit)) => Self::timeout(format!(
                "the database did not respond within {}",
                crate::text::print_duration(limit)
            ))
            .hint("allow more with --timeout, or run: leasehold doctor"),
            Refused::Unavailable(why) => Self::new(Code::Unreachable, why),
            other => Self::conflict(other),
        }
    }
}
