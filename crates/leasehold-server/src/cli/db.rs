//! One session per command, with a timeout per statement.

use std::time::Duration;

use jiff::Timestamp;
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

    /// Runs one statement. It names its types, so that it also works through a pooler.
    pub async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Failure> {
        match tokio::time::timeout(self.timeout, self.session.query_typed(sql, params)).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Failure::timeout(format!(
                "the database did not answer within {}",
                crate::text::length(self.timeout)
            ))
            .hint("narrow the filter, allow more with --timeout, or look at: leasehold doctor")),
        }
    }

    /// Returns the first row of a result that always has one.
    pub async fn one(&self, sql: &str, params: &[Param<'_>]) -> Result<Row, Failure> {
        let rows = self.query(sql, params).await?;
        rows.into_iter().next().ok_or_else(|| {
            Failure::failed("the database answered with no row where there is always one")
                .hint("run: leasehold doctor")
        })
    }

    /// Returns the database's time, which decides when jobs are due.
    pub async fn now(&self) -> Result<Timestamp, Failure> {
        Ok(self.one("select statement_timestamp()", &[]).await?.get(0))
    }
}
