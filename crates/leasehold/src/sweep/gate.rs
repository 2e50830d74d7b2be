//! Gates: who may fetch and mark rows just now.
//!
//! Many workers that claim at the same moment step around each other's locked rows; a gate lets one
//! of them in at a time instead. That is all it does.
//!
//! # What is true
//! - Nothing depends on it. A gate that lets everybody in changes nothing but speed, and one that
//!   lets nobody in is passed by after a bounded wait.
//! - It is held while rows are fetched and marked, never while they are worked on.
//!
//! # What can go wrong
//! - The service behind it does not answer: a call takes 200 ms at most, and after a few of those
//!   nobody asks for a while.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::breaker::{Breaker, Question};

/// No question to a gate takes longer.
const CALL_LIMIT: Duration = Duration::from_millis(200);
/// A loop waits so long for a busy gate, then claims without it.
const PATIENCE: Duration = Duration::from_secs(1);
/// After so many questions in vain, nobody asks for a while.
const FAILURES: u32 = 3;
const OPEN_FOR: Duration = Duration::from_secs(15);

/// What a gate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted,
    /// Someone else is inside; ask again in a moment.
    Busy,
    /// There is no saying.
    Unavailable,
}

pub type Asking<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;
pub type Leaving<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A gate of your own. `pass` is new for every entry.
pub trait ClaimGate: Send + Sync + 'static {
    fn ask<'a>(&'a self, sweep: &'a str, pass: &'a str) -> Asking<'a>;
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
    /// No gate: claims step around each other's rows.
    pub fn none() -> Self {
        Self::of(Kind::None)
    }

    /// An advisory lock of Postgres, `(7306, a number made from the sweep's name)`, for as long as
    /// the statement that claims.
    pub fn advisory() -> Self {
        Self::of(Kind::Advisory)
    }

    pub fn custom(gate: Arc<dyn ClaimGate>) -> Self {
        Self::of(Kind::Custom(gate))
    }

    fn of(kind: Kind) -> Self {
        Self { kind, breaker: Arc::new(Breaker::new(FAILURES, FAILURES, OPEN_FOR)) }
    }

    /// A way through the gate, for one claim.
    pub(super) fn approach(&self) -> Approach<'_> {
        let now = Instant::now();
        Approach {
            gate: self,
            question: self.breaker.ask(now).ok(),
            until: now + PATIENCE,
            pause: Duration::from_millis(4),
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

/// How a claim goes through.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// With nothing in hand.
    Free,
    /// Let in; to be given back.
    Pass(String),
    /// By the lock in the claim's own statement.
    Locking,
}

pub(super) struct Approach<'a> {
    gate: &'a Gate,
    /// `None`: nobody asks for a while, or how it went was said.
    question: Option<Question<'a>>,
    until: Instant,
    pause: Duration,
}

impl Approach<'_> {
    /// Waits for its turn, but not for ever.
    pub(super) async fn enter(&mut self, sweep: &str) -> Entry {
        let gate = match &self.gate.kind {
            Kind::None => return Entry::Free,
            _ if self.question.is_none() => return Entry::Free,
            Kind::Advisory => return Entry::Locking,
            Kind::Custom(gate) => gate,
        };
        let pass = uuid::Uuid::new_v4().simple().to_string();
        loop {
            match tokio::time::timeout(CALL_LIMIT, gate.ask(sweep, &pass)).await {
                Ok(Answer::Granted) => {
                    self.tell(true);
                    return Entry::Pass(pass);
                }
                Ok(Answer::Busy) => {
                    if !self.wait().await {
                        return Entry::Free;
                    }
                }
                Ok(Answer::Unavailable) | Err(_) => {
                    self.tell(false);
                    return Entry::Free;
                }
            }
        }
    }

    /// Waits a moment before the next question. False: that was long enough, go on without.
    pub(super) async fn wait(&mut self) -> bool {
        if Instant::now() >= self.until {
            self.tell(false);
            return false;
        }
        tokio::time::sleep(self.pause.mul_f64(rand::random_range(0.5..=1.0))).await;
        self.pause = (self.pause * 2).min(Duration::from_millis(50));
        true
    }

    /// The lock in the statement was free.
    pub(super) fn locked(&mut self) {
        self.tell(true);
    }

    fn tell(&mut self, worked: bool) {
        if let Some(question) = self.question.take() {
            question.tell(worked, Instant::now());
        }
    }

    pub(super) async fn leave(&self, sweep: &str, entry: Entry) {
        if let (Kind::Custom(gate), Entry::Pass(pass)) = (&self.gate.kind, entry) {
            // Left standing it ends by itself.
            let _ = tokio::time::timeout(CALL_LIMIT, gate.leave(sweep, &pass)).await;
        }
    }
}
