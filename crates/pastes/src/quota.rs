//! How many bytes are stored and how many may be: bytes that wait for their upload, and all content.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold::events::Events;
use leasehold::service::{CancellationToken, Duty, Service, run_every};

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

    async fn count_staged(&self) -> Result<(), Unavailable> {
        let sql = "select coalesce(sum(size), 0)::bigint from pastes.staged";
        let rows = self.rows(sql, &[]).await?;
        let bytes: i64 = rows.first().map_or(0, |row| row.get(0));
        self.0.staged.store(u64::try_from(bytes).unwrap_or(0), Ordering::Relaxed);
        Ok(())
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

/// Which bytes a [`Counter`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bytes {
    /// Those that wait for their upload.
    Staged,
    /// Those of all content.
    Stored,
}

/// Counts bytes again and again, until the paste service is dropped. If a count fails, the last one stays.
struct Counter {
    pastes: Weak<Inner>,
    bytes: Bytes,
    /// The bytes were just counted: the first turn only waits.
    counted: bool,
    stop: CancellationToken,
}

impl Service for Counter {
    type Error = Unavailable;

    async fn turn(&mut self) -> Result<(), Unavailable> {
        let Some(pastes) = self.pastes.upgrade().map(Pastes) else {
            self.stop.cancel();
            return Ok(());
        };
        if std::mem::take(&mut self.counted) {
            return Ok(());
        }
        match self.bytes {
            Bytes::Staged => pastes.count_staged().await,
            Bytes::Stored => pastes.count_stored().await,
        }
    }
}

/// Counts the bytes that wait for their upload, until the service is dropped.
pub(crate) async fn watch_staging(pastes: Weak<Inner>) {
    watch(pastes, Bytes::Staged, "count staged bytes", STAGED_EVERY).await;
}

/// Counts all bytes, until the service is dropped. They were counted at its start.
pub(crate) async fn watch_stored(pastes: Weak<Inner>) {
    watch(pastes, Bytes::Stored, "count stored bytes", STORED_EVERY).await;
}

async fn watch(pastes: Weak<Inner>, bytes: Bytes, name: &str, interval: Duration) {
    let stop = CancellationToken::new();
    let counted = bytes == Bytes::Stored;
    let counter = Counter { pastes, bytes, counted, stop: stop.clone() };
    run_every(counter, Duty::new(name, &Events::default()), interval, &stop).await;
}
