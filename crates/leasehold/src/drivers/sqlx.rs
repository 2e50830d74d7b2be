//! What the releases of sqlx have in common: everything but their types.
//!
//! # Invariants
//! - Statements have no name. sqlx names those it caches, with a cache of any size, and behind a
//!   pooler in transaction mode the next client of the session finds the name taken.
//!
//! # What can go wrong
//! - Outside a transaction, behind such a pooler: sqlx sends a statement in two parts, and they may
//!   reach two sessions. Begin a transaction.

/// Implements a driver for one release of sqlx: its crate, and its variant of the errors.
macro_rules! sqlx_driver {
    ($sqlx:ident, $variant:ident) => {
        impl crate::queue::enqueue::EnqueueOn for &mut $sqlx::PgConnection {
            async fn enqueue_one(
                self,
                draft: crate::queue::enqueue::Draft,
            ) -> Result<crate::queue::enqueue::Enqueued, crate::error::EnqueueError> {
                crate::drivers::enqueue(self, draft, crate::error::EnqueueError::$variant).await
            }
        }

        impl crate::drivers::Driver for &mut $sqlx::PgConnection {
            type Error = $sqlx::Error;

            async fn enqueue_row(
                self,
                values: crate::queue::enqueue::TextValues<'_>,
            ) -> Result<(i64, bool), Self::Error> {
                let query = $sqlx::query_as(crate::queue::enqueue::ENQUEUE);
                crate::queue::enqueue::bind_values!(sqlx, query, values)
                    .persistent(false)
                    .fetch_one(self)
                    .await
            }

            async fn returns_row(
                self,
                sql: &'static str,
                ids: [i64; 1],
                generation: i64,
                result: Option<String>,
            ) -> Result<bool, Self::Error> {
                let query = $sqlx::query(sql).bind(&ids[..]).bind(generation).persistent(false);
                let query = match result {
                    Some(result) => query.bind(result),
                    None => query,
                };
                Ok(query.fetch_optional(self).await?.is_some())
            }
        }

        impl crate::error::DriverError for $sqlx::Error {
            fn reply(&self) -> Option<crate::error::Reply<'_>> {
                let error = self.as_database_error()?;
                let error = error.try_downcast_ref::<$sqlx::postgres::PgDatabaseError>()?;
                Some(crate::error::Reply {
                    code: error.code(),
                    message: error.message(),
                    hint: error.hint(),
                })
            }
        }
    };
}

pub(super) use sqlx_driver;
