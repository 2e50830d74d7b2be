//! Statements of a test, in one line each. A statement that fails ends the test with its text.

#![allow(clippy::panic, reason = "a statement that fails ends the test")]

use tokio_postgres::Client;

/// Runs statements, separated by semicolons, without a result.
///
/// Panics if one of them fails.
pub async fn sql(client: &Client, statements: &str) {
    if let Err(error) = client.batch_execute(statements).await {
        panic!("{}: {statements}", leasehold::error::describe(&error));
    }
}

/// Returns the number in the first column of the only row, as of `select count(*) …`.
///
/// Panics if the statement fails, or if its result is no such number.
pub async fn count(client: &Client, statement: &str) -> i64 {
    match client.query_one(statement, &[]).await.and_then(|row| row.try_get(0)) {
        Ok(number) => number,
        Err(error) => panic!("{}: {statement}", leasehold::error::describe(&error)),
    }
}
