//! One session for one command: every question has a time limit.

use std::time::Duration;

use jiff::Timestamp;
use leasehold::database::Session;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::exit::Failure;

pub type Param<'a> = (&'a (dyn ToSql + Sync), Type);

pub struct Db {
    session: Session,
    patience: Duration,
}

impl Db {
    pub fn new(session: Session, patience: Duration) -> Self {
        Self { session, patience }
    }

    pub fn client(&self) -> &tokio_postgres::Client {
        &self.session
    }

    pub fn client_mut(&mut self) -> &mut tokio_postgres::Client {
        &mut self.session
    }

    /// Runs one statement. Its types are named, so that it also works through a pooler.
    pub async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Failure> {
        match tokio::time::timeout(self.patience, self.session.query_typed(sql, params)).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Failure::timeout(format!(
                "the database did not answer within {}",
                crate::text::length(self.patience)
            ))
            .hint("narrow the filter, allow more with --patience, or look at: leasehold doctor")),
        }
    }

    /// The first row of an answer that has one.
    pub async fn one(&self, sql: &str, params: &[Param<'_>]) -> Result<Row, Failure> {
        let rows = self.query(sql, params).await?;
        rows.into_iter().next().ok_or_else(|| {
            Failure::failed("the database answered with no row where there is always one")
                .hint("run: leasehold doctor")
        })
    }

    /// What time it is for the jobs.
    pub async fn now(&self) -> Result<Timestamp, Failure> {
        Ok(self.one("select statement_timestamp()", &[]).await?.get(0))
    }
}
