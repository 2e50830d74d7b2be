//! Gates: limit which worker may claim rows at a time.
//!
//! Many workers that claim at the same moment skip each other's locked rows; a gate admits one of them
//! at a time instead. That is all it does.
//!
//! # Invariants
//! - No guarantee depends on it. A gate that admits every claim changes only the speed. If a gate admits
//!   none, claims bypass it after a bounded wait.
//! - A claim holds it while its statement runs, never while its rows are handled.
//!
//! # What can go wrong
//! - The service behind it does not respond: a call takes 200 ms at most, and after three of those,
//!   claims bypass the gate for 15 s.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backoff::{Backoff, Jitter, Waits};
use crate::breaker::{Breaker, BreakerPermit};

/// The timeout of a call to a gate.
const CALL_LIMIT: Duration = Duration::from_millis(200);
/// How long a loop waits for a busy gate before it claims without it.
const GATE_TIMEOUT: Duration = Duration::from_secs(1);
/// The wait before a busy gate is asked again. It varies by half: loops that met must not meet again.
const BUSY_WAIT: Backoff = Backoff::doubling(Duration::from_millis(3), Duration::from_millis(40))
    .jitter(Jitter::Share(0.5));
/// After this many failed calls or timed-out waits in a row, claims bypass the gate for `OPEN_FOR`.
const FAILURES: u32 = 3;
const OPEN_FOR: Duration = Duration::from_secs(15);

/// The response of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The claim may proceed.
    Granted,
    /// Another claim is inside; ask again in a moment.
    Busy,
    /// The gate cannot decide.
    Unavailable,
}

/// The future of [`ClaimGate::ask`].
pub type Asking<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;
/// The future of [`ClaimGate::leave`].
pub type Leaving<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A custom gate. `pass` is new for every entry.
pub trait ClaimGate: Send + Sync + 'static {
    /// Asks to enter. A call that takes longer than 200 ms counts as unavailable.
    fn ask<'a>(&'a self, sweep: &'a str, pass: &'a str) -> Asking<'a>;
    /// Leaves the gate. Called once for each `ask` that was granted.
    fn leave<'a>(&'a self, sweep: &'a str, pass: &'a str) -> Leaving<'a>;
}

/// What spreads the claims of a sweep out.
#[derive(Clone)]
pub struct Gate {
    kind: Kind,
    breaker: Arc<Breaker>,
}

#[derive(Clone)]
enum Kind {
    None,
    Advisory,
    Custom(Arc<dyn ClaimGate>),
}

impl Gate {
    /// Returns no gate: claims skip each other's rows.
    pub fn none() -> Self {
        Self::of(Kind::None)
    }

    /// Returns a gate by an advisory lock of Postgres, `(7306, a number made from the sweep's name)`,
    /// held for the duration of the claim's statement.
    pub fn advisory() -> Self {
        Self::of(Kind::Advisory)
    }

    /// Returns a gate of your own making. Correctness never depends on it: claims skip locked rows.
    pub fn custom(gate: Arc<dyn ClaimGate>) -> Self {
        Self::of(Kind::Custom(gate))
    }

    fn of(kind: Kind) -> Self {
        Self { kind, breaker: Arc::new(Breaker::new(FAILURES, FAILURES, OPEN_FOR)) }
    }

    /// Starts one claim's way through the gate.
    pub(super) fn approach(&self) -> Approach<'_> {
        let now = Instant::now();
        Approach {
            gate: self,
            permit: self.breaker.permit(now).ok(),
            until: now + GATE_TIMEOUT,
            waits: BUSY_WAIT.waits(),
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::None => "Gate::none",
            Kind::Advisory => "Gate::advisory",
            Kind::Custom(_) => "Gate::custom",
        })
    }
}

/// How a claim passes the gate.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// Without a permit.
    Free,
    /// With a permit, which must be returned.
    Pass(String),
    /// With the advisory lock in the claim's own statement.
    Locking,
}

pub(super) struct Approach<'a> {
    gate: &'a Gate,
    /// `None`: the breaker is open, or the result was already reported.
    permit: Option<BreakerPermit<'a>>,
    until: Instant,
    waits: Waits,
}

impl Approach<'_> {
    /// Waits to be admitted, for about `GATE_TIMEOUT` at most.
    pub(super) async fn enter(&mut self, sweep: &str) -> Entry {
        let gate = match &self.gate.kind {
            Kind::None => return Entry::Free,
            _ if self.permit.is_none() => return Entry::Free,
            Kind::Advisory => return Entry::Locking,
            Kind::Custom(gate) => gate,
        };
        let pass = uuid::Uuid::new_v4().simple().to_string();
        loop {
            match tokio::time::timeout(CALL_LIMIT, gate.ask(sweep, &pass)).await {
                Ok(Answer::Granted) => {
                    self.report(true);
                    return Entry::Pass(pass);
                }
                Ok(Answer::Busy) => {
                    if !self.wait().await {
                        return Entry::Free;
                    }
                }
                Ok(Answer::Unavailable) | Err(_) => {
                    self.report(false);
                    return Entry::Free;
                }
            }
        }
    }

    /// Waits before the next call. Returns false after `GATE_TIMEOUT`: claim without the gate.
    pub(super) async fn wait(&mut self) -> bool {
        if Instant::now() >= self.until {
            self.report(false);
            return false;
        }
        tokio::time::sleep(self.waits.next_wait()).await;
        true
    }

    /// Records that the statement got the advisory lock.
    pub(super) fn locked(&mut self) {
        self.report(true);
    }

    fn report(&mut self, worked: bool) {
        if let Some(permit) = self.permit.take() {
            permit.report(worked, Instant::now());
        }
    }

    pub(super) async fn leave(&self, sweep: &str, entry: Entry) {
        if let (Kind::Custom(gate), Entry::Pass(pass)) = (&self.gate.kind, entry) {
            // A gate ends an entry whose `leave` it never got.
            let _ = tokio::time::timeout(CALL_LIMIT, gate.leave(sweep, &pass)).await;
        }
    }
}
