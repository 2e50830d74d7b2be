//! Slots: how many jobs of a queue run at a time, and how the databases of a fleet share them.
//!
//! A pool has the slots of one queue. Each database that a worker works is a member of it; a worker of one
//! database is the only member.
//!
//! # What is true
//! - The jobs that run, from all databases together, are never more than the slots.
//! - A free slot goes to the member that wants one and holds the fewest: max-min fair. A member that wants none
//!   leaves its share to the others, and gets it back as slots become free.
//! - A claim reserves the slots that it may fill. A claim without a reply holds them for [`LATE`], then others get
//!   them: a database that hangs takes nothing from the others for longer than that.
//! - A member whose last claim did not fill its slots reserves at most its equal share: others need not wait for
//!   the reply of a database that may have nothing.
//! - A claimed job starts before any claim gets a slot.
//!
//! # What can go wrong
//! - The reply of a late claim comes all the same, with jobs: they start as slots become free.
//! - A database cannot record how its jobs ended, or a handler ignores that its lease is lost: in a fleet such
//!   jobs are *parked*. They count against their own database, and their slots are free for the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A claim that has no reply after this time no longer holds the slots that it reserved.
pub(super) const LATE: Duration = Duration::from_millis(500);

/// The slots of one queue.
pub(crate) struct SlotPool {
    total: usize,
    /// How many databases may share them.
    databases: usize,
    state: Mutex<State>,
    /// A slot became free for a job that is claimed.
    freed: Notify,
}

#[derive(Default)]
struct State {
    members: BTreeMap<u64, Member>,
    /// Slots that claimed jobs wait for.
    claimed: usize,
    /// Numbers members and reservations.
    next: u64,
}

/// One database in a pool.
struct Member {
    /// The most slots of this member.
    most: usize,
    running: usize,
    parked: usize,
    reserved: Vec<Reserved>,
    /// Its claim loop waits for a slot.
    waits: bool,
    /// Its last claim took all that it was allowed to, so it wants more until then.
    busy_until: Option<Instant>,
    /// When it last got slots: among equals, the one that waited longest is next.
    served: u64,
    free: Arc<Notify>,
}

struct Reserved {
    id: u64,
    slots: usize,
    until: Instant,
}

impl Member {
    fn reserved(&self, now: Instant) -> usize {
        self.reserved.iter().filter(|one| one.until > now).map(|one| one.slots).sum()
    }

    fn holds(&self, now: Instant) -> usize {
        self.running + self.reserved(now)
    }

    fn is_busy(&self, now: Instant) -> bool {
        self.busy_until.is_some_and(|until| now < until)
    }

    /// Returns how many more slots it may have and wants. `share`: its equal share.
    fn wants(&self, now: Instant, share: usize) -> usize {
        let room = self.most.saturating_sub(self.holds(now) + self.parked);
        match (self.is_busy(now), self.waits) {
            (true, _) => room,
            (false, true) => room.min(share),
            (false, false) => 0,
        }
    }
}

impl State {
    /// Returns how many slots nothing holds.
    fn free(&self, total: usize, now: Instant) -> usize {
        let held: usize = self.members.values().map(|member| member.holds(now)).sum();
        total.saturating_sub(held)
    }

    /// Returns how many slots the member gets now, as if the free ones were handed out one by one, each to the
    /// member that holds the fewest.
    fn grant(&self, id: u64, pool: &SlotPool, now: Instant) -> usize {
        let free = self.free(pool.total, now).saturating_sub(self.claimed);
        let share = pool.share();
        let wanted = |member: &Member| (member.holds(now), member.wants(now, share));
        let Some(own) = self.members.get(&id) else { return 0 };
        let (held, room) = wanted(own);
        if free == 0 || room == 0 || self.members.len() == 1 {
            return free.min(room);
        }
        let all: Vec<(usize, usize)> = self.members.values().map(wanted).collect();
        let filled = |level: usize| -> usize {
            all.iter().map(|(held, room)| level.saturating_sub(*held).min(*room)).sum()
        };
        // The highest level up to which the free slots fill every member that wants some.
        let (mut level, mut above) = (0, pool.total + 1);
        while above - level > 1 {
            let middle = level + (above - level) / 2;
            if filled(middle) <= free { level = middle } else { above = middle }
        }
        let granted = level.saturating_sub(held).min(room);
        let rest = free - filled(level);
        let takes_one = |member: &Member| {
            let (held, room) = wanted(member);
            held <= level && level - held < room
        };
        let before = |other: &&Member| takes_one(other) && other.served < own.served;
        let one_more = takes_one(own) && self.members.values().filter(before).count() < rest;
        granted + usize::from(one_more)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl SlotPool {
    /// `databases`: how many may share the slots.
    pub(super) fn new(total: usize, databases: usize) -> Arc<Self> {
        let databases = databases.max(1);
        Arc::new(Self { total, databases, state: Mutex::default(), freed: Notify::new() })
    }

    /// Adds a member that gets at most this many slots.
    pub(super) fn join(self: &Arc<Self>, most: usize) -> Arc<Slots> {
        let mut state = self.state.lock();
        let id = state.number();
        let (free, served) = (Arc::new(Notify::new()), id);
        let member = Member {
            most,
            running: 0,
            parked: 0,
            reserved: Vec::new(),
            waits: false,
            busy_until: None,
            served,
            free: Arc::clone(&free),
        };
        state.members.insert(id, member);
        drop(state);
        Arc::new(Slots { pool: Arc::clone(self), id, free })
    }

    /// Returns the equal share of one database.
    fn share(&self) -> usize {
        (self.total / self.databases).max(1)
    }

    /// Changes the state, then wakes what can have a slot now.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let now = Instant::now();
        let mut state = self.state.lock();
        let changed = change(&mut state);
        if state.claimed > 0 {
            self.freed.notify_waiters();
        }
        let waiting = state.members.iter().filter(|(_, member)| member.waits);
        for (id, member) in waiting {
            if state.grant(*id, self, now) > 0 {
                member.free.notify_one();
            }
        }
        changed
    }
}

/// What one database may use of a pool.
pub(crate) struct Slots {
    pool: Arc<SlotPool>,
    id: u64,
    free: Arc<Notify>,
}

impl Slots {
    /// Returns true if databases share the slots.
    pub(super) fn is_shared(&self) -> bool {
        self.pool.databases > 1
    }

    /// Returns how many of the slots run jobs of this database.
    pub(crate) fn running(&self) -> usize {
        self.pool.state.lock().members.get(&self.id).map_or(0, |member| member.running)
    }

    /// Waits until this database may have at least one slot, and reserves up to `most`. If fewer than
    /// `worthwhile` are free, waits for `gather` longer.
    pub(super) async fn reserve(
        self: &Arc<Self>,
        most: usize,
        worthwhile: usize,
        gather: Duration,
    ) -> Reservation {
        let waiting = Waiting::new(self);
        let mut gathered = false;
        loop {
            let free = self.pool.state.lock().grant(self.id, &self.pool, Instant::now());
            if free > 0 && free < worthwhile && !gathered {
                gathered = true;
                tokio::time::sleep(gather).await;
                continue;
            }
            if free > 0
                && let Some(reserved) = self.try_reserve(most)
            {
                drop(waiting);
                return reserved;
            }
            // A late claim of another database gives its slots up without a notification.
            let _ = tokio::time::timeout(LATE, self.free.notified()).await;
        }
    }

    fn try_reserve(self: &Arc<Self>, most: usize) -> Option<Reservation> {
        let now = Instant::now();
        self.pool.change(|state| {
            let slots = state.grant(self.id, &self.pool, now).min(most);
            let id = state.number();
            let member = state.members.get_mut(&self.id).filter(|_| slots > 0)?;
            member.reserved.push(Reserved { id, slots, until: now + LATE });
            member.served = id;
            member.waits = false;
            Some(Reservation { slots: Arc::clone(self), id })
        })
    }

    /// Records whether the last claim took all that it was allowed to: then there is probably more.
    pub(super) fn note_claim(&self, took_all: bool) {
        let until = took_all.then(|| Instant::now() + LATE);
        self.pool.change(|state| {
            if let Some(member) = state.members.get_mut(&self.id) {
                member.busy_until = until;
            }
        });
    }

    /// Waits for the slots of jobs that are claimed: those that were reserved for them, else free ones.
    pub(super) async fn acquire(self: &Arc<Self>, slots: usize) -> Permit {
        let mut claimed = None;
        loop {
            // Enabled before the check, or a slot that becomes free in between would be missed.
            let mut freed = std::pin::pin!(self.pool.freed.notified());
            freed.as_mut().enable();
            if self.pool.change(|state| state.take(self.id, slots, self.pool.total)) {
                drop(claimed);
                return Permit { slots: Arc::clone(self), count: slots, parked: Mutex::new(false) };
            }
            claimed.get_or_insert_with(|| Claimed::new(&self.pool, slots));
            let _ = tokio::time::timeout(LATE, freed).await;
        }
    }
}

impl State {
    /// Moves slots from the reservations of a member, or from the free ones, to its running jobs.
    fn take(&mut self, id: u64, slots: usize, total: usize) -> bool {
        let now = Instant::now();
        let free = self.free(total, now);
        let Some(member) = self.members.get_mut(&id) else { return true };
        let reserved = member.reserved(now);
        if reserved + free < slots {
            return false;
        }
        let mut left = slots;
        for one in member.reserved.iter_mut().filter(|one| one.until > now) {
            let part = one.slots.min(left);
            one.slots -= part;
            left -= part;
        }
        member.running += slots;
        true
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        self.pool.change(|state| state.members.remove(&self.id));
    }
}

/// Marks a member as waiting until it is dropped.
struct Waiting<'a>(&'a Slots);

impl<'a> Waiting<'a> {
    fn new(slots: &'a Slots) -> Self {
        let waiting = Self(slots);
        waiting.set(true);
        waiting
    }

    fn set(&self, waits: bool) {
        self.0.pool.change(|state| {
            if let Some(member) = state.members.get_mut(&self.0.id) {
                member.waits = waits;
            }
        });
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// Counts slots that claimed jobs wait for, until it is dropped.
struct Claimed<'a> {
    pool: &'a SlotPool,
    slots: usize,
}

impl<'a> Claimed<'a> {
    fn new(pool: &'a SlotPool, slots: usize) -> Self {
        pool.change(|state| state.claimed += slots);
        Self { pool, slots }
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.pool.change(|state| state.claimed = state.claimed.saturating_sub(self.slots));
    }
}

/// Slots that are kept for the jobs of one claim. What is left is free again when it is dropped.
pub(crate) struct Reservation {
    slots: Arc<Slots>,
    id: u64,
}

impl Reservation {
    /// Returns how many slots are reserved, and holds them for [`LATE`] from now. 0: that time had passed.
    pub(super) fn renew(&self) -> usize {
        let now = Instant::now();
        let mut state = self.slots.pool.state.lock();
        let Some(member) = state.members.get_mut(&self.slots.id) else { return 0 };
        let own = |one: &&mut Reserved| one.id == self.id && one.until > now;
        let renewed = member.reserved.iter_mut().find(own).map(|one| {
            one.until = now + LATE;
            one.slots
        });
        if member.is_busy(now) {
            member.busy_until = Some(now + LATE);
        }
        renewed.unwrap_or(0)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.slots.pool.change(|state| {
            if let Some(member) = state.members.get_mut(&self.slots.id) {
                member.reserved.retain(|one| one.id != self.id);
            }
        });
    }
}

/// The slots of jobs that run, until it is dropped.
pub(crate) struct Permit {
    slots: Arc<Slots>,
    count: usize,
    parked: Mutex<bool>,
}

impl Permit {
    /// In a fleet, leaves the slots to the other databases; its own database may start no more jobs for them.
    /// In a worker of one database it does nothing: there the slot is what keeps the worker from claiming more.
    pub(super) fn park(&self) {
        if self.slots.is_shared() && !std::mem::replace(&mut *self.parked.lock(), true) {
            self.change(|member, count| {
                member.running = member.running.saturating_sub(count);
                member.parked += count;
            });
        }
    }

    fn change(&self, change: impl FnOnce(&mut Member, usize)) {
        self.slots.pool.change(|state| {
            if let Some(member) = state.members.get_mut(&self.slots.id) {
                change(member, self.count);
            }
        });
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let parked = *self.parked.lock();
        self.change(|member, count| {
            let counted = if parked { &mut member.parked } else { &mut member.running };
            *counted = counted.saturating_sub(count);
        });
    }
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
