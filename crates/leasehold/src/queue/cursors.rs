//! Cursors: where a worker continues to read in each lane of a queue, and how far each read reaches. A lane
//! is a priority, of deferred jobs or of the others.
//!
//! # Invariants
//! - A claim begins just after the last job that this worker claimed in a lane, so it never reads
//!   past the dead rows of finished jobs again. That keeps claims fast while an old transaction keeps
//!   vacuum from removing them. An idle worker begins a little before now instead: everything due
//!   before that was examined.
//! - Jobs may appear *before* a cursor: a producer committed late, a job was released, or a row was
//!   locked when this worker passed it. A scan from the start finds them. A busy worker scans every
//!   100 ms.
//! - Scans that find nothing take at most 1 % of the time, and so do reads of lanes without a
//!   cursor. Both wait at most a minute, because a slow read may have been an exception. Reads that find
//!   jobs are not delayed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::claim::ClaimedJob;
use super::moment::Moment;

/// Time between two scans while jobs are found.
const SCAN_EVERY: Duration = Duration::from_millis(100);
/// The longest wait for a scan, however slow the last one was.
const SCAN_AFTER: Duration = Duration::from_secs(60);
/// The pause after a read that found nothing, as a multiple of the time that it took the server.
const SHARE: u32 = 100;
/// Reads faster than this need no pause.
const QUICK: Duration = Duration::from_millis(1);
/// How far before now an idle worker begins. A scan finds jobs of producers that commit later than
/// this.
const LONGEST_LOOK_BACK: Duration = Duration::from_secs(10);
const SHORTEST_LOOK_BACK: Duration = Duration::from_millis(100);
/// The most lanes with a cursor. The others are found between them, and read from their start.
const REMEMBERED: usize = 256;

/// The jobs of one priority, deferred or not, in the order in which a claim reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lane {
    pub(crate) deferred: bool,
    pub(crate) priority: i32,
}

impl Lane {
    /// No lane is before this one.
    const FIRST: Self = Self { deferred: false, priority: i32::MIN };
    /// No lane of deferred jobs is before this one.
    const FIRST_DEFERRED: Self = Self { deferred: true, priority: i32::MIN };
    /// Most jobs are in this one.
    const USUAL: Self = Self { deferred: false, priority: 0 };
}

/// The position of a job in its lane.
type Position = (Moment, i64);
const START: Position = (Moment(i64::MIN), 0);

/// How far a read reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// After the cursors only.
    Known,
    /// After the cursors, and all of the lanes that have none.
    Between,
    /// Everything from the start.
    Everything,
}

/// The result of one read, for the cursors.
pub(crate) struct Read<'a> {
    pub(crate) reach: Reach,
    pub(crate) jobs: Vec<&'a ClaimedJob>,
    /// Fewer jobs came than requested: everything due within reach was examined.
    pub(crate) complete: bool,
    /// The server's clock when it read; `None`: it did not read, because the queue is paused.
    pub(crate) as_of: Option<Moment>,
    /// How long the server took.
    pub(crate) took: Duration,
}

#[derive(Debug)]
struct Cursor {
    after: Position,
    /// It gave a job since the last scan began.
    alive: bool,
}

#[derive(Debug)]
pub(crate) struct Cursors {
    known: BTreeMap<Lane, Cursor>,
    look_back: Duration,
    scan_at: Instant,
    between_at: Instant,
    /// How long a read took that found jobs. It is not part of the cost of a scan.
    usual: Duration,
    /// The poll interval of an idle worker.
    poll: Duration,
    /// Whether the last read that looked for deferred jobs found some.
    pub(crate) has_deferred: bool,
}

impl Cursors {
    pub(crate) fn new(poll: Duration) -> Self {
        let now = Instant::now();
        // Read the usual lane without looking for others.
        let known = BTreeMap::from([(Lane::USUAL, Cursor { after: START, alive: true })]);
        Self {
            known,
            look_back: LONGEST_LOOK_BACK,
            scan_at: now,
            between_at: now,
            usual: Duration::ZERO,
            poll,
            has_deferred: false,
        }
    }

    /// Returns how far the next read may reach.
    pub(crate) fn reach(&self, now: Instant) -> Reach {
        if now >= self.scan_at {
            Reach::Everything
        } else if now >= self.between_at {
            Reach::Between
        } else {
            Reach::Known
        }
    }

    /// Returns the cursors of a read in the order of their lanes; with `only_deferred`, those of deferred
    /// jobs.
    pub(crate) fn positions(
        &self,
        reach: Reach,
        only_deferred: bool,
    ) -> impl Iterator<Item = (Lane, Position)> + '_ {
        let first = if only_deferred { Lane::FIRST_DEFERRED } else { Lane::FIRST };
        let known = self.known.range(first..).filter(move |_| reach < Reach::Everything);
        known.map(|(lane, cursor)| (*lane, cursor.after))
    }

    /// Returns the lanes that have a cursor, in order.
    pub(crate) fn lanes(&self) -> Vec<Lane> {
        self.known.keys().copied().collect()
    }

    /// Returns how long to wait after a read that found nothing: until the next read that reaches
    /// further, at most `idle`.
    pub(crate) fn pause(&self, reach: Reach, now: Instant, idle: Duration) -> Duration {
        let until = |at: Instant| at.saturating_duration_since(now);
        match reach {
            Reach::Everything => idle,
            Reach::Between => idle.min(until(self.scan_at)),
            Reach::Known => idle.min(until(self.scan_at)).min(until(self.between_at)),
        }
    }

    /// Moves the cursors by the result of a read, and schedules the next scan.
    pub(crate) fn took(&mut self, read: &Read<'_>) {
        let now = Instant::now();
        let cost = if read.jobs.is_empty() {
            self.delay_reads(read.reach, read.took, now);
            read.took
        } else {
            read.took.saturating_sub(self.usual)
        };
        if read.reach == Reach::Everything {
            self.scan_at = now + cost.saturating_mul(SHARE).clamp(SCAN_EVERY, SCAN_AFTER);
            self.known.values_mut().for_each(|cursor| cursor.alive = false);
        } else if !read.jobs.is_empty() {
            self.usual = read.took;
        }
        self.advance(read);
        if let (Some(as_of), true, true) = (read.as_of, read.complete, read.jobs.is_empty()) {
            self.look_from(as_of);
        }
    }

    /// Records a read without a reply. The next ones reach less far, so that the worker still claims if
    /// a scan takes longer than a call may.
    pub(crate) fn failed(&mut self, reach: Reach, took: Duration) {
        let now = Instant::now();
        self.delay_reads(reach, took, now);
        if reach == Reach::Everything {
            self.scan_at = now + took.saturating_mul(SHARE).clamp(SCAN_EVERY, SCAN_AFTER);
        }
    }

    /// Moves every cursor to a little before the server's clock.
    pub(crate) fn look_from(&mut self, as_of: Moment) {
        let back = i64::try_from(self.look_back.as_micros()).unwrap_or(i64::MAX);
        let from = (Moment(as_of.0.saturating_sub(back)), 0);
        self.known.values_mut().for_each(|cursor| cursor.after = from);
    }

    /// Delays reads beyond the cursors that find nothing, and shortens the look-back if even reads of
    /// the cursors are slow.
    fn delay_reads(&mut self, reach: Reach, took: Duration, now: Instant) {
        let slow = took > QUICK && took.saturating_mul(SHARE) > self.poll;
        match reach {
            Reach::Known if slow => {
                self.look_back = (self.look_back / 2).max(SHORTEST_LOOK_BACK);
            }
            Reach::Known => self.look_back = (self.look_back * 2).min(LONGEST_LOOK_BACK),
            Reach::Between if slow => {
                self.between_at = now + took.saturating_mul(SHARE).min(SCAN_AFTER);
            }
            // The slow rows may be after the cursors. A read half-way to the next scan finds out.
            Reach::Everything if slow => {
                self.between_at = now + took.saturating_mul(SHARE / 2).min(SCAN_AFTER / 2);
            }
            Reach::Between | Reach::Everything => {
                self.between_at = now;
                self.look_back = (self.look_back * 2).min(LONGEST_LOOK_BACK);
            }
        }
    }

    /// Moves the cursor of each lane that gave jobs to its last one.
    fn advance(&mut self, read: &Read<'_>) {
        let mut last: BTreeMap<Lane, Position> = BTreeMap::new();
        // They are in order, so the jobs of a lane follow each other.
        for lane in read.jobs.chunk_by(|one, other| one.lane() == other.lane()) {
            let position = lane.iter().map(|job| (job.scheduled_at, job.id.0)).max();
            if let (Some(first), Some(position)) = (lane.first(), position) {
                let furthest = last.entry(first.lane()).or_insert(position);
                *furthest = position.max(*furthest);
            }
        }
        for (lane, position) in last {
            let cursor = self.known.entry(lane).or_insert(Cursor { after: position, alive: true });
            cursor.alive = true;
            // A scan that hit its limit may have left jobs between its last one and the cursor.
            let back = read.reach == Reach::Everything && !read.complete;
            cursor.after = if back { position } else { position.max(cursor.after) };
        }
        while self.known.len() > REMEMBERED {
            let idle = self.known.iter().rev().find(|(_, cursor)| !cursor.alive);
            let Some((&lane, _)) = idle.or_else(|| self.known.last_key_value()) else { return };
            self.known.remove(&lane);
        }
    }
}

#[cfg(test)]
#[path = "cursors_tests.rs"]
mod tests;
