//! Where the statements of a handle run: on the engine's pool, on one session, or in a transaction.

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Transaction};

use crate::engine::Leasehold;
use crate::error::AdminError;

/// A value with its type. Statements name their types, so that they also work through a pooler.
pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

#[derive(Clone, Copy)]
pub(super) enum Session<'a> {
    Engine(&'a Leasehold),
    Client(&'a Client),
    Transaction(&'a Transaction<'a>),
}

impl Session<'_> {
    pub(super) async fn query(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, AdminError> {
        match self {
            Self::Engine(engine) => engine.query(sql, params).await,
            Self::Client(client) => Ok(client.query_typed(sql, params).await?),
            Self::Transaction(transaction) => Ok(transaction.query_typed(sql, params).await?),
        }
    }

    /// Returns the first value of the first row, for functions that always return one.
    pub(super) async fn value<T: tokio_postgres::types::FromSqlOwned + Default>(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<T, AdminError> {
        let rows = self.query(sql, params).await?;
        Ok(rows.first().map_or_else(T::default, |row| row.get(0)))
    }
}

/// Gives a handle its three constructors.
macro_rules! handle {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Clone, Copy)]
        pub struct $name<'a> {
            pub(super) session: $crate::admin::session::Session<'a>,
        }

        impl<'a> $name<'a> {
            pub(crate) fn of(engine: &'a $crate::Leasehold) -> Self {
                Self { session: $crate::admin::session::Session::Engine(engine) }
            }

            /// Uses one session of the caller instead of the engine's pool.
            pub fn on(client: &'a tokio_postgres::Client) -> Self {
                Self { session: $crate::admin::session::Session::Client(client) }
            }

            /// Runs every call in the caller's transaction. A call that fails aborts it.
            #[must_use = "the handle that is returned runs in the transaction"]
            pub fn within(self, transaction: &'a tokio_postgres::Transaction<'a>) -> Self {
                Self { session: $crate::admin::session::Session::Transaction(transaction) }
            }
        }
    };
}
pub(super) use handle;
