//! Many creates in one statement: those that arrive while one is in flight share the next.
//!
//! They then share one commit, one disk flush and one round trip. If the statement fails, each create
//! is retried by itself and gets its own result.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use leasehold::database::Database;
use leasehold::error::CallError;
use leasehold::link::Links;
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::code::ShortCode;
use crate::database::sessions;
use crate::store::ObjectKey;
use crate::upload::ATTEMPTS;

const CREATE_MANY: &str =
    "select * from pastes.create_many($1, $2, $3, $4, $5, $6, $7, make_interval(secs => $8), $9)";
/// The most pastes per statement.
const MOST: usize = 64;
/// The most bytes per statement, beyond its first paste.
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// How many creates may wait; beyond it they are sent one by one, limited only by the database.
const WAITING: usize = 256;

/// A paste that can share a statement.
pub struct Plain {
    pub code: ShortCode,
    pub paste_id: Uuid,
    pub hash: String,
    pub content: Bytes,
    pub life: Duration,
    pub language: Option<String>,
    pub burn: bool,
}

/// A created paste.
pub struct Made {
    pub expires_at: Timestamp,
    pub key: ObjectKey,
}

/// The result of a shared create. `None`: the statement was refused; retry this create by itself.
pub type Answer = Option<Made>;

pub struct Writer {
    lanes: Vec<mpsc::Sender<(Plain, oneshot::Sender<Answer>)>>,
    next: AtomicUsize,
}

impl Writer {
    /// Starts `lanes` tasks, each with a session of its own. They stop when this handle is dropped.
    pub fn start(database: &Database, lanes: usize, upload_after: Duration) -> Self {
        let lanes = (0..lanes.max(1))
            .map(|_| {
                let (sender, receiver) = mpsc::channel(WAITING);
                tokio::spawn(write(sessions(database, 1), receiver, upload_after));
                sender
            })
            .collect();
        Self { lanes, next: AtomicUsize::new(0) }
    }

    /// Creates a paste together with others. `Err`: the outcome is unknown.
    pub async fn create(&self, plain: Plain) -> Result<Answer, oneshot::error::RecvError> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.lanes.len();
        let (reply, answer) = oneshot::channel();
        let sent = match self.lanes.get(turn) {
            Some(lane) => lane.try_send((plain, reply)).is_ok(),
            None => false,
        };
        if sent { answer.await } else { Ok(None) }
    }
}

async fn write(
    sessions: Links,
    mut waiting: mpsc::Receiver<(Plain, oneshot::Sender<Answer>)>,
    upload_after: Duration,
) {
    let mut batch = Vec::with_capacity(MOST);
    while let Some(first) = waiting.recv().await {
        let mut bytes = first.0.content.len();
        batch.push(first);
        while batch.len() < MOST && bytes < MOST_BYTES {
            let Ok(next) = waiting.try_recv() else { break };
            bytes += next.0.content.len();
            batch.push(next);
        }
        match create_all(&sessions, &batch, upload_after).await {
            Ok(mut made) => {
                for (plain, reply) in batch.drain(..) {
                    // Sending fails only if the client has left; its paste is stored.
                    let _ = reply.send(made.remove(plain.code.as_str()));
                }
            }
            Err(error) if error.was_refused() => {
                for (_, reply) in batch.drain(..) {
                    let _ = reply.send(None);
                }
            }
            // The outcome is unknown: drop the senders, so that no client gets a success.
            Err(error) => {
                tracing::warn!(%error, pastes = batch.len(), "creates without an answer");
                batch.clear();
            }
        }
    }
}

async fn create_all(
    sessions: &Links,
    batch: &[(Plain, oneshot::Sender<Answer>)],
    upload_after: Duration,
) -> Result<std::collections::HashMap<String, Made>, CallError> {
    let of = |pick: fn(&Plain) -> &str| batch.iter().map(|(p, _)| pick(p)).collect::<Vec<&str>>();
    let (codes, hashes) = (of(|plain| plain.code.as_str()), of(|plain| &plain.hash));
    let ids: Vec<Uuid> = batch.iter().map(|(plain, _)| plain.paste_id).collect();
    let contents: Vec<&[u8]> = batch.iter().map(|(plain, _)| &plain.content[..]).collect();
    let lives: Vec<f64> = batch.iter().map(|(plain, _)| plain.life.as_secs_f64()).collect();
    let languages: Vec<Option<&str>> =
        batch.iter().map(|(plain, _)| plain.language.as_deref()).collect();
    let burns: Vec<bool> = batch.iter().map(|(plain, _)| plain.burn).collect();
    let rows = sessions
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
                (&ATTEMPTS, Type::INT4),
            ],
        )
        .await?;
    let hash_of: std::collections::HashMap<&str, &str> =
        codes.iter().copied().zip(hashes.iter().copied()).collect();
    let made = rows.iter().map(|row| {
        let (code, object_id): (String, Uuid) = (row.get(0), row.get(3));
        let content_hash = hash_of.get(code.as_str()).map_or("", |hash| hash).to_owned();
        let key = ObjectKey { content_hash, content_id: row.get(2), object_id };
        (code, Made { expires_at: row.get(1), key })
    });
    Ok(made.collect())
}
