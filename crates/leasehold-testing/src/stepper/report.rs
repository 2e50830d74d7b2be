use super::run::Run;

/// The most failures that are kept for the report.
const KEEP: usize = 20;

/// Why an exploration failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepperError {
    #[error(
        "{possible} orders are too many (the limit is {limit}): use fewer scripts or fewer steps"
    )]
    TooMany { possible: u64, limit: u64 },
    #[error("the stepper's own connection failed: {0:?}")]
    Database(#[from] tokio_postgres::Error),
    #[error("no script made progress for {seconds} s; so far:\n{run}")]
    Stuck { seconds: u64, run: Run },
}

/// The results of all orders.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Exploration {
    /// Number of orders that ran.
    pub orders: u64,
    /// Orders in which some step waited for a lock. A test about locks may require that this is not
    /// 0.
    pub waited: u64,
    /// Steps that PostgreSQL ended because of a deadlock.
    pub deadlocks: u64,
    /// Choices that differed when they were reached again, as after a deadlock. Some orders may then
    /// be missing.
    pub diverged: u64,
    /// Number of orders that `check` rejected.
    pub failed: u64,
    /// The first of the rejected orders.
    pub failures: Vec<Failure>,
}

/// An order that `check` rejected.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Failure {
    pub why: String,
    pub run: Run,
}

impl Exploration {
    pub(super) fn note(&mut self, run: &Run, judged: Result<(), String>) {
        self.orders += 1;
        self.waited += u64::from(run.waited());
        self.deadlocks += run.count_errors("40P01") as u64;
        if let Err(why) = judged {
            self.failed += 1;
            if self.failures.len() < KEEP {
                self.failures.push(Failure { why, run: run.clone() });
            }
        }
    }

    /// Panics with the first order that failed, step by step.
    #[expect(clippy::panic, reason = "the test fails here")]
    pub fn assert_all_held(&self) {
        if let Some(Failure { why, run }) = self.failures.first() {
            panic!("{} of {} orders failed; the first: {why}\n{run}", self.failed, self.orders);
        }
    }
}
