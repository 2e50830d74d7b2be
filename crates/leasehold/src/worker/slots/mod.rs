//! The slots of one queue: the jobs that run in them, and the claimed jobs that wait for one. The databases of a
//! fleet share slots: see [`pool`].
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

pub(super) mod pool;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::context::Attempt;
use super::lease_table::SharedGuard;
use super::registry::WorkerStats;
use pool::{Freed, LATE, Share};

/// Jobs that are claimed ahead start within this time if handlers stay as fast as they were.
const DRAIN_WITHIN: Duration = Duration::from_millis(5);
/// Handlers that must have ended before the worker claims ahead.
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

    pub(super) fn into_attempts(self) -> Vec<Arc<Attempt>> {
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
    /// What it may use of the slots of a fleet; `None`: all of them.
    share: Option<Share>,
    ahead: ClaimAhead,
    inside: Mutex<Inside>,
    /// Wakes the claim loop when as many jobs are gone as it waits for.
    room: Arc<Notify>,
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
    /// The claim loop waits until there is room for this many jobs.
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

    /// Returns how many jobs the next work has.
    fn next_jobs(&self) -> Option<usize> {
        let next = self.waiting.front().and_then(|front| front.works.as_slice().first());
        next.map(Work::jobs)
    }

    /// Removes the next work, to run it.
    fn take(&mut self, solo_lock: &mut Option<SharedGuard>) -> Option<Work> {
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

    /// Returns how many tasks to start for what waits and has one of `free` slots: one per `per_task` jobs.
    fn missing_tasks(&mut self, free: usize, per_task: usize) -> usize {
        let works: usize = self.waiting.iter().map(|waiting| waiting.works.as_slice().len()).sum();
        let missing = works.min(free).div_ceil(per_task).saturating_sub(self.starting);
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
    pub(super) fn new(
        queue: Arc<str>,
        total: usize,
        share: Option<Share>,
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
        let room = share.as_ref().map(|share| Arc::clone(&share.room)).unwrap_or_default();
        let inside = Mutex::new(inside);
        Self { queue, total, share, ahead, inside, room, waits, stats }
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

    /// Returns true if the databases of a fleet share the slots.
    pub(super) fn is_shared(&self) -> bool {
        self.share.is_some()
    }

    /// Returns the most jobs that can run together in one handler.
    pub(super) fn together(&self) -> usize {
        self.share.as_ref().map_or(self.total, |share| share.together().min(self.total))
    }

    /// Returns how many of the jobs that wait can start now.
    fn free(&self, inside: &Inside) -> usize {
        match &self.share {
            None => self.total.saturating_sub(inside.running),
            Some(share) => share.startable(),
        }
    }

    /// Returns how many jobs may be claimed now: as many as there are slots without a job, and those to claim ahead.
    fn room_of(&self, inside: &Inside) -> usize {
        if inside.closed {
            return 0;
        }
        let (slots, free) = match &self.share {
            None => (self.total, self.total.saturating_sub(inside.running)),
            Some(share) => share.available(),
        };
        let ahead = inside.speed.drain(slots).min(self.ahead.jobs);
        (free + ahead).saturating_sub(inside.waiting_jobs)
    }

    /// Returns how many jobs may be claimed and not ended: the slots, and what is claimed ahead.
    pub(super) fn capacity(&self) -> usize {
        let inside = self.inside.lock();
        inside.outstanding() + self.room_of(&inside)
    }

    /// Returns how many jobs may be claimed now.
    pub(super) fn room(&self) -> usize {
        self.room_of(&self.inside.lock())
    }

    /// Waits until there is room for `jobs` jobs. One task at a time may wait.
    pub(super) async fn until_room(&self, jobs: usize) {
        let _claims = self.share.as_ref().map(Claims::begin);
        loop {
            {
                let mut inside = self.inside.lock();
                if self.room_of(&inside) >= jobs {
                    inside.wanted_room = None;
                    return;
                }
                inside.wanted_room = Some(jobs);
            }
            if self.share.is_some() {
                // A late claim of another database gives its slots up without a notification.
                let _ = tokio::time::timeout(LATE, self.room.notified()).await;
            } else {
                self.room.notified().await;
            }
        }
    }

    /// Returns how many jobs to claim now, at most `most`. In a fleet it reserves slots for them.
    pub(super) fn reserve(&self, most: usize) -> Reserved<'_> {
        let inside = self.inside.lock();
        let jobs = self.room_of(&inside).min(most);
        if let Some(share) = &self.share
            && jobs > 0
        {
            share.reserve(jobs);
        }
        Reserved { share: self.share.as_ref().filter(|_| jobs > 0), jobs }
    }

    /// Records whether the last claim took all that it was allowed to.
    pub(super) fn note_claim(&self, took_all: bool) {
        if let Some(share) = &self.share {
            share.note_claim(took_all);
        }
    }

    /// Tells the other databases of a fleet how many jobs wait.
    fn note_waiting(&self, inside: &Inside) {
        if let Some(share) = &self.share {
            share.waits(inside.waiting_jobs);
        }
    }

    /// Waits until another database of a fleet may have left a slot to jobs that wait here. Returns how many tasks
    /// to start for them.
    pub(super) async fn given_slots(&self) -> usize {
        let Some(share) = &self.share else { return std::future::pending().await };
        share.start.notified().await;
        let mut inside = self.inside.lock();
        let free = self.free(&inside);
        inside.missing_tasks(free, 1)
    }

    /// Adds claimed jobs. Returns how many tasks to start for them, or the jobs if nothing may wait any more.
    pub(super) fn add(
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
            self.note_waiting(&inside);
            let per_task = if inside.speed.is_instant() { PER_TASK } else { 1 };
            let free = self.free(&inside);
            inside.missing_tasks(free, per_task)
        };
        self.waits.notify_one();
        Ok(tasks)
    }

    /// Returns whether a task is missing, because the caller's waits for its handler and other jobs have slots.
    pub(super) fn hand_over(&self) -> bool {
        let mut inside = self.inside.lock();
        let is_missing = inside.starting == 0
            && inside.next_jobs().is_some_and(|jobs| jobs <= self.free(&inside));
        inside.starting += usize::from(is_missing);
        is_missing
    }

    /// Returns how many tasks are missing although jobs have slots: all tasks that were started are blocked by
    /// their handlers, because none has taken work since the last call.
    pub(super) fn missing_tasks(&self) -> usize {
        let mut inside = self.inside.lock();
        let is_stuck = inside.taken == inside.taken_before;
        inside.taken_before = inside.taken;
        let free = self.free(&inside);
        if is_stuck { inside.missing_tasks(free, 1) } else { 0 }
    }

    /// Removes the jobs that wait for a slot if the first of them has waited too long.
    pub(super) fn take_stalled(&self, now: Instant) -> Vec<Arc<Attempt>> {
        let mut inside = self.inside.lock();
        let waited = inside.waiting.front().map(|front| now.saturating_duration_since(front.since));
        let Some(waited) = waited.filter(|waited| *waited >= self.ahead.wait) else {
            return Vec::new();
        };
        let free = self.free(&inside);
        let removed = inside.remove_waiting(free);
        self.note_waiting(&inside);
        if !removed.is_empty() {
            inside.speed.stalled(waited);
        }
        removed
    }

    /// Removes all jobs that wait. None may wait from now on.
    pub(super) fn close(&self) -> Vec<Arc<Attempt>> {
        let mut inside = self.inside.lock();
        inside.closed = true;
        let removed = inside.remove_waiting(0);
        self.note_waiting(&inside);
        removed
    }
}

/// Marks the claim loop of a database as waiting until it is dropped.
struct Claims<'a>(&'a Share);

impl<'a> Claims<'a> {
    fn begin(share: &'a Share) -> Self {
        share.claims(true);
        Self(share)
    }
}

impl Drop for Claims<'_> {
    fn drop(&mut self) {
        self.0.claims(false);
    }
}

/// What one claim may take. In a fleet the slots are reserved until it is dropped, or the claim is late.
pub(super) struct Reserved<'a> {
    share: Option<&'a Share>,
    pub(super) jobs: usize,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(share) = self.share {
            share.settle();
        }
    }
}

/// The slots that one task holds while it runs jobs, one after the other.
pub(super) struct Turn {
    slots: Arc<Slots>,
    held: usize,
    /// The other databases of the fleet have the slots; see [`Share::park`].
    parked: bool,
    solo_lock: Option<SharedGuard>,
    is_new: bool,
}

impl Turn {
    pub(super) fn new(slots: &Arc<Slots>) -> Self {
        let slots = Arc::clone(slots);
        Self { slots, held: 0, parked: false, solo_lock: None, is_new: true }
    }

    /// Frees the slots of the former work and takes the next. `took`: how long the handler of the former work
    /// ran. Without another work, `keeps` keeps the slots.
    pub(super) fn next(&mut self, took: Option<Duration>, keeps: bool) -> Option<Work> {
        let before = self.held;
        let (work, wakes) = {
            let slots = &*self.slots;
            let mut inside = slots.inside.lock();
            inside.starting = inside.starting.saturating_sub(usize::from(self.is_new));
            self.is_new = false;
            if let Some(took) = took {
                inside.speed.ran(took);
            }
            inside.running -= self.held;
            let next = inside.next_jobs();
            let fits = match &slots.share {
                None => next.is_some_and(|jobs| inside.running + jobs <= slots.total),
                Some(share) => {
                    let freed = Freed { slots: self.held, parked: self.parked };
                    share.swap(freed, next, keeps)
                }
            };
            let work = if fits { inside.take(&mut self.solo_lock) } else { None };
            match &work {
                Some(work) => (self.held, self.parked) = (work.jobs(), false),
                None if keeps => inside.running += self.held,
                None => (self.held, self.parked, self.solo_lock) = (0, false, None),
            }
            let wakes = inside.wanted_room.is_some_and(|jobs| slots.room_of(&inside) >= jobs);
            if wakes {
                inside.wanted_room = None;
            }
            (work, wakes)
        };
        if wakes {
            self.slots.room.notify_one();
        }
        self.slots.stats.holds(before, self.held);
        work
    }

    /// In a fleet, leaves the slots to the other databases: this one is not done with the job, and may not be for
    /// long. In a worker of one database it does nothing: there the slot is what keeps the worker from claiming more.
    pub(super) fn park(&mut self) {
        if let Some(share) = &self.slots.share
            && !std::mem::replace(&mut self.parked, true)
        {
            share.park(self.held);
        }
    }
}

impl Drop for Turn {
    /// Frees the slots of a task that ends in the middle of a job, too.
    fn drop(&mut self) {
        if self.held == 0 && !self.is_new {
            return;
        }
        let slots = &*self.slots;
        {
            let mut inside = slots.inside.lock();
            inside.starting = inside.starting.saturating_sub(usize::from(self.is_new));
            inside.running -= self.held;
            inside.wanted_room = None;
            if let Some(share) = &slots.share {
                share.swap(Freed { slots: self.held, parked: self.parked }, None, false);
            }
        }
        slots.room.notify_one();
        slots.stats.holds(self.held, 0);
    }
}
