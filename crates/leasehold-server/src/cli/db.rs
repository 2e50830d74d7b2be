//! One session per command, with a timeout per statement.

use std::time::Duration;

use jiff::Timestamp;
use leasehold::AdminError;
use leasehold::admin::{Batches, Dead, Jobs, Queues, Schedules, Workers};
use leasehold::database::Session;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::exit::Failure;

pub type Param<'a> = (&'a (dyn ToSql + Sync), Type);

pub struct Db {
    session: Session,
    timeout: Duration,
}

impl Db {
    pub fn new(session: Session, timeout: Duration) -> Self {
        Self { session, timeout }
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

    pub fn batches(&self) -> Batches<'_> {
        Batches::on(&self.session)
    }

    pub fn schedules(&self) -> Schedules<'_> {
        Schedules::on(&self.session)
    }

    pub fn workers(&self) -> Workers<'_> {
        Workers::on(&self.session)
    }

    /// Waits for a call of a handle, up to the timeout of the command.
    pub async fn within<T>(
        &self,
        call: impl Future<Output = Result<T, AdminError>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(self.timeout, call).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(self.timed_out()),
        }
    }

    fn timed_out(&self) -> Failure {
        let limit = crate::text::print_duration(self.timeout);
        Failure::timeout(format!("the database did not answer within {limit}"))
            .hint("narrow the filter, allow more with --timeout, or run: leasehold doctor")
    }

    /// Runs one statement. It names its types, so that it also works through a pooler.
    pub async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Failure> {
        match tokio::time::timeout(self.timeout, self.session.query_typed(sql, params)).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(self.timed_out()),
        }
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
