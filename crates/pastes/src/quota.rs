//! How many bytes are stored and how many may be: bytes that wait for their upload, and all content.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::error::{CreateError, Unavailable};
use crate::service::{Inner, Pastes};

/// How often the bytes that wait for their upload are counted.
const STAGED_EVERY: Duration = Duration::from_secs(2);
/// How often all bytes are counted: that reads the whole table `pastes.contents`.
const STORED_EVERY: Duration = Duration::from_secs(30);

impl Pastes {
    /// Returns an error if `size` more bytes would exceed the quota.
    pub(crate) fn check_quota(&self, size: usize) -> Result<(), CreateError> {
        let Some(quota) = self.settings().quota else { return Ok(()) };
        let stored = self.0.stored.load(Ordering::Relaxed);
        match stored.saturating_add(size as u64) > quota {
            true => Err(CreateError::QuotaFull { quota }),
            false => Ok(()),
        }
    }

    /// Adds what this process stored, until all bytes are counted again. Bytes that were already stored
    /// count twice until then: it is better to refuse too early for half a minute than to accept too
    /// much.
    pub(crate) fn note_stored(&self, size: usize) {
        self.0.stored.fetch_add(size as u64, Ordering::Relaxed);
    }

    pub(crate) async fn count_stored(&self) -> Result<(), Unavailable> {
        let sql =
            "select coalesce(sum(size), 0)::bigint from pastes.contents where state <> 'GONE'";
        let rows = self.rows(sql, &[]).await?;
        let bytes: i64 = rows.first().map_or(0, |row| row.get(0));
        self.0.stored.store(u64::try_from(bytes).unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }
}

/// Counts the bytes that wait for their upload, until the service is dropped.
pub(crate) async fn watch_staging(service: Weak<Inner>) {
    const COUNT: &str = "select coalesce(sum(size), 0)::bigint from pastes.staged";
    loop {
        let Some(inner) = service.upgrade() else { return };
        // If the count fails, the last one stays.
        if let Ok(rows) = inner.sessions.query(COUNT, &[]).await {
            let bytes: i64 = rows.first().map_or(0, |row| row.get(0));
            inner.staged.store(u64::try_from(bytes).unwrap_or(0), Ordering::Relaxed);
        }
        drop(inner);
        tokio::time::sleep(STAGED_EVERY).await;
    }
}

/// Counts all bytes, until the service is dropped.
pub(crate) async fn watch_stored(service: Weak<Inner>) {
    loop {
        tokio::time::sleep(STORED_EVERY).await;
        let Some(inner) = service.upgrade() else { return };
        if let Err(error) = Pastes(inner).count_stored().await {
            tracing::debug!(%error, "the stored bytes were not counted");
        }
    }
}
