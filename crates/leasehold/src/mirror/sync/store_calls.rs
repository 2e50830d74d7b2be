//! Calls to the store: each with a timeout, as the throttle allows, and with its result recorded there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::source::Source;
use super::throttle::Permit;
use crate::error::one_line;
use crate::mirror::sets::TargetError;

/// How many deferred jobs one statement makes due.
const PIECE: i32 = 5000;

pub(crate) struct StoreCalls {
    source: Arc<Source>,
    /// The store has reported which set it searches, and has not failed since.
    confirmed: AtomicBool,
}

impl StoreCalls {
    pub(crate) fn new(source: &Arc<Source>) -> Self {
        Self { source: Arc::clone(source), confirmed: AtomicBool::new(false) }
    }

    /// Asks whether to call the set that is searched, and with how many rows. `Err`: retry after this
    /// time.
    pub(crate) fn ask(&self) -> Result<Permit<'_>, Duration> {
        let mirror = self.source.mirror();
        mirror.shared.throttle.ask(mirror.claim_size, Instant::now())
    }

    /// Returns a permit for a call that is made in any case: see [`super::StoreThrottle::observe`].
    pub(crate) fn observe(&self) -> Permit<'_> {
        self.source.mirror().shared.throttle.observe()
    }

    /// Makes one call to the store, with the mirror's timeout.
    pub(crate) async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, TargetError>>,
    ) -> Result<T, TargetError> {
        let limit = self.source.mirror().limit;
        tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
            Err(TargetError::Overloaded(format!("no response within {} ms", limit.as_millis())))
        })
    }

    /// Records a successful call. If the store had been down, jobs deferred meanwhile become due.
    pub(crate) async fn succeeded(&self, permit: Permit<'_>) {
        let mirror = self.source.mirror();
        if !permit.succeeded(mirror.claim_size) {
            return;
        }
        tracing::info!(mirror = mirror.name, "the store responds again");
        let sql = "select leasehold_internal.mirror_recovered($1, $2)";
        let params = [(&mirror.name as _, Type::TEXT), (&PIECE as _, Type::INT4)];
        loop {
            match self.source.query(sql, &params).await {
                Ok(rows) if rows.first().is_some_and(|row| row.get::<_, i32>(0) >= PIECE) => {}
                Ok(_) => return,
                // The jobs become due by themselves when their wait is over.
                Err(error) => {
                    return tracing::debug!(%error, "deferred jobs were not made due early; each runs when its wait is over");
                }
            }
        }
    }

    /// Records a failed call. Returns for how long the store gets no calls.
    pub(crate) fn failed(&self, permit: Permit<'_>, error: &TargetError) -> Duration {
        self.doubt();
        let overloaded = matches!(error, TargetError::Overloaded(_));
        let closed = permit.failed(overloaded, Instant::now());
        if closed.is_news {
            let (mirror, wait) = (&self.source.mirror().name, closed.wait);
            let error = one_line(&error.to_string());
            tracing::warn!(mirror, error, ?wait, "the store failed; it gets no calls for a while");
        }
        closed.wait
    }

    /// Returns whether the store has reported which set it searches, and has not failed since.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.confirmed.load(Ordering::Relaxed)
    }

    pub(crate) fn confirm(&self) {
        self.confirmed.store(true, Ordering::Relaxed);
    }

    /// Has the store asked again which set it searches: one that failed may have lost its sets.
    pub(crate) fn doubt(&self) {
        self.confirmed.store(false, Ordering::Relaxed);
    }
}

/// Fails if the store returned another number of results than it was asked for: such results cannot be
/// trusted.
pub(crate) fn answered(given: usize, asked: usize) -> Result<(), TargetError> {
    if given == asked {
        return Ok(());
    }
    Err(TargetError::Down(format!("it returned {given} results for {asked} rows")))
}
