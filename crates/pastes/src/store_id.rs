//! Which store belongs to which database: both hold the same random id.
//!
//! A process with the wrong folder or bucket would upload where no reader looks, and report "deleted"
//! for objects that it never had. So the service compares the ids before anything else, and does not
//! start if they differ.
//!
//! # What can go wrong
//! - The process dies between writing the store and updating the table: the id is in the store, and the
//!   table does not say where. The next start finds the id there and continues.
//! - Two processes start for the first time with two stores: one locks the row while it writes its
//!   store, and the other then finds that the database already has a store.
//! - The store does not respond: the service starts anyway, because creating works without a store. It
//!   does not use the store before it has compared the ids.

use std::ops::ControlFlow;
use std::time::Duration;

use leasehold::Backoff;
use leasehold::database::Database;
use leasehold::service::retry_with_warnings;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::database::SCHEMA;
use crate::error::{StartError, Unavailable};
use crate::store::{Store, StoreError};

/// How long one statement may take.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// The wait before asking a store again that did not respond. Its jitter keeps processes that lost the store
/// together from asking together.
const RETRY: Backoff = Backoff::doubling(Duration::from_secs(5), Duration::from_secs(5));

/// Compares the store with the database. Returns an error if they do not belong together. A store that
/// does not respond is closed, and compared in the background until it does.
pub async fn compare_or_close(database: &Database, store: &Store) -> Result<(), StartError> {
    match compare(database, store).await {
        Ok(()) => Ok(()),
        Err(CompareError::Start(error)) => Err(error),
        Err(CompareError::Store(error)) => {
            tracing::warn!(%error, "the store does not respond; it is not used before it has been compared with the database");
            store.close();
            tokio::spawn(compare_later(database.clone(), store.downgrade()));
            Ok(())
        }
    }
}

/// Retries until the store has been compared or its last handle is dropped.
async fn compare_later(database: Database, store: crate::store::WeakStore) {
    let effect = "the store was not compared yet; no paste is uploaded or read";
    retry_with_warnings(RETRY, effect, || async {
        let Some(store) = store.upgrade() else { return ControlFlow::Break(()) };
        match compare(&database, &store).await {
            Ok(()) => {
                store.open();
                ControlFlow::Break(())
            }
            Err(CompareError::Start(error @ StartError::AnotherStore { .. })) => {
                tracing::error!(%error, "the store is not used; start the service with the store of its database");
                ControlFlow::Break(())
            }
            Err(CompareError::Store(error)) => ControlFlow::Continue(error.to_string()),
            Err(CompareError::Start(error)) => ControlFlow::Continue(error.to_string()),
        }
    })
    .await;
}

/// Why the comparison did not succeed.
enum CompareError {
    Start(StartError),
    Store(StoreError),
}

impl<E: Into<StartError>> From<E> for CompareError {
    fn from(error: E) -> Self {
        Self::Start(error.into())
    }
}

async fn compare(database: &Database, store: &Store) -> Result<(), CompareError> {
    let mut session = SCHEMA.session(database).await?;
    let comparing = async {
        let rows = session.query_typed(RECORD, &[]).await?;
        let (id, known) = record(&rows)?;
        if known.is_some() {
            // Nothing is written to the store, so the row needs no lock while the store responds.
            let found = store.read_id().await.map_err(CompareError::Store)?;
            check(store, &id, found, known)?;
            session.query_typed(MOVED, &[(&store.location(), Type::TEXT)]).await?;
            return Ok(());
        }
        // Lock the row until the store has the id, so that two first starts run one after the other.
        let transaction = session.transaction().await?;
        let rows = transaction.query_typed(&format!("{RECORD} for update"), &[]).await?;
        let (id, known) = record(&rows)?;
        let mut found = store.read_id().await.map_err(CompareError::Store)?;
        if found.is_none() && known.is_none() {
            store.write_id(&id).await.map_err(CompareError::Store)?;
            found = store.read_id().await.map_err(CompareError::Store)?;
        }
        check(store, &id, found, known)?;
        transaction.query_typed(MOVED, &[(&store.location(), Type::TEXT)]).await?;
        transaction.commit().await?;
        Ok(())
    };
    match tokio::time::timeout(CALL_LIMIT, comparing).await {
        Ok(compared) => compared,
        Err(_) => Err(StartError::from(Unavailable::TimedOut(CALL_LIMIT)).into()),
    }
}

/// Reads which store the database has.
const RECORD: &str = "select store_id, location from pastes.store";
/// Records where the store is.
const MOVED: &str = "update pastes.store set location = $1 where location is distinct from $1";

/// Returns the id of the database's store, and where it was seen.
fn record(rows: &[Row]) -> Result<(String, Option<String>), StartError> {
    let row = rows.first().ok_or(StartError::NotMigrated)?;
    let (id, location): (Uuid, Option<String>) = (row.get(0), row.get(1));
    Ok((id.to_string(), location))
}

fn check(
    store: &Store,
    id: &str,
    found: Option<String>,
    known: Option<String>,
) -> Result<(), StartError> {
    match found.as_deref() == Some(id) {
        true => Ok(()),
        false => Err(StartError::AnotherStore { location: store.location().to_owned(), known }),
    }
}
