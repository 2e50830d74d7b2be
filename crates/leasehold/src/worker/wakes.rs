//! Wake-ups: NOTIFY makes the loop of a queue claim at once. Everything works without them.
//!
//! # Invariants
//! - Producers send NOTIFY only while a worker is idle, because it serializes their commits. A loop
//!   that falls asleep announces it by a lock on the session that listens; the lock ends with that
//!   session, so an announcement is valid for one session only.
//! - Nothing here keeps a loop from claiming for longer than [`CALL_LIMIT`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_postgres::types::Type;
use tokio_util::sync::CancellationToken;

use crate::database::{Database, Session};
use crate::error::ConnectError;
use crate::events::Events;
use crate::measure::process::Process;
use crate::service::{Duty, Service, run_every};

/// How long an announcement may take before the session is dropped.
const CALL_LIMIT: Duration = Duration::from_secs(2);
/// The wait before a session that ended is opened again.
const LISTEN_AGAIN: Duration = Duration::from_millis(50);
/// How often an announcement is tried while producers check at the same moment.
const TRIES: usize = 5;

/// The notifiers of the loops, by queue.
pub(crate) type Notifiers = HashMap<String, Arc<Notify>>;

/// Wakes the loop of one queue.
pub(crate) fn wake(notifiers: &Notifiers, queue: &str) {
    if let Some(notifier) = notifiers.get(queue) {
        notifier.notify_one();
    }
}

/// Listens for wake-ups. When the connection breaks, polling continues and this reconnects.
pub(super) struct Listening {
    pub(super) wakes: Arc<Wakes>,
    pub(super) database: Database,
    pub(super) process: Arc<Process>,
    pub(super) stop: CancellationToken,
}

impl Listening {
    pub(super) async fn run(self, events: Events) {
        let (duty, stop) = (Duty::new("listen for wake-ups", &events), self.stop.clone());
        run_every(self, duty, LISTEN_AGAIN, &stop).await;
    }
}

impl Service for Listening {
    type Error = ConnectError;

    /// Listens until the session ends or the worker stops.
    async fn turn(&mut self) -> Result<(), ConnectError> {
        let notifiers = Arc::clone(&self.wakes.notifiers);
        let connecting = self.database.listen(move |queue| wake(&notifiers, queue));
        let Some(connected) = self.stop.run_until_cancelled(connecting).await else {
            return Ok(());
        };
        let (session, ended) = connected?;
        let _listening = self.process.listens();
        self.wakes.open(session);
        // Jobs enqueued before LISTEN took effect would wait for a poll.
        self.wakes.notifiers.values().for_each(|notifier| notifier.notify_one());
        tokio::select! {
            _ = ended => {}
            () = self.wakes.broken.notified() => {}
            () = self.stop.cancelled() => {}
        }
        self.wakes.close();
        Ok(())
    }
}

/// The wake-ups of one worker.
pub(crate) struct Wakes {
    notifiers: Arc<Notifiers>,
    current: Mutex<ListenSession>,
    /// The session did not reply in time.
    broken: Notify,
}

#[derive(Default)]
struct ListenSession {
    session: Option<Arc<Session>>,
    /// Numbers the sessions, so that an announcement on a former one is known to be void.
    number: u64,
}

/// The announcement of an idle loop on one session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Announced(u64);

impl Wakes {
    pub(super) fn new(notifiers: Arc<Notifiers>) -> Self {
        Self { notifiers, current: Mutex::default(), broken: Notify::new() }
    }

    fn current(&self) -> MutexGuard<'_, ListenSession> {
        // A panic while it was locked leaves it consistent: every change is one call.
        self.current.lock()
    }

    fn open(&self, session: Session) {
        let mut current = self.current();
        current.number += 1;
        current.session = Some(Arc::new(session));
    }

    fn close(&self) {
        self.current().session = None;
    }

    fn session(&self) -> Option<(Arc<Session>, u64)> {
        let current = self.current();
        current.session.as_ref().map(|session| (Arc::clone(session), current.number))
    }

    /// Returns true if the announcement was made on the current session; producers see no other.
    pub(super) fn counts(&self, announced: Announced) -> bool {
        let current = self.current();
        current.session.is_some() && current.number == announced.0
    }

    /// Announces to producers that this queue is idle. `None`: the queue is paused, or no session
    /// listens and the loop must poll.
    pub(super) async fn announce(&self, queue: &str) -> Option<Announced> {
        let (session, number) = self.session()?;
        for _ in 0..TRIES {
            if self
                .call(&session, number, "select leasehold_internal.begin_idle($1)", queue)
                .await?
            {
                return Some(Announced(number));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        None
    }

    /// Withdraws the announcement: this queue needs no wake-ups. Does not wait for the reply.
    pub(super) fn withdraw(self: &Arc<Self>, queue: &Arc<str>, announced: Announced) {
        let Some((session, number)) = self.session() else { return };
        if number == announced.0 {
            let (wakes, queue) = (Arc::clone(self), Arc::clone(queue));
            tokio::spawn(async move {
                wakes.call(&session, number, "select leasehold_internal.end_idle($1)", &queue).await
            });
        }
    }

    /// Runs `sql` on the listening session. `None`: no reply, an error, or no value. A session without
    /// a reply is dropped, and every announcement on it ends.
    async fn call(&self, session: &Session, number: u64, sql: &str, queue: &str) -> Option<bool> {
        let params = [(&queue as _, Type::TEXT)];
        let asking = session.query_typed(sql, &params);
        match tokio::time::timeout(CALL_LIMIT, asking).await {
            Ok(Ok(rows)) => rows.first().and_then(|row| row.get(0)),
            // The refusal would be the same on every session: a new one would not help.
            Ok(Err(error)) if error.as_db_error().is_some() => {
                tracing::debug!(%error, "a worker cannot announce that it is idle; polling");
                None
            }
            _ => {
                if self.counts(Announced(number)) {
                    self.broken.notify_one();
                }
                None
            }
        }
    }
}
