//! The search index as a mirror of the table: declared here, kept equal by the engine.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use leasehold::Leasehold;
use leasehold::breaker::Breaker;
use leasehold::database::Database;
use leasehold::mirror::{DirectWriter, Mirror, TargetError, Targets};
use parking_lot::Mutex;
use tokio_postgres::types::Type;

use crate::error::StartError;
use crate::index::SearchIndex;
use crate::index_identity::{self, GuardedIndex, Identity};
use crate::lane;
use crate::latency::LatencyEstimate;
use crate::model::IndexState;
use crate::service::Annotations;
use crate::settings::Settings;

/// The mirror's name.
pub const NAME: &str = "annotations.index";
/// The queue of its jobs.
pub const QUEUE: &str = "annotations";
/// A commit of the index costs the disk a dozen times what a save does: at most five per second, however
/// many saves there are.
const DIRECT_EVERY: Duration = Duration::from_millis(200);
/// Keys that may wait for the direct path.
const DIRECT_ROOM: usize = 1024;
/// After this many failures in a row the breaker opens, and searches stop asking the index.
const FAILURES: u32 = 3;
/// How long the breaker stays open before one search probes the index.
const OPEN_FOR: Duration = Duration::from_secs(5);
/// How long a result of [`Mirrored::state`] is cached.
const FRESH: Duration = Duration::from_secs(1);

/// How long the start waits for the index.
const START_LIMIT: Duration = Duration::from_secs(5);

/// Builds the documents for the index. One statement, one snapshot; a key that it does not return was
/// deleted.
const DOCUMENT: &str = include_str!("../queries/document.sql");

/// A store that can be searched and rebuilt.
#[derive(Clone)]
pub struct Index {
    store: Arc<GuardedIndex>,
    writes: Writes,
    identity: Option<Identity>,
}

/// Returns whether this process may write to the store now.
type Writes = Arc<dyn Fn() -> bool + Send + Sync>;

impl Index {
    pub fn new<T: SearchIndex + Targets>(store: Arc<T>) -> Self {
        let store = Arc::new(GuardedIndex::new(Arc::clone(&store) as _, store));
        Self { store, writes: Arc::new(|| true), identity: None }
    }

    /// For a store that has one writer at a time: `writes` returns whether this process is the writer.
    /// Until then this process only searches the store, and must not claim index jobs, which it could
    /// only defer. Once it is the writer, it stays the writer.
    pub fn written_when(self, writes: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { writes: Arc::new(writes), ..self }
    }

    /// Sets the identity of the index. The database records the first one, and the service does not
    /// start with another.
    pub fn known_as(self, identity: String, place: String) -> Self {
        self.identified_by(move || std::future::ready(Ok(identity.clone())), place)
    }

    /// Like [`Self::known_as`], for an index that has to be asked. One that does not respond does not
    /// stop the start; the service does not use it before it has responded and was compared.
    pub fn identified_by<F>(
        self,
        ask: impl Fn() -> F + Send + Sync + 'static,
        place: String,
    ) -> Self
    where
        F: Future<Output = Result<String, TargetError>> + Send + 'static,
    {
        Self { identity: Some(Identity::new(ask, place)), ..self }
    }

    /// Refuses an index that is not the one that the database has recorded.
    pub(crate) async fn check(
        &self,
        session: &tokio_postgres::Client,
        database: &Database,
    ) -> Result<(), StartError> {
        let Some(identity) = &self.identity else { return Ok(()) };
        let writes = Arc::clone(&self.writes);
        index_identity::verify(identity, &self.store, move || writes(), session, database).await
    }
}

/// Returns the declaration. Without targets it can be installed, and nothing else.
pub fn declare(settings: &Settings) -> Mirror {
    Mirror::new(NAME, "annotations.annotation")
        .key("id")
        .version("version")
        .document(DOCUMENT)
        .job("index", "annotation_id")
        .queue(QUEUE)
        .verify_after(settings.verify_after)
        .claim_size(settings.claim_size)
        .direct(if settings.direct { DIRECT_ROOM } else { 0 })
        .direct_every(DIRECT_EVERY)
        .check_every(settings.check_every)
}

/// The index, with what searching and writing it needs.
pub(crate) struct Mirrored {
    pub index: Arc<GuardedIndex>,
    pub mirror: Mirror,
    writes: Writes,
    /// Empty while another process is the writer.
    direct: OnceLock<DirectWriter>,
    pub breaker: Breaker,
    pub latency: LatencyEstimate,
    known: Mutex<Option<(Instant, State)>>,
}

/// What is known about how equal index and table are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub index: IndexState,
    /// The index has every change whose timestamp is before this moment.
    pub equal_as_of: Option<Timestamp>,
}

impl Mirrored {
    pub async fn start(engine: &Leasehold, index: Index, settings: &Settings) -> Self {
        let Index { store, writes, .. } = index;
        let mirrored = Self {
            mirror: declare(settings).targets(Arc::clone(&store) as _),
            index: store,
            writes,
            direct: OnceLock::new(),
            breaker: Breaker::new(FAILURES, FAILURES, OPEN_FOR),
            latency: LatencyEstimate::default(),
            known: Mutex::new(None),
        };
        if mirrored.writes() {
            mirrored.begin(engine, settings).await;
        }
        mirrored
    }

    /// Returns whether this process writes to the index.
    pub fn writes(&self) -> bool {
        (self.writes)()
    }

    /// Starts writing from this process.
    pub async fn begin(&self, engine: &Leasehold, settings: &Settings) {
        // Creates a new index now, and not in the first search. An index that is down does not stop the
        // start.
        match tokio::time::timeout(START_LIMIT, self.index.current()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "the search index does not respond yet; Postgres serves searches alone");
            }
            Err(_) => tracing::warn!(
                "the search index does not respond yet; Postgres serves searches alone"
            ),
        }
        if settings.direct {
            self.direct.get_or_init(|| self.mirror.direct_writer(engine));
        }
    }

    /// Hands a key to the direct path after a commit; never waits.
    pub fn changed(&self, id: &str) {
        if let Some(direct) = self.direct.get() {
            direct.changed([id]);
        }
    }

    /// Returns the state, at most a second old. If Postgres cannot tell, nothing counts as equal.
    pub async fn state(&self, annotations: &Annotations) -> State {
        let known = *self.known.lock();
        if let Some((asked, state)) = known
            && asked.elapsed() < FRESH
        {
            return state;
        }
        let sql = include_str!("../queries/index_state.sql");
        let overdue = annotations.settings().verify_after.as_secs_f64();
        let params = [
            (&NAME as _, Type::TEXT),
            (&overdue as _, Type::FLOAT8),
            (&lane::SAVE as _, Type::INT4),
        ];
        let state = match annotations.row(sql, &params).await {
            Ok(row) => State {
                index: if row.get(1) { IndexState::Behind } else { IndexState::Ok },
                equal_as_of: row.get(0),
            },
            Err(_) => State { index: IndexState::Behind, equal_as_of: None },
        };
        *self.known.lock() = Some((Instant::now(), state));
        state
    }
}

/// Migrates the tables to this release, and installs the mirror's triggers on them. Safe to repeat.
pub async fn migrate(client: &mut tokio_postgres::Client) -> Result<Vec<i32>, StartError> {
    let applied =
        crate::SCHEMA.up(client).await.map_err(|error| StartError::Settings(error.to_string()))?;
    declare(&Settings::default())
        .install(client)
        .await
        .map_err(|error| StartError::Settings(error.to_string()))?;
    Ok(applied)
}

/// Returns the SQL that [`migrate`] runs on the tables for the mirror.
pub fn trigger_sql() -> Result<String, StartError> {
    declare(&Settings::default())
        .install_sql("text")
        .map_err(|error| StartError::Settings(error.to_string()))
}
