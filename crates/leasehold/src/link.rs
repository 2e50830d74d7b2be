//! A link: one session that reconnects by itself.
//!
//! # What can go wrong
//! - The server stops: the call fails, the link drops the session, the next call opens a new one.
//!   The caller spaces attempts to connect, with jitter.
//! - The server does not reply: the call ends at its limit and the session is closed, because a late
//!   reply must never be taken for that of a later call. The effect of the statement is then unknown;
//!   callers ask `recover_claim` or `explain_finish`.
//! - The server replies, but the session is useless: it accepts no writes since a failover, it lost its
//!   prepared statements to a pooler, or its server is shutting down. The link drops the session too,
//!   and the next call looks for a server that accepts writes.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Statement};

use crate::database::{Database, Session};
use crate::error::CallError;

/// A value and its type.
pub type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// Runs statements: a link, or a stream that chooses one.
pub(crate) trait Statements: Sync {
    fn query(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> impl Future<Output = Result<Vec<Row>, CallError>> + Send;
}

impl Statements for Link {
    async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, CallError> {
        Self::query(self, sql, params).await
    }
}

/// One session that reconnects by itself. Statements of several callers share it.
pub struct Link {
    database: Database,
    session: Mutex<Option<Arc<Session>>>,
    limit: Duration,
    /// Run once on every new session, unless it is pooled.
    settings: Cow<'static, str>,
    /// Calls that have no reply yet.
    under_way: AtomicUsize,
}

impl Link {
    /// `limit`: how long a call may take.
    pub fn new(database: Database, limit: Duration) -> Self {
        Self::with_settings(database, limit, "")
    }

    /// Returns a link whose sessions have these settings. Behind a pooler they are left out: its
    /// sessions belong to other clients too.
    pub fn with_settings(
        database: Database,
        limit: Duration,
        settings: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (settings, under_way) = (settings.into(), AtomicUsize::new(0));
        Self { database, session: Mutex::new(None), limit, settings, under_way }
    }

    /// Runs one statement and returns its rows. Statements of several callers share the session and are
    /// pipelined.
    pub async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, CallError> {
        let _counted = Counted::new(&self.under_way);
        let session = self.session().await?;
        let call = async {
            if self.database.is_pooled() {
                return session.query_typed(sql, params).await;
            }
            let statement = session.statement(sql, params).await?;
            let values: Vec<_> = params.iter().map(|(value, _)| *value).collect();
            session.query(&statement, &values).await
        };
        let error = match tokio::time::timeout(self.limit, call).await {
            Ok(Ok(rows)) => return Ok(rows),
            Ok(Err(error)) => CallError::Database(error),
            Err(_) => CallError::TimedOut(self.limit),
        };
        if error.is_lost_statement() {
            self.database.lost_a_statement();
        }
        if error.ends_session() || session.is_closed() {
            self.forget(&session).await;
        }
        Err(error)
    }

    async fn session(&self) -> Result<Arc<Session>, CallError> {
        let mut slot = self.session.lock().await;
        if let Some(session) = slot.as_ref().filter(|session| !session.is_closed()) {
            return Ok(Arc::clone(session));
        }
        let fresh =
            self.database.connect().await.map_err(|error| CallError::Connect(Box::new(error)))?;
        if !self.settings.is_empty() && !self.database.is_pooled() {
            tokio::time::timeout(self.limit, fresh.batch_execute(&self.settings))
                .await
                .map_err(|_| CallError::TimedOut(self.limit))??;
        }
        let fresh = Arc::new(fresh);
        *slot = Some(Arc::clone(&fresh));
        Ok(fresh)
    }

    async fn forget(&self, broken: &Arc<Session>) {
        let mut slot = self.session.lock().await;
        if slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, broken)) {
            *slot = None;
        }
    }
}

/// Counts a call that has no reply yet, until it ends in any way.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A few links that share the statements. A session replies in the order of its statements, so a
/// statement goes to the link with the fewest before it: behind a slow one it would wait for that one
/// to end.
pub struct Links {
    links: Vec<Link>,
    next: AtomicUsize,
    /// Held while a stream chooses a link, so that two streams do not choose the same idle one.
    choosing: parking_lot::Mutex<()>,
}

impl Links {
    /// `limit`: how long a call may take.
    pub fn new(database: &Database, count: usize, limit: Duration) -> Self {
        Self::with_settings(database, count, limit, "")
    }

    /// See [`Link::with_settings`].
    pub(crate) fn with_settings(
        database: &Database,
        count: usize,
        limit: Duration,
        settings: &'static str,
    ) -> Self {
        let link = |_| Link::with_settings(database.clone(), limit, settings);
        let links = (0..count.max(1)).map(link).collect();
        Self { links, next: AtomicUsize::new(0), choosing: parking_lot::Mutex::default() }
    }

    /// Runs one statement on the link with the fewest in flight; among equals, round-robin.
    pub async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, CallError> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.links.len();
        let (before, from_turn) = self.links.split_at(turn);
        let by_turns = from_turn.iter().chain(before);
        let free = by_turns.min_by_key(|link| link.under_way.load(Ordering::Relaxed));
        free.unwrap_or(&self.links[turn]).query(sql, params).await
    }
}

/// A stream leaves a session that has not replied to it for this long.
const STUCK_AFTER: Duration = Duration::from_millis(500);

/// The statements of one queue, on sessions that several queues share.
///
/// # Invariants
/// - Statements that are in flight together are on one session, in order: two finishes of one lease on
///   two sessions would not see each other, and neither would end the lease.
/// - A stream with nothing in flight takes the link with the fewest statements, so it waits for another
///   stream only if every link is busy.
/// - A stream that gets no reply for [`STUCK_AFTER`] sends its next statements on another link. Those that
///   wait behind the stuck one fail as without a reply: the caller queries their outcome, and sends them
///   again on the other link. The server may still run them later, so only fenced statements belong here.
pub(crate) struct Stream {
    links: Arc<Links>,
    current: parking_lot::Mutex<Current>,
}

struct Current {
    link: usize,
    replies: Arc<parking_lot::Mutex<Replies>>,
}

/// What one choice of a link has sent and received. A session replies in the order of its statements.
struct Replies {
    sent: u64,
    received: u64,
    /// When the stream chose the link, or when the last reply came.
    progress: Instant,
}

impl Replies {
    fn none() -> Arc<parking_lot::Mutex<Self>> {
        Arc::new(parking_lot::Mutex::new(Self { sent: 0, received: 0, progress: Instant::now() }))
    }
}

impl Stream {
    pub(crate) fn new(links: &Arc<Links>) -> Self {
        let current = Current { link: 0, replies: Replies::none() };
        Self { links: Arc::clone(links), current: parking_lot::Mutex::new(current) }
    }

    /// Adds a statement to the link in use, or to a new one.
    fn enter(&self) -> InFlight<'_> {
        let mut current = self.current.lock();
        let is_free = {
            let replies = current.replies.lock();
            replies.received == replies.sent || replies.progress.elapsed() >= STUCK_AFTER
        };
        let _choosing = self.links.choosing.lock();
        if is_free {
            let links = self.links.links.iter().enumerate();
            let fewest = links.min_by_key(|(_, link)| link.under_way.load(Ordering::Relaxed));
            *current =
                Current { link: fewest.map_or(0, |(index, _)| index), replies: Replies::none() };
        }
        let position = {
            let mut replies = current.replies.lock();
            replies.sent += 1;
            replies.sent
        };
        let link = &self.links.links[current.link];
        let replies = Arc::clone(&current.replies);
        InFlight { link, position, replies, _counted: Counted::new(&link.under_way) }
    }
}

impl Statements for Stream {
    async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, CallError> {
        let in_flight = self.enter();
        tokio::select! {
            biased;
            reply = in_flight.link.query(sql, params) => reply,
            () = in_flight.behind_a_stuck_one() => Err(CallError::TimedOut(STUCK_AFTER)),
        }
    }
}

/// A statement of a stream, until it ends in any way.
struct InFlight<'a> {
    link: &'a Link,
    /// The number of the statement among those of this choice of a link, from 1.
    position: u64,
    replies: Arc<parking_lot::Mutex<Replies>>,
    _counted: Counted<'a>,
}

impl InFlight<'_> {
    /// Returns when the link has not replied for [`STUCK_AFTER`] and another statement is before this one.
    /// Never returns for the first: it may run, and its own limit ends it.
    async fn behind_a_stuck_one(&self) {
        loop {
            let (is_first, silent) = {
                let replies = self.replies.lock();
                (replies.received + 1 >= self.position, replies.progress.elapsed())
            };
            if is_first {
                return std::future::pending().await;
            }
            let Some(wait) = STUCK_AFTER.checked_sub(silent).filter(|wait| !wait.is_zero()) else {
                return;
            };
            tokio::time::sleep(wait).await;
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut replies = self.replies.lock();
        replies.received += 1;
        // A statement that leaves from behind another one is no reply of the link.
        if replies.received >= self.position {
            replies.progress = Instant::now();
        }
    }
}

impl Session {
    /// Returns the statement, prepared once per connection.
    async fn statement(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Statement, tokio_postgres::Error> {
        if let Some(known) = self.statements().get(sql) {
            return Ok(known.clone());
        }
        let types: Vec<Type> = params.iter().map(|(_, ty)| ty.clone()).collect();
        let statement = self.prepare_typed(sql, &types).await?;
        self.statements().insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}
