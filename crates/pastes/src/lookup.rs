//! Finding pastes by code: lookups that arrive while a query is in flight share the next one.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use leasehold::link::Links;
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::code::ShortCode;
use crate::database::sessions;
use crate::error::Unavailable;
use crate::model::Status;
use crate::store::ObjectKey;

/// The most codes per query.
const MOST: usize = 256;
/// How many lookups may wait; beyond it readers get an error and retry later.
const WAITING: usize = 4096;

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

type Answer = Result<Option<Found>, Unavailable>;

struct Question {
    code: ShortCode,
    reply: oneshot::Sender<Answer>,
}

/// Looks up many codes per query.
pub struct Lookups {
    lanes: Vec<mpsc::Sender<Question>>,
    next: std::sync::atomic::AtomicUsize,
}

impl Lookups {
    /// Starts `lanes` tasks, each with a session of its own. They stop when this handle is dropped.
    pub fn start(database: &leasehold::database::Database, lanes: usize) -> Self {
        let lanes = (0..lanes.max(1))
            .map(|_| {
                let (sender, receiver) = mpsc::channel(WAITING);
                tokio::spawn(ask(sessions(database, 1), receiver));
                sender
            })
            .collect();
        Self { lanes, next: std::sync::atomic::AtomicUsize::new(0) }
    }

    pub async fn look(&self, code: &ShortCode) -> Answer {
        let turn = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % self.lanes.len();
        let (reply, answer) = oneshot::channel();
        let asked = match self.lanes.get(turn) {
            Some(lane) => lane.try_send(Question { code: code.clone(), reply }).is_ok(),
            None => false,
        };
        if !asked {
            return Err(Unavailable::NoConnection("too many readers are waiting".to_owned()));
        }
        answer.await.unwrap_or(Err(Unavailable::Answer("nobody answered")))
    }
}

async fn ask(sessions: Links, mut questions: mpsc::Receiver<Question>) {
    let mut batch = Vec::with_capacity(MOST);
    while questions.recv_many(&mut batch, MOST).await > 0 {
        let mut codes: Vec<&str> = batch.iter().map(|question| question.code.as_str()).collect();
        codes.sort_unstable();
        codes.dedup();
        let asked = Instant::now();
        let answer =
            sessions.query("select * from pastes.look($1)", &[(&codes, Type::TEXT_ARRAY)]).await;
        match answer {
            Ok(rows) => {
                let found: std::collections::HashMap<String, Found> =
                    rows.iter().map(|row| (row.get(0), read(row, asked))).collect();
                for question in batch.drain(..) {
                    let answer = found.get(question.code.as_str()).cloned();
                    // Sending fails only if the reader has left.
                    let _ = question.reply.send(Ok(answer));
                }
            }
            Err(error) => {
                let text = error.to_string();
                for question in batch.drain(..) {
                    let _ = question.reply.send(Err(Unavailable::NoConnection(text.clone())));
                }
            }
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
