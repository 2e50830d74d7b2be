//! The handle that HTTP, workers and people hang on.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Leasehold;
use leasehold::link::Param;
use tokio_postgres::Row;

use crate::database::{CALL_LIMIT, SCHEMA, Sessions};
use crate::error::{Refused, StartError};
use crate::mirror::Mirrored;
use crate::settings::Settings;

/// Sessions for the statements of requests.
const SESSIONS: usize = 6;
/// Sessions for statements that take their time: on those of requests, people would stand behind them.
const SLOW_SESSIONS: usize = 2;
/// How often a process that only asks the index looks whether it may write.
const TAKE_OVER_EVERY: Duration = Duration::from_secs(1);

/// The annotation service on one database and one index. Cheap to clone.
#[derive(Clone)]
pub struct Annotations(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) engine: Leasehold,
    pub(crate) settings: Settings,
    sessions: Sessions,
    slow: Sessions,
    pub(crate) mirrored: Option<Mirrored>,
}

impl Annotations {
    /// Starts the service. The schema must be there: see [`crate::migrate`]. Without an index every
    /// search is answered by Postgres.
    pub async fn start(
        engine: Leasehold,
        index: Option<crate::Index>,
        settings: Settings,
    ) -> Result<Self, StartError> {
        Self::start_within(engine, index, settings, CALL_LIMIT).await
    }

    /// The same for somebody who has another patience: `limit` is how long one statement may take.
    pub async fn start_within(
        engine: Leasehold,
        index: Option<crate::Index>,
        settings: Settings,
        limit: Duration,
    ) -> Result<Self, StartError> {
        settings.check()?;
        let database = engine.database().clone();
        let session = SCHEMA.session(&database).await?;
        // Without its triggers a save would make no job, and nobody would notice for a while.
        let sql = "select count(*) from pg_trigger \
                   where tgrelid = 'annotations.annotation'::regclass and not tgisinternal";
        let rows = session.query_typed(sql, &[]).await?;
        if rows.first().is_none_or(|row| row.get::<_, i64>(0) < 4) {
            return Err(StartError::NotMigrated);
        }
        let sessions = Sessions::new(&database, SESSIONS, limit);
        let slow = Sessions::new(&database, SLOW_SESSIONS, limit);
        let mirrored = match index {
            Some(index) => Some(Mirrored::start(&engine, index, &settings).await),
            None => None,
        };
        Ok(Self(Arc::new(Inner { engine, settings, sessions, slow, mirrored })))
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

    /// Whether this process writes to the index. False where there is none.
    pub fn writes_index(&self) -> bool {
        self.0.mirrored.as_ref().is_some_and(Mirrored::writes)
    }

    /// Ready when this process is the one that writes to the index: the one that did has ended, however
    /// it did. Never where there is no index. Then give [`crate::index_worker`] a worker.
    pub async fn becomes_writer(&self) {
        let Some(mirrored) = &self.0.mirrored else { return std::future::pending().await };
        while !mirrored.writes() {
            tokio::time::sleep(TAKE_OVER_EVERY).await;
        }
        mirrored.begin(&self.0.engine, &self.0.settings).await;
    }

    /// True when the database answers; for health checks.
    pub async fn is_healthy(&self) -> bool {
        self.rows("select 1", &[]).await.is_ok()
    }

    pub(crate) async fn rows(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Refused> {
        self.0.sessions.query(sql, params).await
    }

    /// The answer of a statement on many notes.
    pub(crate) async fn slow_rows(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Refused> {
        self.0.slow.query(sql, params).await
    }

    /// The same of one that always gives one row.
    pub(crate) async fn slow_row(&self, sql: &str, params: &[Param<'_>]) -> Result<Row, Refused> {
        let rows = self.slow_rows(sql, params).await?;
        rows.into_iter().next().ok_or(Refused::NotFound)
    }

    /// The answer of a function that always gives one row.
    pub(crate) async fn row(&self, sql: &str, params: &[Param<'_>]) -> Result<Row, Refused> {
        let rows = self.rows(sql, params).await?;
        rows.into_iter().next().ok_or(Refused::NotFound)
    }
}
