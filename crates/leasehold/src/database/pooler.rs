//! Poolers: detects whether a session belongs to this process alone.
//!
//! # Invariants
//! - The address, or the program, can declare a pooler in transaction mode (`?pooler=transaction`) or
//!   none (`?pooler=none`). Then nothing is detected.
//! - Otherwise two connections compare what they see. A direct connection keeps its backend and its
//!   settings from one transaction to the next, and shares neither with the other connection.
//! - Detection can be wrong if a pooler has many idle backends. The first prepared statement that the
//!   server does not know corrects it.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::{Database, timed};
use crate::error::{ConnectError, SchemaError};

/// What is between this program and PostgreSQL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pooler {
    /// Not declared: detect it on connecting.
    #[default]
    Detect,
    /// Nothing that shares sessions: a direct connection, or a pooler in session mode.
    None,
    /// A pooler that lends the session to another client after each transaction.
    Transaction,
}

impl std::str::FromStr for Pooler {
    type Err = ConnectError;

    fn from_str(text: &str) -> Result<Self, ConnectError> {
        match text {
            "detect" => Ok(Self::Detect),
            "none" | "session" => Ok(Self::None),
            "transaction" => Ok(Self::Transaction),
            other => Err(ConnectError::BadUrl(format!(
                "pooler is {other:?}; it must be detect, none, session or transaction"
            ))),
        }
    }
}

impl Pooler {
    /// Removes `pooler=…` from a URL or a `key=value` string: PostgreSQL's own drivers do not know it.
    pub(super) fn take_from(address: &str) -> Result<(String, Self), ConnectError> {
        let mut named = Self::Detect;
        let mut kept = |part: &&str| match part.strip_prefix("pooler=") {
            Some(value) => {
                named = value.trim_matches('\'').parse()?;
                Ok::<bool, ConnectError>(false)
            }
            None => Ok(true),
        };
        let mut parts = Vec::new();
        let rest = match address.split_once('?') {
            Some((base, query)) if address.contains("://") => {
                for part in query.split('&') {
                    if kept(&part)? {
                        parts.push(part);
                    }
                }
                match parts.is_empty() {
                    true => base.to_owned(),
                    false => format!("{base}?{}", parts.join("&")),
                }
            }
            _ if address.contains("://") => address.to_owned(),
            _ => {
                for part in words(address) {
                    if kept(&part)? {
                        parts.push(part);
                    }
                }
                parts.join(" ")
            }
        };
        Ok((rest, named))
    }
}

/// Splits a `key=value` string into words. A value in quotes may hold spaces.
fn words(text: &str) -> Vec<&str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(|letter: char| {
        let inside = quoted;
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\'' => quoted = !quoted,
            _ => {}
        }
        letter.is_whitespace() && !inside
    })
    .filter(|word| !word.is_empty())
    .collect()
}

/// What one transaction sees of its session.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    backend: i32,
    mark: String,
}

/// How often each connection reads its backend before a setting is left behind as a mark.
const TURNS: usize = 3;

impl Database {
    /// Detects whether a pooler shares sessions between transactions, unless that was declared.
    pub async fn probe_pooler(&self) -> Result<bool, ConnectError> {
        match self.pooler {
            Pooler::None => Ok(false),
            Pooler::Transaction => Ok(true),
            Pooler::Detect => {
                let shares = self.shares_sessions().await?;
                self.set_pooled(shares);
                Ok(shares)
            }
        }
    }

    async fn shares_sessions(&self) -> Result<bool, ConnectError> {
        let (one, two) = (self.open().await?, self.open().await?);
        let (first, second) = (read_marks(&one).await?, read_marks(&two).await?);
        // Alternate: a pooler that lends the most recently freed backend lends the same one to both,
        // and a pooler that lends them in order lends a different one each time.
        for _ in 0..TURNS {
            let (again, other) = (read_marks(&one).await?, read_marks(&two).await?);
            if again != first || other != second || again.backend == other.backend {
                return Ok(true);
            }
        }
        // The backends look unshared. A pooler that resets what it lends may still share them.
        let mark = format!("{:032x}", rand::random::<u128>());
        let leave = "select set_config('leasehold.probe', $1, false)";
        timed(one.query_typed(leave, &[(&mark, Type::TEXT)])).await?;
        let marked = Seen { backend: first.backend, mark };
        for _ in 0..TURNS {
            if read_marks(&two).await? != second || read_marks(&one).await? != marked {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

async fn read_marks(session: &Client) -> Result<Seen, ConnectError> {
    // Unnamed and typed: a pooler may send the next statement to another backend.
    let sql = "select pg_backend_pid(), coalesce(current_setting('leasehold.probe', true), '')";
    let rows = timed(session.query_typed(sql, &[])).await?;
    match rows.first() {
        Some(row) => Ok(Seen { backend: row.get(0), mark: row.get(1) }),
        None => Err(ConnectError::Schema(SchemaError::Missing)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(address: &str) -> (String, Pooler) {
        Pooler::take_from(address).expect("a pooler that is known")
    }

    #[test]
    fn b15_pooler_is_taken_out_of_a_url_and_everything_else_stays() {
        for (address, rest, named) in [
            ("postgres://me@a:1,b:2/db", "postgres://me@a:1,b:2/db", Pooler::Detect),
            ("postgres://a/db?pooler=transaction", "postgres://a/db", Pooler::Transaction),
            (
                "postgres://a/db?sslmode=disable&pooler=none&options=-c%20jit%3Doff",
                "postgres://a/db?sslmode=disable&options=-c%20jit%3Doff",
                Pooler::None,
            ),
            ("host=/run user=me pooler=session", "host=/run user=me", Pooler::None),
            (
                "password='a pooler=none \\' b' host=x pooler='transaction'",
                "password='a pooler=none \\' b' host=x",
                Pooler::Transaction,
            ),
        ] {
            assert_eq!(taken(address), (rest.to_owned(), named), "{address}");
        }
    }

    #[test]
    fn b15_unknown_pooler_is_refused_with_the_known_ones() {
        let error =
            Pooler::take_from("postgres://a/db?pooler=odd").expect_err("unknown").to_string();
        assert!(error.contains("odd") && error.contains("transaction"), "{error}");
    }
}
