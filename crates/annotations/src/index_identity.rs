//! Which index belongs to which database: the database records the identity of the first one.
//!
//! A process with another index would find foreign notes, and write notes where no
//! reader looks. So the service compares the identities at its start, and does not start if they
//! differ.
//!
//! # What can go wrong
//! - The index does not respond at the start: the service starts anyway, because Postgres can serve
//!   searches. It neither reads nor writes the index before it has compared the identities.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use leasehold::Backoff;
use leasehold::database::Database;
use leasehold::mirror::{Target, TargetError, Targets};
use leasehold::service::retry_with_warnings;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use crate::database::SCHEMA;
use crate::error::StartError;
use crate::index::{Hits, Query, SearchIndex};

/// The wait before asking an index again that did not respond. Its jitter keeps processes that lost the index
/// together from asking together.
const RETRY: Backoff = Backoff::doubling(Duration::from_secs(5), Duration::from_secs(5));
/// How long an index may take to return its identity.
const ASK_LIMIT: Duration = Duration::from_secs(15);

/// Asks an index for its identity.
type Ask = Arc<dyn Fn() -> BoxFuture<'static, Result<String, TargetError>> + Send + Sync>;

/// Which index it is, independent of its place, and where it is now.
#[derive(Clone)]
pub(crate) struct Identity {
    ask: Ask,
    place: String,
}

impl Identity {
    pub fn new<F>(ask: impl Fn() -> F + Send + Sync + 'static, place: String) -> Self
    where
        F: Future<Output = Result<String, TargetError>> + Send + 'static,
    {
        Self { ask: Arc::new(move || Box::pin(ask())), place }
    }

    /// Compares the index with the record. `writes`: records it if none is recorded.
    async fn compare(&self, session: &Client, writes: bool) -> Result<(), CompareError> {
        let late = || TargetError::Down(format!("no response within {ASK_LIMIT:?}"));
        let asked = tokio::time::timeout(ASK_LIMIT, (self.ask)()).await;
        let identity = asked.unwrap_or_else(|_| Err(late())).map_err(CompareError::Index)?;
        let sql = "select known_identity, known_place, known_since \
                   from annotations.index_used($1, $2, $3)";
        let params: [(&(dyn ToSql + Sync), Type); 3] =
            [(&identity, Type::TEXT), (&self.place, Type::TEXT), (&writes, Type::BOOL)];
        let rows = session.query_typed(sql, &params).await.map_err(StartError::from)?;
        match rows.first() {
            Some(row) if row.get::<_, &str>(0) != identity => Err(StartError::OtherIndex {
                place: self.place.clone(),
                known: row.get(1),
                since: row.get::<_, Timestamp>(2).strftime("%Y-%m-%d %H:%M UTC").to_string(),
            }
            .into()),
            _ => Ok(()),
        }
    }
}

/// Why the comparison did not succeed.
enum CompareError {
    Start(StartError),
    Index(TargetError),
}

impl From<StartError> for CompareError {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}

/// Compares the index with the database. Returns an error if they do not belong together. If the index
/// does not respond, it is closed until it has been compared.
pub(crate) async fn verify(
    identity: &Identity,
    index: &Arc<GuardedIndex>,
    writes: impl Fn() -> bool + Send + Sync + 'static,
    session: &Client,
    database: &Database,
) -> Result<(), StartError> {
    match identity.compare(session, writes()).await {
        Ok(()) => Ok(()),
        Err(CompareError::Start(error)) => Err(error),
        Err(CompareError::Index(error)) => {
            tracing::warn!(%error, "the search index does not respond; the service uses it once it has been compared with the database");
            index.closed.store(true, Ordering::Release);
            let (identity, database) = (identity.clone(), database.clone());
            tokio::spawn(ask_again(identity, Arc::downgrade(index), writes, database));
            Ok(())
        }
    }
}

/// Retries until the index has been compared or the service has ended.
async fn ask_again(
    identity: Identity,
    index: Weak<GuardedIndex>,
    writes: impl Fn() -> bool + Send + Sync + 'static,
    database: Database,
) {
    let effect = "the search index was not compared yet; Postgres searches alone";
    retry_with_warnings(RETRY, effect, || async {
        let Some(index) = index.upgrade() else { return ControlFlow::Break(()) };
        let compared = match SCHEMA.session(&database).await {
            Ok(session) => identity.compare(&session, writes()).await,
            Err(error) => Err(CompareError::Start(error.into())),
        };
        match compared {
            Ok(()) => {
                index.closed.store(false, Ordering::Release);
                ControlFlow::Break(())
            }
            Err(CompareError::Start(error @ StartError::OtherIndex { .. })) => {
                tracing::error!(%error, "the service does not use this index; start it with the recorded one");
                ControlFlow::Break(())
            }
            Err(CompareError::Index(error)) => ControlFlow::Continue(error.to_string()),
            Err(CompareError::Start(error)) => ControlFlow::Continue(error.to_string()),
        }
    })
    .await;
}

/// An index that is used only after its identity was compared with the database.
pub(crate) struct GuardedIndex {
    search: Arc<dyn SearchIndex>,
    targets: Arc<dyn Targets>,
    closed: AtomicBool,
}

impl GuardedIndex {
    pub fn new(search: Arc<dyn SearchIndex>, targets: Arc<dyn Targets>) -> Self {
        Self { search, targets, closed: AtomicBool::new(false) }
    }

    fn check_open(&self) -> Result<(), TargetError> {
        match self.closed.load(Ordering::Acquire) {
            true => Err(TargetError::Down("not compared with the database yet".to_owned())),
            false => Ok(()),
        }
    }
}

impl SearchIndex for GuardedIndex {
    fn search<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Hits, TargetError>> {
        match self.check_open() {
            Ok(()) => self.search.search(query),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }
}

impl Targets for GuardedIndex {
    fn current(&self) -> BoxFuture<'_, Result<String, TargetError>> {
        match self.check_open() {
            Ok(()) => self.targets.current(),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Target>, TargetError>> {
        match self.check_open() {
            Ok(()) => self.targets.open(name),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn create(&self) -> BoxFuture<'_, Result<String, TargetError>> {
        match self.check_open() {
            Ok(()) => self.targets.create(),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn swap<'a>(&'a self, to: &'a str) -> BoxFuture<'a, Result<(), TargetError>> {
        match self.check_open() {
            Ok(()) => self.targets.swap(to),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), TargetError>> {
        match self.check_open() {
            Ok(()) => self.targets.remove(name),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }
}
