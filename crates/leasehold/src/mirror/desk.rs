//! What everyone who works on a mirror in this process shares: its session, its store, its pace. Which
//! sets of the store are written is in `sets`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;
use tokio_postgres::types::Type;

use super::bulk::Bulk;
use super::declare::Mirror;
use super::pace::{Leave, Pace};
use super::prepare::{CALL_LIMIT, MirrorError, Prepared};
use super::target::{Target, TargetError};
use crate::engine::Leasehold;
use crate::link::Link;

/// Our statements go by the index of the key, also where statistics of a table that was just filled
/// say otherwise.
pub(crate) const SETTINGS: &str =
    "set enable_seqscan = off; set plan_cache_mode = force_generic_plan";

/// What is known about the store.
#[derive(Default)]
pub(super) struct Shared {
    pace: Mutex<Pace>,
    /// The second set has a pace of its own: nobody waits for it.
    second: Mutex<Pace>,
    pub(super) bulk: Bulk,
    /// Keys that the direct path left to the jobs.
    pub(super) dropped: AtomicU64,
    /// Keys that the direct path wrote.
    pub(super) direct: AtomicU64,
    /// When somebody's change came by last, as far as this process knows.
    live: Mutex<Option<Instant>>,
}

/// People come and go; while some came by in this time, more will.
const LIVELY: Duration = Duration::from_secs(120);

impl Shared {
    /// A change that is no bulk work came by.
    pub(super) fn seen_live(&self) {
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether people change rows these days.
    pub(super) fn is_live(&self) -> bool {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.is_some_and(|at| at.elapsed() < LIVELY)
    }

    pub(super) fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn second(&self) -> MutexGuard<'_, Pace> {
        self.second.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A mirror at work.
pub(crate) struct Desk {
    pub(super) mirror: Mirror,
    pub(super) link: Link,
    prepared: OnceCell<Prepared>,
    pub(super) opened: tokio::sync::Mutex<HashMap<String, Arc<dyn Target>>>,
    /// The store has said which set it searches, and has not failed since.
    pub(super) confirmed: AtomicBool,
}

impl Desk {
    pub(crate) fn new(engine: &Leasehold, mirror: Mirror) -> Self {
        let link = Link::with_settings(engine.database().clone(), CALL_LIMIT, SETTINGS);
        Self {
            mirror,
            link,
            prepared: OnceCell::new(),
            opened: Default::default(),
            confirmed: AtomicBool::new(false),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.mirror.name
    }

    pub(crate) fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Checks the mirror against its table, once.
    pub(crate) async fn prepared(&self) -> Result<&Prepared, MirrorError> {
        self.prepared
            .get_or_try_init(|| async {
                self.mirror.store()?;
                Prepared::new(&self.mirror, &self.link).await
            })
            .await
    }

    pub(super) fn pace(&self) -> MutexGuard<'_, Pace> {
        self.mirror.shared.pace()
    }

    /// Whether to ask the store now, and for how many rows.
    pub(super) fn leave(&self) -> Leave {
        self.pace().ask(self.mirror.batch, self.mirror.limit, Instant::now())
    }

    /// The store did what it was asked. If it had been away, what was put off meanwhile is due.
    pub(super) async fn succeeded(&self) {
        if !self.pace().succeeded(self.mirror.batch) {
            return;
        }
        tracing::info!(mirror = self.mirror.name, "the store answers again");
        let sql = "select leasehold.mirror_recovered($1, 5000)";
        loop {
            match self.link.query(sql, &[(&self.mirror.name, Type::TEXT)]).await {
                Ok(rows) if rows.first().is_some_and(|row| row.get::<_, i32>(0) >= 5000) => {}
                Ok(_) => return,
                // They come back by themselves, a little later.
                Err(error) => return tracing::debug!(%error, "nothing was brought forward"),
            }
        }
    }

    /// The store did not do it. Answers how long it is left alone. `asked`: when the call began.
    pub(super) fn failed(&self, error: &TargetError, asked: Instant) -> Duration {
        let is_late = self.pace().is_late(asked);
        let wait = self.missed(&mut self.pace(), error, asked);
        if !is_late {
            tracing::warn!(mirror = self.mirror.name, %error, ?wait, "the store is left alone");
        }
        wait
    }

    /// The same for whoever keeps a pace of its own.
    pub(super) fn missed(&self, pace: &mut Pace, error: &TargetError, asked: Instant) -> Duration {
        self.confirmed.store(false, Ordering::Relaxed);
        pace.failed(matches!(error, TargetError::Overloaded(_)), asked, Instant::now())
    }

    /// One call to the store, with the time limit that every call has.
    pub(super) async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, TargetError>>,
    ) -> Result<T, TargetError> {
        match tokio::time::timeout(self.mirror.limit, call).await {
            Ok(answer) => answer,
            Err(_) => {
                let limit = self.mirror.limit.as_millis();
                Err(TargetError::Overloaded(format!("no answer within {limit} ms")))
            }
        }
    }
}
