//! The worker's row for operators: alive, draining, stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use crate::link::Link;

const BEAT: Duration = Duration::from_secs(5);

/// Counters that the runtime shares with the keeper.
#[derive(Debug, Default)]
pub(crate) struct WorkerStats {
    /// Slots in which jobs run.
    pub(crate) busy: AtomicUsize,
    pub(crate) draining: AtomicBool,
}

impl WorkerStats {
    /// Counts the slots that one task holds.
    pub(super) fn holds(&self, before: usize, now: usize) {
        if now > before {
            self.busy.fetch_add(now - before, Ordering::Relaxed);
        } else if now < before {
            self.busy.fetch_sub(before - now, Ordering::Relaxed);
        }
    }
}

pub(crate) struct Registration {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) queues: Vec<String>,
    pub(crate) names: Vec<String>,
    pub(crate) slots: i32,
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) next: std::cell::Cell<Option<Instant>>,
    pub(crate) reported_draining: std::cell::Cell<bool>,
}

impl Registration {
    /// `claimed_ahead`: how many jobs wait for a slot.
    pub(crate) async fn beat(&self, link: &Link, claimed_ahead: usize) {
        let draining = self.stats.draining.load(Ordering::Relaxed);
        let now = Instant::now();
        let news = draining && !self.reported_draining.get();
        if !news && self.next.get().is_some_and(|next| now < next) {
            return;
        }
        self.next.set(Some(now + BEAT));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let pid = i32::try_from(std::process::id()).unwrap_or(0);
        let busy = i32::try_from(self.stats.busy.load(Ordering::Relaxed)).unwrap_or(i32::MAX);
        let claimed_ahead = i32::try_from(claimed_ahead).unwrap_or(i32::MAX);
        let version = env!("CARGO_PKG_VERSION");
        let beat = link
            .query(
                "select leasehold_internal.announce_worker($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
                &[
                    (&self.id, Type::TEXT),
                    (&self.name, Type::TEXT),
                    (&host, Type::TEXT),
                    (&pid, Type::INT4),
                    (&version, Type::TEXT),
                    (&self.queues, Type::TEXT_ARRAY),
                    (&self.names, Type::TEXT_ARRAY),
                    (&self.slots, Type::INT4),
                    (&busy, Type::INT4),
                    (&claimed_ahead, Type::INT4),
                    (&draining, Type::BOOL),
                ],
            )
            .await;
        // The registry is for operators only, so a beat that failed is not repeated.
        if beat.is_ok() {
            self.reported_draining.set(draining);
        }
    }

    pub(crate) async fn end(&self, link: &Link) {
        let _ = link
            .query("select leasehold_internal.unregister_worker($1)", &[(&self.id, Type::TEXT)])
            .await;
    }
}
