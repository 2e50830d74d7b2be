//! One session per command, with a timeout per statement.

use std::time::Duration;

use jiff::Timestamp;
use leasehold::AdminError;
use leasehold::admin::{
    Alarms, Batches, Dead, Jobs, Limits, Measurements, Mirrors, Queues, Schedules, Sweeps, Workers,
};
use leasehold::database::Session;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::exit::Failure;

pub type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// How long to wait for the reply of the server after it has ended a statement at its timeout.
const REPLY_LIMIT: Duration = Duration::from_secs(2);

pub struct Db {
    session: Session,
    timeout: Duration,
    /// The server ends a statement at the timeout.
    limited: bool,
}

impl Db {
    pub fn new(session: Session, timeout: Duration) -> Self {
        Self { session, timeout, limited: false }
    }

    /// Makes the server end each statement at the timeout: a command that has reported a failure must not
    /// take effect later. Not for a session that a pooler shares.
    pub async fn limited(mut self) -> Result<Self, Failure> {
        // 0 would mean no limit at all.
        let limit = self.timeout.as_millis().clamp(1, i32::MAX as u128);
        // One limit for the work and for the wait for locks.
        let sql = format!("set statement_timeout = {limit}; set lock_timeout = 0");
        match tokio::time::timeout(self.timeout, self.session.batch_execute(&sql)).await {
            Ok(set) => set?,
            Err(_) => return Err(self.timed_out()),
        }
        self.limited = true;
        Ok(self)
    }

    pub fn client(&self) -> &tokio_postgres::Client {
        &self.session
    }

    pub fn client_mut(&mut self) -> &mut tokio_postgres::Client {
        &mut self.session
    }

    /// The engine's handles on this session. Wait for their calls with [`within`](Self::within).
    pub fn jobs(&self) -> Jobs<'_> {
        Jobs::on(&self.session)
    }

    pub fn dead(&self) -> Dead<'_> {
        Dead::on(&self.session)
    }

    pub fn queues(&self) -> Queues<'_> {
        Queues::on(&self.session)
    }

    pub fn limits(&self) -> Limits<'_> {
        Limits::on(&self.session)
    }

    pub fn batches(&self) -> Batches<'_> {
        Batches::on(&self.session)
    }

    pub fn schedules(&self) -> Schedules<'_> {
        Schedules::on(&self.session)
    }

    pub fn workers(&self) -> Workers<'_> {
        Workers::on(&self.session)
    }

    pub fn sweeps(&self) -> Sweeps<'_> {
        Sweeps::on(&self.session)
    }

    pub fn mirrors(&self) -> Mirrors<'_> {
        Mirrors::on(&self.session)
    }

    pub fn alarms(&self) -> Alarms<'_> {
        Alarms::on(&self.session)
    }

    pub fn measurements(&self) -> Measurements<'_> {
        Measurements::on(&self.session)
    }

    /// Waits for a call of a handle, up to the timeout of the command.
    pub async fn within<T>(
        &self,
        call: impl Future<Output = Result<T, AdminError>>,
    ) -> Result<T, Failure> {
        self.wait(call).await
    }

    /// Like [`within`](Self::within), for a call with another error.
    pub async fn wait<T, E: Into<Failure>>(
        &self,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failure> {
        // Longer than the server's limit, so that its reply says what happened.
        let limit = self.timeout + if self.limited { REPLY_LIMIT } else { Duration::ZERO };
        match tokio::time::timeout(limit, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                let failure: Failure = error.into();
                Err(if failure.was_ended() { self.ended() } else { failure })
            }
            Err(_) => Err(self.timed_out()),
        }
    }

    /// The server ended the statement.
    fn ended(&self) -> Failure {
        let limit = crate::text::print_duration(self.timeout);
        Failure::timeout(format!(
            "the database ended the statement, which took longer than {limit}; the statement changed nothing"
        ))
        .hint("narrow the filter, allow more with --timeout, or run: leasehold doctor")
    }

    fn timed_out(&self) -> Failure {
        let limit = crate::text::print_duration(self.timeout);
        Failure::timeout(format!(
            "the database did not respond within {limit}; a change may still take effect"
        ))
        .hint("repeat the command, allow more with --timeout, or run: leasehold doctor")
    }

    /// Runs one statement. It names its types, so that it also works through a pooler.
    pub async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Failure> {
        self.wait(self.session.query_typed(sql, params)).await
    }

    /// Returns the first row of a result that always has one.
    pub async fn one(&self, sql: &str, params: &[Param<'_>]) -> Result<Row, Failure> {
        let rows = self.query(sql, params).await?;
        rows.into_iter().next().ok_or_else(|| {
            Failure::failed("the database returned no row for a statement that always has one")
                .hint("run: leasehold doctor")
        })
    }

    /// Returns the database's time, which decides when jobs are due.
    pub async fn now(&self) -> Result<Timestamp, Failure> {
        Ok(self.one("select statement_timestamp()", &[]).await?.get(0))
    }
}
