//! How the service talks to Postgres: a few sessions that reconnect by themselves.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold::database::{Database, Session};
use leasehold::error::CallError;
use leasehold::link::{Links, Param};
use leasehold::migrate::{Migration, Schema};
use tokio::sync::Semaphore;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

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
    ],
    functions: &[
        ("people", include_str!("../functions/010_people.sql")),
        ("groups", include_str!("../functions/015_groups.sql")),
        ("save", include_str!("../functions/020_save.sql")),
        ("find", include_str!("../functions/030_find.sql")),
        ("bulk", include_str!("../functions/040_bulk.sql")),
        ("index", include_str!("../functions/050_index.sql")),
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
/// takes longer than its caller waits. Other statements do not queue behind them.
pub struct Apart {
    database: Database,
    places: Semaphore,
    idle: Mutex<Vec<Session>>,
    limit: Duration,
}

impl Apart {
    /// `limit`: how long one statement may take, including the wait for a session.
    pub fn new(database: &Database, count: usize, limit: Duration) -> Self {
        let (places, idle) = (Semaphore::new(count.max(1)), Mutex::default());
        Self { database: database.clone(), places, idle, limit }
    }

    pub async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Refused> {
        let late = || Refused::Unavailable(Unavailable::TimedOut(self.limit));
        let deadline = Instant::now() + self.limit;
        let waiting = tokio::time::timeout_at(deadline.into(), self.places.acquire());
        let _place = waiting.await.map_err(|_| late())?.map_err(|_| late())?;
        let answering = async {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let session = match idle.filter(|session| !session.is_closed()) {
                Some(session) => session,
                None => self.database.connect().await.map_err(|error| {
                    Refused::Unavailable(Unavailable::NoConnection(error.to_string()))
                })?,
            };
            // Before this call times out: a statement without a caller would still cost the database.
            let left = deadline.saturating_duration_since(Instant::now()).mul_f32(0.9);
            let begin = format!(
                "begin read only; set local statement_timeout = {}",
                left.as_millis().max(1)
            );
            let asked = async {
                session.batch_execute(&begin).await?;
                let rows = session.query_typed(sql, params).await?;
                session.batch_execute("commit").await?;
                Ok(rows)
            };
            // Drops a session that failed, and its transaction with it.
            let rows = asked.await.map_err(|error: tokio_postgres::Error| {
                match error.code() == Some(&SqlState::QUERY_CANCELED) {
                    true => late(),
                    false => refusal(CallError::Database(error)),
                }
            })?;
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
            Ok(rows)
        };
        match tokio::time::timeout_at(deadline.into(), answering).await {
            Ok(answer) => answer,
            Err(_) => Err(late()),
        }
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
