//! The handle that HTTP, workers and commands share.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use leasehold::admin::By;
use leasehold::link::Param;
use leasehold::service::retry;
use leasehold::{Backoff, Leasehold};
use tokio_postgres::Row;

use crate::cursor::Seal;
use crate::database::{CALL_LIMIT, ExclusiveSessions, SCHEMA, Sessions};
use crate::error::{Refused, StartError};
use crate::mirror::Mirrored;
use crate::settings::Settings;

/// Sessions for the statements of requests.
const SESSIONS: usize = 6;
/// Sessions for slow statements, so that requests do not queue behind them.
const SLOW_SESSIONS: usize = 2;
/// Sessions for searches by words: all such searches together use no more.
const WORD_SESSIONS: usize = 2;
/// Sessions for searches of Postgres alone by tag, conversation or kind.
const FILTER_SESSIONS: usize = 3;
/// How often a process that only searches the index checks whether it may write.
const TAKE_OVER: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(1));

/// The annotation service on one database and one index. Cheap to clone.
#[derive(Clone)]
pub struct Annotations(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) engine: Leasehold,
    pub(crate) settings: Settings,
    sessions: Sessions,
    slow: Sessions,
    by_words: ExclusiveSessions,
    by_filter: ExclusiveSessions,
    pub(crate) seal: Seal,
    pub(crate) mirrored: Option<Mirrored>,
}

impl Annotations {
    /// Starts the service. The schema must exist: see [`crate::migrate`]. Without an index Postgres
    /// serves every search.
    pub async fn start(
        engine: Leasehold,
        index: Option<crate::Index>,
        settings: Settings,
    ) -> Result<Self, StartError> {
        Self::start_within(engine, index, settings, CALL_LIMIT).await
    }

    /// Like [`Self::start`], with another time limit for a statement.
    pub async fn start_within(
        engine: Leasehold,
        index: Option<crate::Index>,
        settings: Settings,
        limit: Duration,
    ) -> Result<Self, StartError> {
        settings.check()?;
        let database = engine.database().clone();
        let session = SCHEMA.session(&database).await?;
        // Without its triggers a save would make no job, and the index would silently fall behind.
        let sql = "select count(*) from pg_trigger \
                   where tgrelid = 'annotations.annotation'::regclass and not tgisinternal";
        let rows = session.query_typed(sql, &[]).await?;
        if rows.first().is_none_or(|row| row.get::<_, i64>(0) < 4) {
            return Err(StartError::NotMigrated);
        }
        let rows = session.query_typed("select cursor_key from annotations.secret", &[]).await?;
        let seal = Seal::new(rows.first().ok_or(StartError::NotMigrated)?.get(0));
        if let Some(index) = &index {
            index.check(&session, &database).await?;
        }
        let sessions = Sessions::new(&database, SESSIONS, limit);
        let slow = Sessions::new(&database, SLOW_SESSIONS, limit);
        let by_words = ExclusiveSessions::new(&database, WORD_SESSIONS, limit);
        let by_filter = ExclusiveSessions::new(&database, FILTER_SESSIONS, limit);
        let mirrored = match index {
            Some(index) => Some(Mirrored::start(&engine, index, &settings).await),
            None => None,
        };
        let inner = Inner { engine, settings, sessions, slow, by_words, by_filter, seal, mirrored };
        Ok(Self(Arc::new(inner)))
    }

    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub fn engine(&self) -> &Leasehold {
        &self.0.engine
    }

    pub fn has_index(&self) -> bool {
        self.0.mirrored.is_some()
    }

    /// Returns whether this process writes to the index; false without an index.
    pub fn writes_index(&self) -> bool {
        self.0.mirrored.as_ref().is_some_and(Mirrored::writes)
    }

    /// Completes when this process becomes the writer of the index, because the former writer has ended.
    /// Never completes without an index. Pass a worker to [`crate::index_worker`] then.
    pub async fn becomes_writer(&self) {
        let Some(mirrored) = &self.0.mirrored else { return std::future::pending().await };
        if !mirrored.writes() {
            retry(TAKE_OVER, || {
                std::future::ready(match mirrored.writes() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                })
            })
            .await;
        }
        mirrored.begin(&self.0.engine, &self.0.settings).await;
    }

    /// Returns whether the database responds; for health checks.
    pub async fn is_healthy(&self) -> bool {
        self.rows("select 1", &[]).await.is_ok()
    }

    pub(crate) async fn rows(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Refused> {
        self.0.sessions.query(sql, params).await
    }

    /// Runs a statement on many notes.
    pub(crate) async fn slow_rows(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Refused> {
        self.0.slow.query(sql, params).await
    }

    /// Runs a search by words.
    pub(crate) async fn word_rows(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Refused> {
        self.0.by_words.query(sql, params).await
    }

    /// Runs a search by tag, conversation or kind.
    pub(crate) async fn filter_rows(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Refused> {
        self.0.by_filter.query(sql, params).await
    }

    /// Forgets the recorded index, so that the next one that is used becomes this database's own,
    /// with any content. Returns the place of the former one.
    pub async fn forget_index(&self, by: &By) -> Result<Option<String>, Refused> {
        // First: the content of the next index is unknown, and nothing may count as equal before it was compared.
        self.0.engine.mirrors().reset_equality(crate::mirror::NAME, by).await?;
        Ok(self.row("select annotations.forget_index()", &[]).await?.get(0))
    }

    /// Runs a statement on many notes that always returns one row.
    pub(crate) async fn slow_row(&self, sql: &str, params: &[Param<'_>]) -> Result<Row, Refused> {
        let rows = self.slow_rows(sql, params).await?;
        rows.into_iter().next().ok_or(Refused::NotFound)
    }

    /// Runs a statement that always returns one row.
    pub(crate) async fn row(&self, sql: &str, params: &[Param<'_>]) -> Result<Row, Refused> {
        let rows = self.rows(sql, params).await?;
        rows.into_iter().next().ok_or(Refused::NotFound)
    }
}
