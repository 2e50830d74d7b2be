use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;
use tokio_postgres::{Client, SimpleQueryMessage};

/// The connection of a script, for one step. Use it as a `Client` or as a `&mut Client`.
pub type Session = OwnedMutexGuard<Client>;

type Work = dyn Fn(Session) -> Pin<Box<dyn Future<Output = Result<Answer, StepError>> + Send>>
    + Send
    + Sync;

/// What one participant does, step by step, on its own connection.
#[derive(Clone)]
pub struct Script {
    pub(super) name: String,
    pub(super) steps: Vec<Step>,
}

#[derive(Clone)]
pub(super) struct Step {
    pub name: String,
    work: Arc<Work>,
}

impl Script {
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), steps: Vec::new() }
    }

    /// Adds one SQL statement, sent unchanged.
    pub fn sql(self, sql: impl Into<String>) -> Self {
        let sql = sql.into();
        let name = sql.split_whitespace().collect::<Vec<_>>().join(" ");
        self.step(name, move |client| {
            let sql = sql.clone();
            async move { Ok(Answer::from_messages(client.simple_query(&sql).await?)) }
        })
    }

    /// Adds `begin`, these statements as one step each, and `commit`.
    pub fn transaction(self, statements: &[&str]) -> Self {
        let begun = self.sql("begin");
        statements.iter().fold(begun, |script, sql| script.sql(*sql)).sql("commit")
    }

    /// Adds any work that uses only this connection. If it waits for a lock, the step counts as
    /// waiting.
    pub fn step<F, A>(
        mut self,
        name: impl Into<String>,
        work: impl Fn(Session) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<A, StepError>> + Send + 'static,
        A: Into<Answer>,
    {
        let work = Arc::new(move |session: Session| {
            let work = work(session);
            Box::pin(async move { work.await.map(Into::into) })
                as Pin<Box<dyn Future<Output = _> + Send>>
        });
        self.steps.push(Step { name: name.into(), work });
        self
    }

    pub fn len(&self) -> usize {
        self.steps.len()
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl Step {
    pub(super) fn run(
        &self,
        session: Session,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, StepError>> + Send>> {
        (self.work)(session)
    }
}

/// What a step returned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// The rows of a statement, in text.
    pub rows: Vec<Vec<Option<String>>>,
    /// How many rows a statement changed or returned.
    pub affected: u64,
}

impl Answer {
    /// Returns the first column of the first row.
    pub fn value(&self) -> Option<&str> {
        self.rows.first()?.first()?.as_deref()
    }

    fn from_messages(messages: Vec<SimpleQueryMessage>) -> Self {
        let mut answer = Self::default();
        for message in messages {
            match message {
                SimpleQueryMessage::Row(row) => {
                    answer.rows.push(
                        (0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect(),
                    );
                }
                SimpleQueryMessage::CommandComplete(count) => answer.affected = count,
                _ => {}
            }
        }
        answer
    }
}

impl From<()> for Answer {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl From<String> for Answer {
    fn from(value: String) -> Self {
        Self { rows: vec![vec![Some(value)]], affected: 0 }
    }
}

/// Why a step failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct StepError {
    /// The SQLSTATE, if the server sent one.
    pub code: Option<String>,
    pub message: String,
}

impl StepError {
    /// For errors that do not come straight from the server.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { code: None, message: message.to_string() }
    }
}

impl From<tokio_postgres::Error> for StepError {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(said) => {
                Self { code: Some(said.code().code().to_owned()), message: said.to_string() }
            }
            None => Self::new(format!("{error:?}")),
        }
    }
}
