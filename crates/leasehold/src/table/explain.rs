//! Lets Postgres check a statement without running it.

use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::catalogue::TableError;
use crate::error::{CallError, describe};
use crate::link::{Link, Param};

/// Checks that Postgres accepts a statement whose parameters have these types, and returns the lines of its
/// plan. `explain` plans it with nulls and runs nothing; it needs no prepared statement, which a pooler
/// would lose. The error about a statement that Postgres refuses is the server's text.
pub async fn check_statement(
    link: &Link,
    sql: &str,
    types: &[Type],
) -> Result<Vec<String>, TableError> {
    let params: Vec<Param<'_>> = types.iter().map(|ty| (&Null as _, ty.clone())).collect();
    match link.query(&format!("explain {sql}"), &params).await {
        Ok(rows) => Ok(rows.iter().map(|row| row.get(0)).collect()),
        Err(CallError::Database(error)) if error.as_db_error().is_some() => {
            Err(TableError::Unfit(describe(&error)))
        }
        Err(error) => Err(error.into()),
    }
}

/// A null of any type.
#[derive(Debug)]
struct Null;

impl ToSql for Null {
    fn to_sql(
        &self,
        _: &Type,
        _: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        Ok(IsNull::Yes)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}
