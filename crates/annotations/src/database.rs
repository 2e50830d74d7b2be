//! How the service talks to Postgres: a few sessions that reconnect by themselves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::database::{Database, Session};
use leasehold::error::CallError;
use leasehold::link::{Links, Param};
use leasehold::migrate::{Migration, Schema};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Row, SimpleQueryMessage};

use crate::error::{Refused, Unavailable};

/// The tables and functions of the service, migrated beside the engine's; see [`crate::migrate`].
pub const SCHEMA: Schema = Schema {
    name: "annotations",
    migrations: &[
        Migration {
            version: 1,
            name: "tables",
            sql: include_str!("../migrations/0001_tables.sql"),
        },
        Migration {
            version: 2,
            name: "invitations",
            sql: include_str!("../migrations/0002_invitations.sql"),
        },
        Migration {
            version: 3,
            name: "parents",
            sql: include_str!("../migrations/0003_parents.sql"),
        },
        Migration {
            version: 4,
            name: "sessions",
            sql: include_str!("../migrations/0004_sessions.sql"),
        },
    ],
    // In the order of their creation: a SQL function may call only those above it.
    functions: &[
        ("accounts", include_str!("../functions/accounts.sql")),
        ("groups", include_str!("../functions/groups.sql")),
        ("save", include_str!("../functions/save.sql")),
        ("find", include_str!("../functions/find.sql")),
        ("bulk", include_str!("../functions/bulk.sql")),
        ("index", include_str!("../functions/index.sql")),
    ],
};

/// How long one statement may take before the request fails with 503.
pub const CALL_LIMIT: Duration = Duration::from_secs(10);

/// Sessions that share the statements of all callers.
pub struct Sessions(Links);

impl Sessions {
    /// `limit`: how long one statement may take.
    pub fn new(database: &Database, count: usize, limit: Duration) -> Self {
        Self(Links::new(database, count, limit))
    }

    pub async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Refused> {
        self.0.query(sql, params).await.map_err(refusal)
    }
}

/// Sessions for slow statements. Each statement has a session to itself, and the server cancels one that
/// takes longer than its caller waits, or whose caller has left. Other statements do not queue behind
/// them. A statement keeps its permit until it has ended in the database.
pub struct ExclusiveSessions {
    database: Database,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Session>>,
    /// Sends cancel requests.
    cancels: Arc<Links>,
    limit: Duration,
}

/// A session inside a transaction, and its permit. If it is dropped before [`Self::ended`], the caller
/// has left: the statement is cancelled, and the permit is free when the database has ended it.
struct Running {
    session: Option<Session>,
    permit: Option<OwnedSemaphorePermit>,
    /// The server process; `None` before the transaction began.
    backend: Option<i32>,
    cancels: Arc<Links>,
    limit: Duration,
}

impl ExclusiveSessions {
    /// `limit`: how long one statement may take, including the wait for a session.
    pub fn new(database: &Database, count: usize, limit: Duration) -> Self {
        Self {
            database: database.clone(),
            permits: Arc::new(Semaphore::new(count.max(1))),
            idle: Mutex::default(),
            cancels: Arc::new(Links::new(database, 1, limit)),
            limit,
        }
    }

    pub async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Refused> {
        let late = || Refused::Unavailable(Unavailable::TimedOut(self.limit));
        let deadline = Instant::now() + self.limit;
        let waiting = Arc::clone(&self.permits).acquire_owned();
        let waiting = tokio::time::timeout_at(deadline.into(), waiting);
        let permit = waiting.await.map_err(|_| late())?.map_err(|_| late())?;
        let answering = async {
            let idle = self.idle.lock().pop();
            let session = match idle.filter(|session| !session.is_closed()) {
                Some(session) => session,
                None => self.database.connect().await.map_err(|error| {
                    Refused::Unavailable(Unavailable::NoConnection(error.to_string()))
                })?,
            };
            // Before this call times out: a statement without a caller would still cost the database.
            let left = deadline.saturating_duration_since(Instant::now()).mul_f32(0.9);
            let (cancels, limit) = (Arc::clone(&self.cancels), self.limit);
            let (session, permit) = (Some(session), Some(permit));
            let mut running = Running { session, permit, backend: None, cancels, limit };
            let asked = running.ask(left, sql, params).await;
            let session = running.ended();
            // Drops a session that failed, and its transaction with it.
            let rows = asked.map_err(|error: tokio_postgres::Error| {
                match error.code() == Some(&SqlState::QUERY_CANCELED) {
                    true => late(),
                    false => refusal(CallError::Database(error)),
                }
            })?;
            self.idle.lock().extend(session);
            Ok(rows)
        };
        match tokio::time::timeout_at(deadline.into(), answering).await {
            Ok(answer) => answer,
            Err(_) => Err(late()),
        }
    }
}

impl Running {
    async fn ask(
        &mut self,
        limit: Duration,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let Some(session) = &self.session else { return Ok(Vec::new()) };
        let begin = format!(
            "begin read only; set local statement_timeout = {}; select pg_backend_pid()",
            limit.as_millis().max(1)
        );
        let begun = session.simple_query(&begin).await?;
        self.backend = begun.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
            _ => None,
        });
        let rows = session.query_typed(sql, params).await?;
        session.batch_execute("commit").await?;
        Ok(rows)
    }

    /// The statement has ended, and its permit is free. Returns the session.
    fn ended(mut self) -> Option<Session> {
        self.permit.take();
        self.session.take()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let (Some(session), permit) = (self.session.take(), self.permit.take()) else { return };
        let (backend, limit) = (self.backend, self.limit);
        let cancels = Arc::clone(&self.cancels);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            if let Some(backend) = backend {
                // Before the rollback: until then the server process works for this transaction only,
                // also behind a pooler.
                let sql = "select pg_cancel_backend($1)";
                if let Err(error) = cancels.query(sql, &[(&backend, Type::INT4)]).await {
                    tracing::debug!(%error, "a search without a caller was not cancelled");
                }
            }
            // Waits until the statement has ended; its timeout ends it at the latest.
            let _ = tokio::time::timeout(limit, session.batch_execute("rollback")).await;
            drop((session, permit));
        });
    }
}

/// Maps the error codes of the SQL functions; every other error means that the database is unavailable.
fn refusal(error: CallError) -> Refused {
    let code = match &error {
        CallError::Database(error) => error.code().map(|code| code.code().to_owned()),
        _ => None,
    };
    match code.as_deref() {
        Some("AN001") => Refused::NameTaken,
        Some("AN002") => Refused::KeyReused,
        Some("AN003") => Refused::NotFound,
        Some("AN004") => Refused::HasReplies,
        Some("AN005") => Refused::NoSuchGroup,
        Some("AN006") => Refused::NotYours,
        Some("AN007") => Refused::ReplyElsewhere,
        Some("AN008") => Refused::AccountGone,
        Some("AN009") => Refused::ChangedMeanwhile,
        Some("AN010") => Refused::malformed(crate::save::NEEDS_TEXT),
        Some("AN011") => Refused::TooManyGroups,
        Some("AN012") => Refused::NoSuchPerson,
        Some("AN013") => Refused::OwnerLeaves,
        Some("AN014") => Refused::TooManyInvitations,
        Some("AN015") => Refused::TooManyBlocked,
        _ => Refused::Unavailable(match error {
            CallError::Database(error) => Unavailable::Database(error),
            CallError::TimedOut(limit) => Unavailable::TimedOut(limit),
            error => Unavailable::NoConnection(error.to_string()),
        }),
    }
}
