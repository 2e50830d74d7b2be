//! The search index as a mirror of the table: declared here, kept equal by the engine.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use leasehold::Leasehold;
use leasehold::breaker::Breaker;
use leasehold::mirror::{DirectWriter, Mirror, Targets};
use tokio_postgres::types::Type;

use crate::error::StartError;
use crate::index::SearchIndex;
use crate::model::IndexState;
use crate::pace::Pace;
use crate::service::Annotations;
use crate::settings::Settings;

/// The mirror's name.
pub const NAME: &str = "annotations.index";
/// The queue of its jobs.
pub const QUEUE: &str = "annotations";
/// A commit of the index costs the disk a dozen times what a save does: five a second, however many save.
const DIRECT_EVERY: Duration = Duration::from_millis(200);
/// Keys that may wait for the direct path.
const DIRECT: usize = 1024;
/// Searches leave an index alone that failed so often in a row; one tries again after the pause.
const FAILURES: u32 = 3;
const LEAVE_ALONE: Duration = Duration::from_secs(5);
/// How long a look at the mirror's state counts.
const FRESH: Duration = Duration::from_secs(1);

/// How long the start waits for the index.
const START_LIMIT: Duration = Duration::from_secs(5);

/// What goes into the index. One statement, one snapshot; a key that it leaves out is gone.
const DOCUMENT: &str = include_str!("../queries/document.sql");

/// A store that can be searched and rebuilt.
#[derive(Clone)]
pub struct Index {
    search: Arc<dyn SearchIndex>,
    targets: Arc<dyn Targets>,
    writes: Writes,
}

/// Says whether this process may write to the store now.
type Writes = Arc<dyn Fn() -> bool + Send + Sync>;

impl Index {
    pub fn new<T: SearchIndex + Targets>(store: Arc<T>) -> Self {
        Self { search: Arc::clone(&store) as _, targets: store, writes: Arc::new(|| true) }
    }

    /// For a store that one process writes at a time: says whether it is this one. Until it is, this
    /// process only asks the store; it must not take index jobs that it could only put off. Once it
    /// is, it stays so.
    pub fn written_when(self, writes: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { writes: Arc::new(writes), ..self }
    }
}

/// The declaration. Without targets it can be installed, and nothing else.
pub fn declare(settings: &Settings) -> Mirror {
    Mirror::new(NAME, "annotations.annotation")
        .key("id")
        .version("version")
        .document(DOCUMENT)
        .job("index", "annotation_id")
        .queue(QUEUE)
        .verify_after(settings.verify_after)
        .batch(settings.batch)
        .direct(if settings.direct { DIRECT } else { 0 })
        .direct_every(DIRECT_EVERY)
        .check_every(settings.check_every)
}

/// The index, with what is needed to ask it and to write to it.
pub(crate) struct Mirrored {
    pub index: Arc<dyn SearchIndex>,
    pub mirror: Mirror,
    targets: Arc<dyn Targets>,
    writes: Writes,
    /// Not there while another process writes.
    direct: OnceLock<DirectWriter>,
    pub breaker: Breaker,
    pub pace: Pace,
    known: Mutex<Option<(Instant, State)>>,
}

/// What is known of index and table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub index: IndexState,
    /// Everything that changed before this moment was seen in the index.
    pub equal_as_of: Option<Timestamp>,
}

impl Mirrored {
    pub async fn start(engine: &Leasehold, index: Index, settings: &Settings) -> Self {
        let Index { search, targets, writes } = index;
        let mirrored = Self {
            index: search,
            mirror: declare(settings).targets(Arc::clone(&targets)),
            targets,
            writes,
            direct: OnceLock::new(),
            breaker: Breaker::new(FAILURES, FAILURES, LEAVE_ALONE),
            pace: Pace::default(),
            known: Mutex::new(None),
        };
        if mirrored.writes() {
            mirrored.begin(engine, settings).await;
        }
        mirrored
    }

    /// Whether this process writes to the index.
    pub fn writes(&self) -> bool {
        (self.writes)()
    }

    /// This process writes from now on.
    pub async fn begin(&self, engine: &Leasehold, settings: &Settings) {
        // A new index is made now, not by the first search. One that is down is left alone.
        match tokio::time::timeout(START_LIMIT, self.targets.current()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the search index does not answer yet"),
            Err(_) => tracing::warn!("the search index does not answer yet"),
        }
        if settings.direct {
            self.direct.get_or_init(|| self.mirror.direct_writer(engine));
        }
    }

    /// After a commit; never waits.
    pub fn changed(&self, id: &str) {
        if let Some(direct) = self.direct.get() {
            direct.changed([id]);
        }
    }

    /// What is known, at most a second old. When Postgres does not say, nothing is taken for equal.
    pub async fn state(&self, annotations: &Annotations) -> State {
        let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((asked, state)) = known
            && asked.elapsed() < FRESH
        {
            return state;
        }
        let sql = include_str!("../queries/index_state.sql");
        let overdue = annotations.settings().verify_after.as_secs_f64();
        let params = [(&NAME as _, Type::TEXT), (&overdue as _, Type::FLOAT8)];
        let state = match annotations.row(sql, &params).await {
            Ok(row) => State {
                index: if row.get(1) { IndexState::Behind } else { IndexState::Ok },
                equal_as_of: row.get(0),
            },
            Err(_) => State { index: IndexState::Behind, equal_as_of: None },
        };
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), state));
        state
    }
}

/// Brings the tables to this release, and the mirror's triggers onto them. Safe to repeat.
pub async fn migrate(client: &mut tokio_postgres::Client) -> Result<Vec<i32>, StartError> {
    let applied =
        crate::SCHEMA.up(client).await.map_err(|error| StartError::Settings(error.to_string()))?;
    Mirror::install(&declare(&Settings::default()), client)
        .await
        .map_err(|error| StartError::Settings(error.to_string()))?;
    Ok(applied)
}

/// What [`migrate`] adds to the tables for the mirror, as text.
pub fn trigger_sql() -> Result<String, StartError> {
    declare(&Settings::default())
        .install_sql("text")
        .map_err(|error| StartError::Settings(error.to_string()))
}
