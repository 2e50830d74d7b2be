//! What a builder must know about handlers of names that are known only at run time, and about handlers
//! of several jobs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::context::{Attempt, Ctx};

/// A job name that is known only at run time, with what the type of a job would say about it.
///
/// A text converts into one: `worker.handle_untyped("report.build", handler)`.
#[derive(Clone, Debug)]
#[must_use = "a name does nothing until a handler is added for it"]
pub struct UntypedJob {
    pub(super) name: String,
    pub(super) queue: Option<String>,
    pub(super) slots: Option<usize>,
    pub(super) run_limit: Option<Duration>,
}

impl UntypedJob {
    /// Names the jobs.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), queue: None, slots: None, run_limit: None }
    }

    /// Sets the queue that the jobs go to. A worker that names no queue works it. Default: `default`.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Sets the fewest slots that the handler needs in its queue. The worker then works that queue even
    /// if it names others, with at least these slots; if the worker names this queue itself, the slots
    /// given there count.
    pub fn slots(mut self, slots: usize) -> Self {
        self.slots = Some(slots);
        self
    }

    /// Sets how long one attempt may run. Default: the limit of the queue.
    pub fn run_limit(mut self, limit: Duration) -> Self {
        self.run_limit = Some(limit);
        self
    }
}

impl From<&str> for UntypedJob {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<String> for UntypedJob {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

impl From<&String> for UntypedJob {
    fn from(name: &String) -> Self {
        Self::new(name)
    }
}

type Group = Arc<dyn Fn(&Ctx) -> i64 + Send + Sync>;

/// How many jobs a handler of several jobs gets at once, and which of them together.
///
/// A number converts into one: `worker.handle_many(100, handler)`.
#[derive(Clone)]
#[must_use = "it does nothing until a handler is added with it"]
pub struct ManyJobs {
    most: usize,
    group: Option<Group>,
}

impl ManyJobs {
    /// Gives the handler up to `most` jobs at once, at least one.
    pub fn up_to(most: usize) -> Self {
        Self { most: most.max(1), group: None }
    }

    /// Gives the handler only jobs together for which `group` returns the same number, so that urgent
    /// jobs need not wait for the end of slow ones.
    ///
    /// ```
    /// use leasehold::worker::ManyJobs;
    ///
    /// let jobs = ManyJobs::up_to(500).group_by(|ctx| i64::from(ctx.priority() >= 100));
    /// # drop(jobs);
    /// ```
    pub fn group_by(mut self, group: impl Fn(&Ctx) -> i64 + Send + Sync + 'static) -> Self {
        self.group = Some(Arc::new(group));
        self
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// A panic of the caller's function must not end the loop that claims: such a job is in group 0.
    pub(super) fn group(&self, attempt: &Arc<Attempt>) -> i64 {
        let Some(group) = &self.group else { return 0 };
        let ctx = Ctx(Arc::clone(attempt));
        catch_unwind(AssertUnwindSafe(|| group(&ctx))).unwrap_or_default()
    }
}

impl From<usize> for ManyJobs {
    fn from(most: usize) -> Self {
        Self::up_to(most)
    }
}

impl std::fmt::Debug for ManyJobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManyJobs").field("most", &self.most).finish_non_exhaustive()
    }
}
