//! What all tasks of this process that work on one mirror share: its database session, its store and
//! its throttle. `sets` decides which sets of the store are written.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;
use tokio_postgres::types::Type;

use super::bulk::Bulk;
use super::declare::Mirror;
use super::prepare::{CALL_LIMIT, MirrorError, Prepared};
use super::target::{Target, TargetError};
use super::throttle::{Permit, StoreThrottle};
use crate::engine::Leasehold;
use crate::link::Link;

/// Makes the mirror's statements use the key's index, even where statistics of a table that was just
/// filled suggest a sequential scan.
pub(crate) const SETTINGS: &str =
    "set enable_seqscan = off; set plan_cache_mode = force_generic_plan";

/// What this process knows about the store.
#[derive(Default)]
pub(super) struct Shared {
    throttle: Mutex<StoreThrottle>,
    /// The second set has its own throttle: writes to the set that is searched do not wait for it.
    second: Mutex<StoreThrottle>,
    pub(super) bulk: Bulk,
    /// Keys that the direct path left to the jobs.
    pub(super) dropped: AtomicU64,
    /// Keys that the direct path wrote.
    pub(super) direct: AtomicU64,
    /// When this process last saw a change that is not bulk work.
    live: Mutex<Option<Instant>>,
}

/// A change by a user within this window keeps bulk work throttled.
const INTERACTIVE_WINDOW: Duration = Duration::from_secs(120);

impl Shared {
    /// Records a change that is not bulk work.
    pub(super) fn seen_live(&self) {
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Returns whether users have changed rows within the last two minutes.
    pub(super) fn is_live(&self) -> bool {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.is_some_and(|at| at.elapsed() < INTERACTIVE_WINDOW)
    }

    pub(super) fn throttle(&self) -> MutexGuard<'_, StoreThrottle> {
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn second(&self) -> MutexGuard<'_, StoreThrottle> {
        self.second.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A mirror at run time.
pub(crate) struct MirrorRuntime {
    pub(super) mirror: Mirror,
    pub(super) link: Link,
    prepared: OnceCell<Prepared>,
    pub(super) opened: tokio::sync::Mutex<HashMap<String, Arc<dyn Target>>>,
    /// The store has reported which set it searches, and has not failed since.
    pub(super) confirmed: AtomicBool,
}

impl MirrorRuntime {
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

    /// Checks the mirror against its table, once, and returns the result.
    pub(crate) async fn prepared(&self) -> Result<&Prepared, MirrorError> {
        self.prepared
            .get_or_try_init(|| async {
                self.mirror.store()?;
                Prepared::new(&self.mirror, &self.link).await
            })
            .await
    }

    pub(super) fn throttle(&self) -> MutexGuard<'_, StoreThrottle> {
        self.mirror.shared.throttle()
    }

    /// Returns whether to call the store now, and with how many rows.
    pub(super) fn permit(&self) -> Permit {
        self.throttle().ask(self.mirror.batch, self.mirror.limit, Instant::now())
    }

    /// Records a successful call. If the store had been down, jobs deferred meanwhile become due.
    pub(super) async fn succeeded(&self) {
        if !self.throttle().succeeded(self.mirror.batch) {
            return;
        }
        tracing::info!(mirror = self.mirror.name, "the store answers again");
        let sql = "select leasehold.mirror_recovered($1, 5000)";
        loop {
            match self.link.query(sql, &[(&self.mirror.name, Type::TEXT)]).await {
                Ok(rows) if rows.first().is_some_and(|row| row.get::<_, i32>(0) >= 5000) => {}
                Ok(_) => return,
                // The jobs become due by themselves when their wait is over.
                Err(error) => return tracing::debug!(%error, "nothing was brought forward"),
            }
        }
    }

    /// Records a failed call and returns how long the store gets no calls. `asked`: when the call
    /// began.
    pub(super) fn failed(&self, error: &TargetError, asked: Instant) -> Duration {
        let is_late = self.throttle().is_late(asked);
        let wait = self.missed(&mut self.throttle(), error, asked);
        if !is_late {
            let error = crate::error_text::one_line(&error.to_string());
            tracing::warn!(mirror = self.mirror.name, error, ?wait, "the store is left alone");
        }
        wait
    }

    /// The same for a caller with its own throttle.
    pub(super) fn missed(
        &self,
        throttle: &mut StoreThrottle,
        error: &TargetError,
        asked: Instant,
    ) -> Duration {
        self.confirmed.store(false, Ordering::Relaxed);
        throttle.failed(matches!(error, TargetError::Overloaded(_)), asked, Instant::now())
    }

    /// Makes one call to the store, with the mirror's timeout.
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
