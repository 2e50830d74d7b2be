//! Finding pastes by code: many lookups share one query, see [`crate::coalesce`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use leasehold::database::Database;
use leasehold::link::Links;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::coalesce::{Coalescer, Limits, NoResult};
use crate::code::ShortCode;
use crate::database::sessions;
use crate::error::Unavailable;
use crate::model::Status;
use crate::store::ObjectKey;

const LIMITS: Limits<ShortCode> = Limits {
    requests: 256,
    weight: usize::MAX,
    weight_of: |_| 1,
    // Beyond it readers get an error and retry later.
    waiting: 4096,
};

/// A live paste, without its bytes.
#[derive(Clone, Debug)]
pub struct Found {
    pub paste_id: Uuid,
    pub status: Status,
    pub key: ObjectKey,
    pub size: usize,
    pub language: Option<String>,
    pub burn: bool,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// Taken before the query was sent, so that `life` is never measured from too late a start.
    pub asked: Instant,
    /// The time until it expires, by the database's clock.
    pub life: Duration,
}

type Lookup = Result<Option<Found>, Unavailable>;

/// Looks up many codes per query.
pub struct Lookups(Coalescer<ShortCode, Lookup>);

impl Lookups {
    /// Starts `lanes` tasks, each with a session of its own. They stop when this handle is dropped.
    pub fn start(database: &Database, lanes: usize) -> Self {
        let handlers = (0..lanes).map(|_| {
            let sessions = Arc::new(sessions(database, 1));
            move |codes: Vec<ShortCode>| find_all(Arc::clone(&sessions), codes)
        });
        Self(Coalescer::start(LIMITS, handlers))
    }

    /// Returns the live paste of a code.
    pub async fn find(&self, code: &ShortCode) -> Lookup {
        match self.0.request(code.clone()).await {
            Ok(lookup) => lookup,
            Err(NoResult::Full(_)) => {
                Err(Unavailable::NoConnection("too many readers wait".to_owned()))
            }
            Err(NoResult::Unknown) => Err(Unavailable::Reply("the lookup was dropped")),
        }
    }
}

async fn find_all(sessions: Arc<Links>, codes: Vec<ShortCode>) -> Option<Vec<Lookup>> {
    let mut distinct: Vec<&str> = codes.iter().map(ShortCode::as_str).collect();
    distinct.sort_unstable();
    distinct.dedup();
    let asked = Instant::now();
    let sql = "select * from pastes.find_live($1)";
    match sessions.query(sql, &[(&distinct, Type::TEXT_ARRAY)]).await {
        Ok(rows) => {
            let found: HashMap<&str, Found> =
                rows.iter().map(|row| (row.get(0), read(row, asked))).collect();
            Some(codes.iter().map(|code| Ok(found.get(code.as_str()).cloned())).collect())
        }
        Err(error) => {
            let text = error.to_string();
            Some(codes.iter().map(|_| Err(Unavailable::NoConnection(text.clone()))).collect())
        }
    }
}

fn read(row: &tokio_postgres::Row, asked: Instant) -> Found {
    let (status, hash, size): (&str, String, i32) = (row.get(2), row.get(4), row.get(6));
    let (content_id, object_id): (i64, Uuid) = (row.get(3), row.get(5));
    let life: f64 = row.get(11);
    Found {
        paste_id: row.get(1),
        status: Status::of(status),
        key: ObjectKey { content_hash: hash, content_id, object_id },
        size: usize::try_from(size).unwrap_or(0),
        language: row.get(7),
        burn: row.get(8),
        created_at: row.get(9),
        expires_at: row.get(10),
        asked,
        life: Duration::try_from_secs_f64(life).unwrap_or(Duration::ZERO),
    }
}
