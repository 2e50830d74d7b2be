//! How the service talks to Postgres: a few sessions that come back by themselves.

use std::time::Duration;

use leasehold::database::Database;
use leasehold::error::CallError;
use leasehold::link::{Links, Param};
use leasehold::migrate::{Migration, Schema};
use tokio_postgres::Row;

use crate::error::{Refused, Unavailable};

/// The tables and functions of the service, migrated beside the engine's; see [`crate::migrate`].
pub const SCHEMA: Schema = Schema {
    name: "annotations",
    migrations: &[Migration {
        version: 1,
        name: "tables",
        sql: include_str!("../migrations/0001_tables.sql"),
    }],
    functions: &[
        ("people", include_str!("../functions/010_people.sql")),
        ("save", include_str!("../functions/020_save.sql")),
        ("find", include_str!("../functions/030_find.sql")),
        ("bulk", include_str!("../functions/040_bulk.sql")),
    ],
};

/// How long one statement may take before the request is answered with 503.
pub const CALL_LIMIT: Duration = Duration::from_secs(10);

/// Sessions that statements are spread over.
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

/// What the functions refuse, by their five-letter codes; everything else is trouble.
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
        _ => Refused::Unavailable(match error {
            CallError::Database(error) => Unavailable::Database(error),
            CallError::TimedOut(limit) => Unavailable::TimedOut(limit),
            CallError::Connect(error) => Unavailable::NoConnection(error.to_string()),
        }),
    }
}
