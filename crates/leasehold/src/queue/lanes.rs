//! Lanes: where to read on in each (name, priority) of a queue.
//!
//! # What is true
//! - A claim begins just after the last job that this worker claimed in the lane, so it never
//!   reads past the remains of finished jobs again. That keeps claims fast while an old
//!   transaction keeps vacuum from removing them.
//! - Jobs may appear *before* that place: a producer that committed late, a released job, a row that
//!   was locked when we passed. A rescan from the start finds them. While busy it happens every
//!   100 ms, or less often when finding the lanes is slow, so that it costs at most a fiftieth; after
//!   ten seconds in any case, because what was slow may have been slow once.

use std::time::{Duration, Instant};

use super::claim::ClaimedJob;
use super::moment::Moment;

const RESCAN_EVERY: Duration = Duration::from_millis(100);
/// Time between rescans is at least this many times what the last one took.
const RESCAN_SHARE: u32 = 50;
const RESCAN_AFTER: Duration = Duration::from_secs(10);

/// So many lanes are remembered between rescans; more are found again by the next rescan.
const REMEMBERED: usize = 256;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lane {
    pub(crate) name: String,
    pub(crate) priority: i32,
    /// The place of the last job that was claimed here; `None`: read from the start.
    pub(crate) after: Option<(Moment, i64)>,
}

#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    rescan_at: Instant,
}

impl Lanes {
    pub(crate) fn new() -> Self {
        Self { lanes: Vec::new(), rescan_at: Instant::now() }
    }

    pub(crate) fn rescan_at(&self) -> Instant {
        self.rescan_at
    }

    /// Whoever knows that a job lies before our place calls this.
    pub(crate) fn rescan_soon(&mut self) {
        self.rescan_at = Instant::now();
    }

    pub(crate) fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// Takes in what a rescan found. `complete`: it read every lane to its end, so the old places
    /// still hold where they lie further on. `took`: how long it took to find the lanes, which grows
    /// with the remains of finished jobs; not the claims, which also wait for the disk.
    pub(crate) fn end_rescan(
        &mut self,
        scanned: Vec<Lane>,
        claimed: &[ClaimedJob],
        complete: bool,
        took: Duration,
    ) {
        for lane in scanned {
            if !self.lanes.iter().any(|old| old.is_same(&lane)) && self.lanes.len() < REMEMBERED {
                self.lanes.push(lane);
            }
        }
        if !complete {
            // Lanes that gave jobs are read on from the last of them, not from the old place.
            for lane in &mut self.lanes {
                if claimed.iter().any(|job| lane.holds(job)) {
                    lane.after = None;
                }
            }
        }
        self.advance(claimed);
        let pause = took.saturating_mul(RESCAN_SHARE).clamp(RESCAN_EVERY, RESCAN_AFTER);
        self.rescan_at = Instant::now() + pause;
    }

    /// Moves each lane to its furthest claimed job.
    pub(crate) fn advance(&mut self, claimed: &[ClaimedJob]) {
        for job in claimed {
            let place = (job.scheduled_at, job.id.0);
            // Few lanes: a walk is cheaper than a map.
            if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.holds(job))
                && lane.after.is_none_or(|after| after < place)
            {
                lane.after = Some(place);
            }
        }
    }
}

/// Jobs that were put off have their priority and this. See `leasehold.put_off`.
pub(crate) const PUT_OFF: i32 = 1_000_000;

impl Lane {
    /// Holds jobs that were put off.
    pub(crate) fn is_put_off(&self) -> bool {
        self.priority >= PUT_OFF
    }

    fn is_same(&self, other: &Self) -> bool {
        self.priority == other.priority && self.name == other.name
    }

    fn holds(&self, job: &ClaimedJob) -> bool {
        self.priority == job.priority && self.name == *job.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_rescan_happens_less_often() {
        let mut lanes = Lanes::new();
        lanes.end_rescan(Vec::new(), &[], true, Duration::from_millis(1));
        let quick = lanes.rescan_at();
        lanes.end_rescan(Vec::new(), &[], true, Duration::from_millis(50));
        assert!(lanes.rescan_at() >= quick + Duration::from_millis(800));
        lanes.end_rescan(Vec::new(), &[], true, Duration::from_secs(60));
        assert!(lanes.rescan_at() <= Instant::now() + RESCAN_AFTER, "but it happens");
    }

    #[test]
    fn an_empty_rescan_keeps_the_place_in_each_lane() {
        let mut lanes = Lanes::new();
        let place = Some((Moment(0), 7));
        lanes.lanes.push(Lane { name: "a".into(), priority: 0, after: place });
        let scanned = Lane { name: "a".into(), priority: 0, after: None };
        lanes.end_rescan(vec![scanned], &[], true, Duration::ZERO);
        assert_eq!(lanes.lanes(), [Lane { name: "a".into(), priority: 0, after: place }]);
    }
}
