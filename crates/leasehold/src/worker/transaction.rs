//! `JobTx`: a transaction that includes the job's completion.

use std::time::Duration;

use super::context::Ctx;
use super::handler::FromAttempt;
use super::outcome::{JobError, Outcome};
use crate::database::{CONNECT_LIMIT, Database};
use crate::error::{ConnectError, FinishError};

/// A transaction for a handler. Its writes commit together with the job's completion, or not at all.
/// Dropped without [`JobTx::complete`] it is rolled back.
///
/// The worker keeps connections for these transactions: see [`Transactions`]. A job that gets none
/// returns after a few seconds, and the attempt is not counted.
///
/// ```no_run
/// # use leasehold::{Job, JobResult, worker::JobTx};
/// # #[derive(Job, serde::Serialize, serde::Deserialize)]
/// # #[job(name = "order.close")]
/// # struct CloseOrder { id: i64 }
/// async fn close_order(job: CloseOrder, tx: JobTx) -> JobResult {
///     tx.execute("update orders set state = 'closed' where id = $1", &[&job.id]).await?;
///     Ok(tx.complete().await?)
/// }
/// ```
pub struct JobTx {
    ctx: Ctx,
    connection: Option<deadpool_postgres::Client>,
}

/// Connections and limits of the transactions that handlers get as [`JobTx`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transactions {
    /// The most connections. `None`: one per slot of the worker, 32 at most. They are opened when
    /// handlers need them.
    pub connections: Option<usize>,
    /// How long a job waits for a free connection before it is snoozed. Default: 10 s.
    pub wait: Duration,
    /// How long the transaction may be idle. `None`: the job's run limit and 30 s.
    pub idle: Option<Duration>,
    /// How long a statement may take. `None`: the job's run limit and 30 s.
    pub statement: Option<Duration>,
    /// How long a statement may wait for a lock. Default: 10 s.
    pub lock: Duration,
}

impl Default for Transactions {
    fn default() -> Self {
        Self {
            connections: None,
            wait: CONNECT_LIMIT,
            idle: None,
            statement: None,
            lock: CONNECT_LIMIT,
        }
    }
}

/// The most connections per worker if the settings name no number.
const MOST_CONNECTIONS: usize = 32;

impl Transactions {
    /// The most connections, 1 to 10,000. Default: one per slot of the worker, 32 at most.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = Some(connections);
        self
    }

    /// How long a job waits for a free connection before it is snoozed. Default: 10 s.
    pub fn wait(mut self, time: Duration) -> Self {
        self.wait = time;
        self
    }

    /// How long the transaction may be idle. Default: the job's run limit and 30 s.
    pub fn idle(mut self, time: Duration) -> Self {
        self.idle = Some(time);
        self
    }

    /// How long a statement may take. Default: the job's run limit and 30 s.
    pub fn statement(mut self, time: Duration) -> Self {
        self.statement = Some(time);
        self
    }

    /// How long a statement may wait for a lock. Default: 10 s.
    pub fn lock(mut self, time: Duration) -> Self {
        self.lock = time;
        self
    }

    /// Returns what is wrong with these settings.
    pub(super) fn problem(&self) -> Option<String> {
        let connections = self.connections.filter(|count| !(1..=10_000).contains(count));
        if let Some(count) = connections {
            return Some(format!("transactions have {count} connections; use 1 to 10000"));
        }
        let too_short = |time: Duration| time < Duration::from_millis(1);
        let times = [Some(self.wait), self.idle, self.statement, Some(self.lock)];
        times
            .into_iter()
            .flatten()
            .any(too_short)
            .then(|| "a limit of transactions is shorter than 1 ms".to_owned())
    }

    /// Returns the SQL that begins a transaction under these limits. They end with it, so it works
    /// behind a pooler.
    fn begin(&self, run_limit: Duration) -> String {
        // 0 would mean no limit at all.
        let ms = |time: Duration| time.as_millis().clamp(1, i32::MAX as u128);
        // The run limit ends the handler first; this ends the transaction of a vanished process.
        let whole = run_limit.saturating_add(Duration::from_secs(30));
        format!(
            "begin; set local idle_in_transaction_session_timeout = {}; \
             set local statement_timeout = {}; set local lock_timeout = {}; \
             set local tcp_keepalives_idle = 30; set local tcp_keepalives_interval = 10; \
             set local tcp_keepalives_count = 3",
            ms(self.idle.unwrap_or(whole)),
            ms(self.statement.unwrap_or(whole)),
            ms(self.lock),
        )
    }
}

/// The connections of one worker for its handlers' transactions. Their own pool: enqueues do not wait
/// for handlers.
pub(crate) struct TransactionPool {
    pool: deadpool_postgres::Pool,
    settings: Transactions,
}

impl TransactionPool {
    pub(crate) fn new(
        database: &Database,
        settings: Transactions,
        slots: usize,
    ) -> Result<Self, ConnectError> {
        let size = settings.connections.unwrap_or_else(|| slots.clamp(1, MOST_CONNECTIONS));
        let pool = crate::engine::pool(database, size, settings.wait)?;
        Ok(Self { pool, settings })
    }
}

impl JobTx {
    /// Completes the job and commits. After this returns `Ok`, both are durable. In a handler:
    /// `Ok(tx.complete().await?)`.
    pub async fn complete(mut self) -> Result<Outcome, FinishError> {
        // Fails in an aborted transaction, whose COMMIT the server would end with a silent ROLLBACK.
        self.ctx.complete_on(&*self).await?;
        self.batch_execute("commit").await.map_err(FinishError::Database)?;
        // Only now may the connection return to the pool. Dropped earlier, by an error or because this
        // future is dropped, it is closed: it may be inside the transaction.
        drop(self.connection.take());
        Ok(Outcome::Complete)
    }
}

impl std::ops::Deref for JobTx {
    type Target = tokio_postgres::Client;

    fn deref(&self) -> &Self::Target {
        match &self.connection {
            Some(connection) => connection,
            None => unreachable!("`complete` takes the connection and `self` with it"),
        }
    }
}

impl Drop for JobTx {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            close(connection);
        }
    }
}

/// Closes a connection whose transaction is still open; the server then rolls back. It must not return
/// to the pool: the next borrower would work inside this transaction.
fn close(connection: deadpool_postgres::Client) {
    drop(deadpool_postgres::Object::take(connection));
}

impl<S: Sync> FromAttempt<S> for JobTx {
    async fn from_attempt(ctx: &Ctx, _: &S) -> Result<Self, JobError> {
        let transactions = ctx.0.shared.transactions.as_deref();
        let pool = transactions.map_or_else(|| ctx.engine().pool(), |own| &own.pool);
        let settings = transactions.map(|own| own.settings.clone()).unwrap_or_default();
        // The handler has not begun: none of this counts as its failure.
        let connection = pool.get().await.map_err(|error| {
            JobError::not_started(format_args!(
                "no connection for its transaction ({error}); if this happens often, raise \
                 `Transactions::connections` or lower the slots"
            ))
        })?;
        let transaction = Self { ctx: ctx.clone(), connection: Some(connection) };
        let begin = settings.begin(ctx.0.run_limit);
        let begun = tokio::time::timeout(CONNECT_LIMIT, transaction.batch_execute(&begin)).await;
        let problem = match begun {
            Ok(Ok(())) => return Ok(transaction),
            Ok(Err(error)) => crate::error::describe(&error),
            Err(_) => format!("no reply within {} s", CONNECT_LIMIT.as_secs()),
        };
        Err(JobError::not_started(format_args!("its transaction could not begin: {problem}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a27_limits_of_a_transaction_follow_the_run_limit() {
        let begin = Transactions::default().begin(Duration::from_secs(3600));
        assert!(begin.contains("idle_in_transaction_session_timeout = 3630000;"), "{begin}");
        assert!(begin.contains("statement_timeout = 3630000;"), "{begin}");
        let own = Transactions { idle: Some(Duration::from_secs(5)), ..Transactions::default() };
        assert!(own.begin(Duration::MAX).contains("session_timeout = 5000;"));
        assert!(own.begin(Duration::MAX).contains("statement_timeout = 2147483647;"));
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        assert_eq!(Transactions::default().problem(), None);
        for bad in [
            Transactions { connections: Some(0), ..Transactions::default() },
            Transactions { wait: Duration::ZERO, ..Transactions::default() },
        ] {
            assert!(bad.problem().is_some(), "{bad:?}");
        }
    }
}
