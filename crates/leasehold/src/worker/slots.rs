//! The slots of one queue: the jobs that run in them, and the claimed jobs that wait for one.
//!
//! # Invariants
//! - At most `total` jobs run at a time, and they start in the order in which they were claimed.
//! - While handlers are fast, the worker claims ahead: as many jobs as the slots start within `DRAIN_WITHIN`,
//!   and at most [`ClaimAhead::jobs`]. Measured are the slowest of the last handlers: a worker of slow handlers
//!   claims no more than it has free slots.
//! - Jobs that no slot was free for within [`ClaimAhead::wait`] are released, and the worker does not claim ahead
//!   until its handlers have been fast again.
//! - What waits is in the lease table: the keeper renews it, and a cancel request or a lost lease reaches it.
//!
//! # What can go wrong
//! - Every task that runs jobs is blocked by its handler while slots are free: the keeper, on its own thread,
//!   starts further tasks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::context::Attempt;
use super::lease_table::SharedGuard;
use super::registry::WorkerStats;

/// Jobs that are claimed ahead start within this time if handlers stay as fast as they were.
const DRAIN_WITHIN: Duration = Duration::from_millis(5);
/// So many handlers must have ended before the worker claims ahead.
const ENOUGH: u32 = 32;
/// The part of its excess that the slowest handler loses with each faster one after it.
const FORGET: f64 = 1.0 / 32.0;
/// Handlers faster than this run one after the other in one task.
const INSTANT: Duration = Duration::from_micros(100);
/// How many of them one task is started for. Each task takes the next job when it is done with one.
const PER_TASK: usize = 32;

/// How many jobs a worker claims before it has slots for them, and how long they may wait for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClaimAhead {
    pub(crate) jobs: usize,
    pub(crate) wait: Duration,
}

/// What runs together: one job, or several of a handler of several.
pub(crate) enum Work {
    One(Arc<Attempt>),
    Many(Vec<Arc<Attempt>>),
}

impl Work {
    pub(crate) fn jobs(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(attempts) => attempts.len(),
        }
    }

    fn into_attempts(self) -> Vec<Arc<Attempt>> {
        match self {
            Self::One(attempt) => vec![attempt],
            Self::Many(attempts) => attempts,
        }
    }
}

/// What one claim brought and no slot has taken.
struct Waiting {
    since: Instant,
    /// `None`: the lease itself holds the lock.
    solo_lock: Option<SharedGuard>,
    works: std::vec::IntoIter<Work>,
}

pub(crate) struct Slots {
    pub(crate) queue: Arc<str>,
    total: usize,
    ahead: ClaimAhead,
    inside: Mutex<Inside>,
    /// Wakes the claim loop when as many jobs are gone as it waits for.
    room: Notify,
    /// Wakes the keeper when jobs wait.
    waits: Arc<Notify>,
    stats: Arc<WorkerStats>,
}

struct Inside {
    running: usize,
    waiting: VecDeque<Waiting>,
    waiting_jobs: usize,
    /// Tasks that were started and have not asked for a job yet.
    starting: usize,
    /// How often a task took work, and that number when the keeper looked last.
    taken: u64,
    taken_before: u64,
    /// The claim loop waits until there is room for so many jobs.
    wanted_room: Option<usize>,
    speed: Speed,
    /// The worker stops: nothing may wait any more.
    closed: bool,
}

/// How fast the handlers of a queue are.
struct Speed {
    /// Seconds of the slowest handler; with each faster one it loses a part of its excess.
    slowest: f64,
    ended: u32,
}

impl Speed {
    fn ran(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        self.slowest = took.max(self.slowest - (self.slowest - took) * FORGET);
        self.ended = self.ended.saturating_add(1);
    }

    /// Records that jobs waited in vain: other handlers must show first that they are fast.
    fn stalled(&mut self, waited: Duration) {
        self.slowest = self.slowest.max(waited.as_secs_f64());
        self.ended = 0;
    }

    /// Returns how many jobs `slots` slots start within `DRAIN_WITHIN`.
    fn drain(&self, slots: usize) -> usize {
        if self.ended < ENOUGH {
            return 0;
        }
        let each = self.slowest.max(1e-6);
        (slots as f64 * DRAIN_WITHIN.as_secs_f64() / each) as usize
    }

    fn is_instant(&self) -> bool {
        self.ended >= ENOUGH && self.slowest <= INSTANT.as_secs_f64()
    }
}

impl Inside {
    fn outstanding(&self) -> usize {
        self.running + self.waiting_jobs
    }

    /// Returns how many jobs may be claimed and not ended.
    fn capacity(&self, total: usize, ahead: ClaimAhead) -> usize {
        total + self.speed.drain(total).min(ahead.jobs)
    }

    fn room(&self, total: usize, ahead: ClaimAhead) -> usize {
        if self.closed {
            return 0;
        }
        self.capacity(total, ahead).saturating_sub(self.outstanding())
    }

    fn next_fits(&self, total: usize) -> bool {
        let next = self.waiting.front().and_then(|front| front.works.as_slice().first());
        next.is_some_and(|work| self.running + work.jobs() <= total)
    }

    /// Takes the next work if the free slots are enough for it.
    fn take(&mut self, total: usize, solo_lock: &mut Option<SharedGuard>) -> Option<Work> {
        if !self.next_fits(total) {
            return None;
        }
        let front = self.waiting.front_mut()?;
        let work = front.works.next()?;
        let is_same = match (&front.solo_lock, &*solo_lock) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            solo_lock.clone_from(&front.solo_lock);
        }
        if front.works.as_slice().is_empty() {
            self.waiting.pop_front();
        }
        self.waiting_jobs -= work.jobs();
        self.running += work.jobs();
        self.taken += 1;
        Some(work)
    }

    /// Returns how many tasks to start for what waits and has a slot: one for so many jobs.
    fn missing_tasks(&mut self, total: usize, per_task: usize) -> usize {
        let works: usize = self.waiting.iter().map(|waiting| waiting.works.as_slice().len()).sum();
        let tasks = works.min(total.saturating_sub(self.running)).div_ceil(per_task);
        let missing = tasks.saturating_sub(self.starting);
        self.starting += missing;
        missing
    }

    /// Removes what waits beyond the free slots, or everything, and returns its attempts.
    fn remove_waiting(&mut self, keep: usize) -> Vec<Arc<Attempt>> {
        let mut removed = Vec::new();
        let mut kept = 0;
        for mut waiting in std::mem::take(&mut self.waiting) {
            let mut fits = Vec::new();
            for work in waiting.works {
                if removed.is_empty() && kept + work.jobs() <= keep {
                    kept += work.jobs();
                    fits.push(work);
                } else {
                    removed.extend(work.into_attempts());
                }
            }
            if !fits.is_empty() {
                waiting.works = fits.into_iter();
                self.waiting.push_back(waiting);
            }
        }
        self.waiting_jobs = kept;
        removed
    }
}

impl Slots {
    /// `waits` wakes the keeper; the queues of a worker share it.
    pub(crate) fn new(
        queue: Arc<str>,
        total: usize,
        ahead: ClaimAhead,
        waits: &Arc<Notify>,
        stats: &Arc<WorkerStats>,
    ) -> Self {
        let inside = Inside {
            running: 0,
            waiting: VecDeque::new(),
            waiting_jobs: 0,
            starting: 0,
            taken: 0,
            taken_before: 0,
            wanted_room: None,
            speed: Speed { slowest: 0.0, ended: 0 },
            closed: false,
        };
        let (waits, stats) = (Arc::clone(waits), Arc::clone(stats));
        let (inside, room) = (Mutex::new(inside), Notify::new());
        Self { queue, total, ahead, inside, room, waits, stats }
    }

    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Returns how many jobs run.
    pub(crate) fn running(&self) -> usize {
        self.inside.lock().running
    }

    /// Returns how many jobs are claimed and have not started.
    pub(crate) fn waiting(&self) -> usize {
        self.inside.lock().waiting_jobs
    }

    /// Returns how many jobs may be claimed and not ended: the slots, and what is claimed ahead.
    pub(crate) fn capacity(&self) -> usize {
        self.inside.lock().capacity(self.total, self.ahead)
    }

    /// Returns how many jobs may be claimed now.
    pub(crate) fn room(&self) -> usize {
        self.inside.lock().room(self.total, self.ahead)
    }

    /// Waits until there is room for so many jobs. One task at a time may wait.
    pub(crate) async fn until_room(&self, jobs: usize) {
        loop {
            {
                let mut inside = self.inside.lock();
                if inside.room(self.total, self.ahead) >= jobs {
                    inside.wanted_room = None;
                    return;
                }
                inside.wanted_room = Some(jobs);
            }
            self.room.notified().await;
        }
    }

    /// Adds claimed jobs. Returns how many tasks to start for them, or the jobs if nothing may wait any more.
    pub(crate) fn add(
        &self,
        works: Vec<Work>,
        solo_lock: Option<SharedGuard>,
    ) -> Result<usize, Vec<Arc<Attempt>>> {
        let tasks = {
            let mut inside = self.inside.lock();
            if inside.closed {
                return Err(works.into_iter().flat_map(Work::into_attempts).collect());
            }
            if works.is_empty() {
                return Ok(0);
            }
            inside.waiting_jobs += works.iter().map(Work::jobs).sum::<usize>();
            let works = works.into_iter();
            inside.waiting.push_back(Waiting { since: Instant::now(), solo_lock, works });
            let per_task = if inside.speed.is_instant() { PER_TASK } else { 1 };
            inside.missing_tasks(self.total, per_task)
        };
        self.waits.notify_one();
        Ok(tasks)
    }

    /// Returns whether a task is missing, because the caller's waits for its handler and other jobs have slots.
    pub(crate) fn hand_over(&self) -> bool {
        let mut inside = self.inside.lock();
        let is_missing = inside.starting == 0 && inside.next_fits(self.total);
        inside.starting += usize::from(is_missing);
        is_missing
    }

    /// Returns how many tasks are missing although jobs have slots: all tasks that were started are blocked by
    /// their handlers, because none has taken work since the last call.
    pub(crate) fn missing_tasks(&self) -> usize {
        let mut inside = self.inside.lock();
        let is_stuck = inside.taken == inside.taken_before;
        inside.taken_before = inside.taken;
        if is_stuck { inside.missing_tasks(self.total, 1) } else { 0 }
    }

    /// Removes the jobs that wait for a slot if the first of them has waited too long.
    pub(crate) fn take_stalled(&self, now: Instant) -> Vec<Arc<Attempt>> {
        let mut inside = self.inside.lock();
        let free = self.total.saturating_sub(inside.running);
        let waited = inside.waiting.front().map(|front| now.saturating_duration_since(front.since));
        let Some(waited) = waited.filter(|waited| *waited >= self.ahead.wait) else {
            return Vec::new();
        };
        let removed = inside.remove_waiting(free);
        if !removed.is_empty() {
            inside.speed.stalled(waited);
        }
        removed
    }

    /// Removes all jobs that wait. None may wait from now on.
    pub(crate) fn close(&self) -> Vec<Arc<Attempt>> {
        let mut inside = self.inside.lock();
        inside.closed = true;
        inside.remove_waiting(0)
    }
}

/// The slots that one task holds while it runs jobs, one after the other.
pub(crate) struct Turn {
    slots: Arc<Slots>,
    held: usize,
    solo_lock: Option<SharedGuard>,
    is_new: bool,
}

impl Turn {
    pub(crate) fn new(slots: &Arc<Slots>) -> Self {
        Self { slots: Arc::clone(slots), held: 0, solo_lock: None, is_new: true }
    }

    /// Frees the slots of the former work and takes the next. `took`: how long the handler of the former work
    /// ran. Without another work, `keeps` keeps the slots.
    pub(crate) fn next(&mut self, took: Option<Duration>, keeps: bool) -> Option<Work> {
        let slots = &*self.slots;
        let before = self.held;
        let (work, wakes) = {
            let mut inside = slots.inside.lock();
            inside.starting = inside.starting.saturating_sub(usize::from(self.is_new));
            self.is_new = false;
            if let Some(took) = took {
                inside.speed.ran(took);
            }
            inside.running -= self.held;
            let work = inside.take(slots.total, &mut self.solo_lock);
            match &work {
                Some(work) => self.held = work.jobs(),
                None if keeps => inside.running += self.held,
                None => (self.held, self.solo_lock) = (0, None),
            }
            let wanted = inside.wanted_room;
            let wakes = wanted.is_some_and(|jobs| inside.room(slots.total, slots.ahead) >= jobs);
            if wakes {
                inside.wanted_room = None;
            }
            (work, wakes)
        };
        if wakes {
            slots.room.notify_one();
        }
        slots.stats.holds(before, self.held);
        work
    }
}

impl Drop for Turn {
    /// Frees the slots of a task that ends in the middle of a job, too.
    fn drop(&mut self) {
        if self.held > 0 || self.is_new {
            self.next_nothing();
        }
    }
}

impl Turn {
    fn next_nothing(&mut self) {
        let slots = &*self.slots;
        {
            let mut inside = slots.inside.lock();
            inside.starting = inside.starting.saturating_sub(usize::from(self.is_new));
            inside.running -= self.held;
            inside.wanted_room = None;
        }
        slots.room.notify_one();
        slots.stats.holds(self.held, 0);
    }
}
