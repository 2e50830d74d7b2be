//! How the databases of a fleet share the slots of a queue.
//!
//! A pool has the slots of one queue. Each database that a worker works is a member of it.
//!
//! # Invariants
//! - The jobs that run, from all databases together, are never more than the slots.
//! - A free slot goes to the member that wants one and holds the fewest: max-min fair. A member that wants none
//!   leaves its share to the others, and gets it back as slots become free.
//! - A claim reserves the slots that it may fill. A claim without a reply holds them for [`LATE`], then others get
//!   them: a database that hangs takes nothing from the others for longer than that.
//! - A member whose last claim did not fill its slots reserves at most its equal share: others need not wait for
//!   the reply of a database that may have nothing.
//!
//! # What can go wrong
//! - The reply of a late claim comes all the same, with jobs: they wait as jobs that were claimed ahead do, and
//!   start or are released.
//! - A database cannot record how its jobs ended, or a handler ignores that its lease is lost: such jobs are
//!   *parked*. They count against their own database, and their slots are free for the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A claim that has no reply after this time no longer holds the slots that it reserved.
pub(in crate::worker) const LATE: Duration = Duration::from_millis(500);

/// The slots of one queue, for several databases.
pub(in crate::worker) struct SlotPool {
    total: usize,
    /// How many databases may share them.
    databases: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    members: BTreeMap<u64, Member>,
    /// Numbers members, and the turns in which they got slots.
    next: u64,
}

/// One database in a pool.
struct Member {
    /// The most slots of this member.
    most: usize,
    running: usize,
    parked: usize,
    /// For a claim in flight and for its jobs until they start.
    reserved: usize,
    reserved_until: Instant,
    /// Claimed jobs that wait for a slot.
    waiting: usize,
    /// Its claim loop waits for a slot.
    claims: bool,
    /// Its last claim took all that it was allowed to, so it wants more until then.
    busy_until: Option<Instant>,
    /// When it last got slots: among equals, the one that waited longest is next.
    served: u64,
    /// Wakes its claim loop.
    room: Arc<Notify>,
    /// Wakes what starts tasks for its claimed jobs.
    start: Arc<Notify>,
}

impl Member {
    fn reserved(&self, now: Instant) -> usize {
        if now < self.reserved_until { self.reserved } else { 0 }
    }

    fn holds(&self, now: Instant) -> usize {
        self.running + self.reserved(now)
    }

    /// Returns how many more slots it may have and wants. `share`: its equal share.
    fn wants(&self, now: Instant, share: usize) -> usize {
        let holds = self.holds(now);
        let most = self.most.saturating_sub(holds + self.parked);
        let waiting = self.waiting.saturating_sub(self.reserved(now));
        let is_busy = self.busy_until.is_some_and(|until| now < until);
        match (is_busy, self.claims) {
            (true, _) => most,
            (false, true) => most.min(waiting + share),
            (false, false) => most.min(waiting),
        }
    }
}

impl State {
    /// Returns how many slots nothing holds.
    fn free(&self, total: usize, now: Instant) -> usize {
        let held: usize = self.members.values().map(|member| member.holds(now)).sum();
        total.saturating_sub(held)
    }

    /// Hands the free slots out one by one, each to the member that holds the fewest.
    fn hand_out(&self, pool: &SlotPool, now: Instant) -> HandedOut<'_> {
        let (free, share) = (self.free(pool.total, now), pool.share());
        let wanted = |member: &Member| (member.holds(now), member.wants(now, share));
        let filled = |level: usize| -> usize {
            let of = |(held, room): (usize, usize)| level.saturating_sub(held).min(room);
            self.members.values().map(wanted).map(of).sum()
        };
        // The highest level up to which the free slots fill every member that wants some.
        let (mut level, mut above) = (0, pool.total + 1);
        while free > 0 && above - level > 1 {
            let middle = level + (above - level) / 2;
            if filled(middle) <= free { level = middle } else { above = middle }
        }
        HandedOut { state: self, level, rest: free - filled(level), share, now }
    }

    /// Returns how many further slots the member gets now.
    fn grant(&self, id: u64, pool: &SlotPool, now: Instant) -> usize {
        let Some(own) = self.members.get(&id) else { return 0 };
        let (free, room) = (self.free(pool.total, now), own.wants(now, pool.share()));
        let mut others = self.members.iter().filter(|(other, _)| **other != id);
        if free == 0 || room == 0 {
            return 0;
        }
        if others.all(|(_, member)| member.wants(now, pool.share()) == 0) {
            return free.min(room);
        }
        self.hand_out(pool, now).to(own)
    }

    /// Takes slots for claimed jobs: those that were reserved, then those that are granted.
    fn take(&mut self, id: u64, slots: usize, pool: &SlotPool, now: Instant) -> bool {
        let reserved = self.members.get(&id).map_or(0, |member| member.reserved(now));
        if reserved < slots && reserved + self.grant(id, pool, now) < slots {
            return false;
        }
        let served = self.number();
        let Some(member) = self.members.get_mut(&id) else { return false };
        if reserved < slots {
            member.served = served;
        }
        member.reserved = reserved.saturating_sub(slots);
        member.running += slots;
        member.waiting = member.waiting.saturating_sub(slots);
        true
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// The free slots, handed out.
struct HandedOut<'a> {
    state: &'a State,
    /// Each member that wants slots has at least this many.
    level: usize,
    /// The number of members that have one more.
    rest: usize,
    share: usize,
    now: Instant,
}

impl HandedOut<'_> {
    fn takes_one_more(&self, member: &Member) -> bool {
        let held = member.holds(self.now);
        held <= self.level && self.level - held < member.wants(self.now, self.share)
    }

    /// Returns how many further slots a member gets.
    fn to(&self, own: &Member) -> usize {
        let room = own.wants(self.now, self.share);
        let granted = self.level.saturating_sub(own.holds(self.now)).min(room);
        let before = |other: &&Member| self.takes_one_more(other) && other.served < own.served;
        let one_more = self.takes_one_more(own)
            && self.state.members.values().filter(before).count() < self.rest;
        granted + usize::from(one_more)
    }
}

impl SlotPool {
    /// `databases`: how many may share the slots.
    pub(in crate::worker) fn new(total: usize, databases: usize) -> Arc<Self> {
        Arc::new(Self { total, databases: databases.max(1), state: Mutex::default() })
    }

    /// Adds a member that gets at most this many slots.
    pub(in crate::worker) fn join(self: &Arc<Self>, most: usize) -> Share {
        let mut state = self.state.lock();
        let id = state.number();
        let (room, start) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let member = Member {
            most,
            running: 0,
            parked: 0,
            reserved: 0,
            reserved_until: Instant::now(),
            waiting: 0,
            claims: false,
            busy_until: None,
            served: id,
            room: Arc::clone(&room),
            start: Arc::clone(&start),
        };
        state.members.insert(id, member);
        drop(state);
        Share { pool: Arc::clone(self), id, room, start }
    }

    /// Returns the equal share of one database.
    fn share(&self) -> usize {
        (self.total / self.databases).max(1)
    }
}

/// What one database may use of a pool.
pub(in crate::worker) struct Share {
    pool: Arc<SlotPool>,
    id: u64,
    /// Wakes the claim loop of this database.
    pub(super) room: Arc<Notify>,
    /// Wakes what starts tasks for its claimed jobs.
    pub(super) start: Arc<Notify>,
}

/// The slots that a task frees.
#[derive(Clone, Copy)]
pub(super) struct Freed {
    pub(super) slots: usize,
    pub(super) parked: bool,
}

impl Share {
    /// Returns the most jobs that run together in one handler: its equal share, because more slots may never be
    /// free for this database at a time.
    pub(super) fn together(&self) -> usize {
        self.pool.share()
    }

    /// Changes the member, then wakes those that can have the slots that are free now.
    fn change<T>(&self, change: impl FnOnce(&mut State, Instant) -> T) -> T {
        let now = Instant::now();
        let mut state = self.pool.state.lock();
        let changed = change(&mut state, now);
        let waits = |member: &Member| member.claims || member.waiting > member.reserved(now);
        if state.members.values().any(waits) && state.free(self.pool.total, now) > 0 {
            let free = state.hand_out(&self.pool, now);
            let waiting = state.members.values().filter(|member| waits(member));
            for member in waiting.filter(|member| free.to(member) > 0) {
                if member.waiting > 0 {
                    member.start.notify_one();
                }
                if member.claims {
                    member.room.notify_one();
                }
            }
        }
        changed
    }

    fn member<T: Default>(&self, change: impl FnOnce(&mut Member, Instant) -> T) -> T {
        self.change(|state, now| {
            state.members.get_mut(&self.id).map(|member| change(member, now)).unwrap_or_default()
        })
    }

    /// Returns how many of the claimed jobs that wait can start now.
    pub(super) fn startable(&self) -> usize {
        let now = Instant::now();
        let state = self.pool.state.lock();
        let reserved = state.members.get(&self.id).map_or(0, |member| member.reserved(now));
        reserved + state.grant(self.id, &self.pool, now)
    }

    /// Records how many claimed jobs wait.
    pub(super) fn waits(&self, jobs: usize) {
        self.member(|member, _| member.waiting = jobs);
    }

    /// Records whether the claim loop waits for a slot.
    pub(super) fn claims(&self, claims: bool) {
        self.member(|member, _| member.claims = claims);
    }

    /// Records whether the last claim took all that it was allowed to: then there is probably more.
    pub(super) fn note_claim(&self, took_all: bool) {
        self.member(|member, now| member.busy_until = took_all.then(|| now + LATE));
    }

    /// Returns how many slots this database has or gets for a claim, those of running jobs included, and how many
    /// of them have no job yet.
    pub(super) fn available(&self) -> (usize, usize) {
        let now = Instant::now();
        let mut state = self.pool.state.lock();
        let Some(member) = state.members.get_mut(&self.id) else { return (0, 0) };
        let (claims, running) = (member.claims, member.running);
        member.claims = true;
        let reserved = member.reserved(now);
        let without_job = reserved + state.grant(self.id, &self.pool, now);
        if let Some(member) = state.members.get_mut(&self.id) {
            member.claims = claims;
        }
        (running + without_job, without_job)
    }

    /// Reserves slots for a claim of up to `jobs` jobs, beside those for the jobs that wait.
    pub(super) fn reserve(&self, jobs: usize) {
        self.change(|state, now| {
            if let Some(member) = state.members.get_mut(&self.id) {
                member.claims = true;
            }
            let granted = state.grant(self.id, &self.pool, now);
            let served = state.number();
            if let Some(member) = state.members.get_mut(&self.id) {
                member.claims = false;
                let reserved = member.reserved(now);
                member.reserved = (reserved + granted).min(member.waiting + jobs).max(reserved);
                member.reserved_until = now + LATE;
                if member.reserved > reserved {
                    member.served = served;
                }
            }
        });
    }

    /// Lets the time of the reservation pass.
    #[cfg(test)]
    fn is_late(&self) {
        self.member(|member, now| member.reserved_until = now);
    }

    /// Ends the reservation for a claim: what is left is for the jobs that wait.
    pub(super) fn settle(&self) {
        self.member(|member, now| {
            member.reserved = member.reserved(now).min(member.waiting);
            member.reserved_until = now + LATE;
        });
    }

    /// Frees slots and takes those of the next work. Returns whether it got them; if not, `keeps` keeps the
    /// former ones.
    pub(super) fn swap(&self, freed: Freed, next: Option<usize>, keeps: bool) -> bool {
        self.change(|state, now| {
            let count = |state: &mut State, slots: isize| {
                if let Some(member) = state.members.get_mut(&self.id) {
                    let of = if freed.parked { &mut member.parked } else { &mut member.running };
                    *of = of.saturating_add_signed(slots);
                }
            };
            let slots = freed.slots.cast_signed();
            count(state, -slots);
            let took = next.is_some_and(|slots| state.take(self.id, slots, &self.pool, now));
            if !took && keeps {
                count(state, slots);
            }
            took
        })
    }

    /// Leaves the slots of jobs that wait for their own database to the others; this database may start no more
    /// jobs for them.
    pub(super) fn park(&self, slots: usize) {
        self.member(|member, _| {
            member.running = member.running.saturating_sub(slots);
            member.parked += slots;
        });
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.change(|state, _| state.members.remove(&self.id));
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
