//! Many creates in one statement: see [`crate::coalesce`]. If the statement is refused, each create is
//! retried by itself and gets its own result.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use leasehold::database::Database;
use leasehold::error::CallError;
use leasehold::link::Links;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::coalesce::{Coalescer, Limits, NoResult};
use crate::code::ShortCode;
use crate::database::sessions;
use crate::store::ObjectKey;

const CREATE_MANY: &str =
    "select * from pastes.create_many($1, $2, $3, $4, $5, $6, $7, make_interval(secs => $8))";

const LIMITS: Limits<NewRow> = Limits {
    requests: 64,
    weight: 4 * 1024 * 1024,
    weight_of: |row| row.content.len(),
    // Beyond it creates are sent one by one, limited only by the database.
    waiting: 256,
};

/// A paste that can share a statement.
pub struct NewRow {
    pub code: ShortCode,
    pub paste_id: Uuid,
    pub hash: String,
    pub content: Bytes,
    pub life: Duration,
    pub language: Option<String>,
    pub burn: bool,
}

/// A created paste.
pub struct CreatedRow {
    pub expires_at: Timestamp,
    pub key: ObjectKey,
}

/// The outcome of a create in a shared statement.
pub enum SharedCreate {
    Created(CreatedRow),
    /// It was not created with the others: create it by itself.
    Alone,
    /// The database did not respond. Whether the paste was created is unknown.
    Unknown,
}

pub struct Writer(Coalescer<NewRow, Option<CreatedRow>>);

impl Writer {
    /// Starts `lanes` tasks, each with a session of its own. They stop when this handle is dropped.
    pub fn start(database: &Database, lanes: usize, upload_after: Duration) -> Self {
        let handlers = (0..lanes).map(|_| {
            let sessions = Arc::new(sessions(database, 1));
            move |rows: Vec<NewRow>| create_all(Arc::clone(&sessions), rows, upload_after)
        });
        Self(Coalescer::start(LIMITS, handlers))
    }

    /// Creates a paste together with others.
    pub async fn create(&self, row: NewRow) -> SharedCreate {
        match self.0.request(row).await {
            Ok(Some(created)) => SharedCreate::Created(created),
            Ok(None) | Err(NoResult::Full(_)) => SharedCreate::Alone,
            Err(NoResult::Unknown) => SharedCreate::Unknown,
        }
    }
}

/// Returns the created pastes in the order of the rows; all `None` if the statement was refused.
async fn create_all(
    sessions: Arc<Links>,
    rows: Vec<NewRow>,
    upload_after: Duration,
) -> Option<Vec<Option<CreatedRow>>> {
    match send(&sessions, &rows, upload_after).await {
        Ok(mut created) => Some(rows.iter().map(|row| created.remove(row.code.as_str())).collect()),
        Err(error) if error.was_refused() => Some(rows.iter().map(|_| None).collect()),
        Err(error) => {
            tracing::warn!(%error, pastes = rows.len(), "the database did not respond to creates");
            None
        }
    }
}

async fn send(
    sessions: &Links,
    rows: &[NewRow],
    upload_after: Duration,
) -> Result<HashMap<String, CreatedRow>, CallError> {
    let text = |pick: fn(&NewRow) -> &str| rows.iter().map(pick).collect::<Vec<&str>>();
    let (codes, hashes) = (text(|row| row.code.as_str()), text(|row| &row.hash));
    let ids: Vec<Uuid> = rows.iter().map(|row| row.paste_id).collect();
    let contents: Vec<&[u8]> = rows.iter().map(|row| &row.content[..]).collect();
    let lives: Vec<f64> = rows.iter().map(|row| row.life.as_secs_f64()).collect();
    let languages: Vec<Option<&str>> = rows.iter().map(|row| row.language.as_deref()).collect();
    let burns: Vec<bool> = rows.iter().map(|row| row.burn).collect();
    let created = sessions
        .query(
            CREATE_MANY,
            &[
                (&codes, Type::TEXT_ARRAY),
                (&ids, Type::UUID_ARRAY),
                (&hashes, Type::TEXT_ARRAY),
                (&contents, Type::BYTEA_ARRAY),
                (&lives, Type::FLOAT8_ARRAY),
                (&languages, Type::TEXT_ARRAY),
                (&burns, Type::BOOL_ARRAY),
                (&upload_after.as_secs_f64(), Type::FLOAT8),
            ],
        )
        .await?;
    let hash_of: HashMap<&str, &str> = codes.iter().copied().zip(hashes.iter().copied()).collect();
    let created = created.iter().map(|row| {
        let (code, object_id): (String, Uuid) = (row.get(0), row.get(3));
        let content_hash = hash_of.get(code.as_str()).map_or("", |hash| hash).to_owned();
        let key = ObjectKey { content_hash, content_id: row.get(2), object_id };
        (code, CreatedRow { expires_at: row.get(1), key })
    });
    Ok(created.collect())
}
