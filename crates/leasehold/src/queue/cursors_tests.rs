//! Cursors without a database.

use std::sync::Arc;

use super::*;
use crate::job::{Generation, JobId};
use crate::queue::claim::JsonBytes;

const POLL: Duration = Duration::from_millis(500);
const SECOND: i64 = 1_000_000;

fn job(priority: i32, at: i64, id: i64) -> ClaimedJob {
    ClaimedJob {
        id: JobId(id),
        name: Arc::from("note"),
        kwargs: JsonBytes::default(),
        priority,
        scheduled_at: Moment(at),
        attempts: 1,
        max_attempts: 25,
        lost_count: 0,
        generation: Generation(1),
        tag: String::new(),
        enqueued_at: Moment(at),
        key: None,
        trace_context: None,
        deferred: false,
    }
}

fn read(reach: Reach, jobs: &[ClaimedJob], complete: bool, took: Duration) -> Read<'_> {
    Read { reach, jobs: jobs.iter().collect(), complete, as_of: Some(Moment(100 * SECOND)), took }
}

fn cursor_of(cursors: &Cursors, priority: i32) -> Option<Position> {
    let lane = Lane { deferred: false, priority };
    cursors.positions(Reach::Known, false).find(|known| known.0 == lane).map(|known| known.1)
}

#[test]
fn c22_slow_scan_leaves_reads_of_the_cursors_in_between_and_comes_back_within_a_minute() {
    let mut cursors = Cursors::new(POLL);
    assert_eq!(cursors.reach(Instant::now()), Reach::Everything);
    cursors.took(&read(Reach::Everything, &[], true, Duration::from_millis(300)));
    let now = Instant::now();
    assert_eq!(cursors.reach(now), Reach::Known);
    assert_eq!(cursors.reach(now + Duration::from_secs(16)), Reach::Between);
    assert_eq!(cursors.reach(now + Duration::from_secs(31)), Reach::Everything);
    cursors.took(&read(Reach::Everything, &[], true, Duration::from_secs(20)));
    assert_eq!(cursors.reach(Instant::now() + Duration::from_secs(61)), Reach::Everything);
}

#[test]
fn c22_quick_scan_holds_no_idle_poll_back() {
    let mut cursors = Cursors::new(POLL);
    cursors.took(&read(Reach::Everything, &[], true, Duration::from_micros(300)));
    let now = Instant::now();
    assert_eq!(cursors.reach(now), Reach::Between);
    assert_eq!(cursors.reach(now + POLL), Reach::Everything);
    assert_eq!(cursors.pause(Reach::Everything, now, POLL), POLL);
    assert!(cursors.pause(Reach::Between, now, POLL) <= SCAN_EVERY);
}

#[test]
fn c22_failed_scan_is_followed_by_a_read_of_the_cursors() {
    let mut cursors = Cursors::new(POLL);
    cursors.failed(Reach::Everything, Duration::from_secs(30));
    assert_eq!(cursors.reach(Instant::now()), Reach::Known);
    assert_eq!(cursors.reach(Instant::now() + Duration::from_secs(61)), Reach::Everything);
}

#[test]
fn c22_empty_read_moves_every_cursor_to_a_little_before_now() {
    let mut cursors = Cursors::new(POLL);
    cursors.took(&read(Reach::Between, &[job(3, SECOND, 7)], false, QUICK));
    assert_eq!(cursor_of(&cursors, 3), Some((Moment(SECOND), 7)));
    cursors.took(&read(Reach::Between, &[], true, QUICK));
    assert_eq!(cursor_of(&cursors, 3), Some((Moment(90 * SECOND), 0)));
    let mut paused = read(Reach::Between, &[], true, QUICK);
    paused.as_of = None;
    cursors.took(&read(Reach::Between, &[job(3, 95 * SECOND, 8)], false, QUICK));
    cursors.took(&paused);
    assert_eq!(
        cursor_of(&cursors, 3),
        Some((Moment(95 * SECOND), 8)),
        "a paused queue is not read"
    );
}

#[test]
fn c22_slow_reads_of_the_cursors_look_back_less_far() {
    let mut cursors = Cursors::new(POLL);
    for _ in 0..20 {
        cursors.took(&read(Reach::Known, &[], true, Duration::from_millis(40)));
    }
    assert_eq!(cursors.look_back, SHORTEST_LOOK_BACK);
    for _ in 0..20 {
        cursors.took(&read(Reach::Known, &[], true, QUICK));
    }
    assert_eq!(cursors.look_back, LONGEST_LOOK_BACK);
}

#[test]
fn scan_that_was_cut_off_reads_on_from_its_last_job() {
    let mut cursors = Cursors::new(POLL);
    cursors.took(&read(Reach::Between, &[job(0, 50, 50)], false, QUICK));
    cursors.took(&read(Reach::Everything, &[job(0, 20, 20)], true, QUICK));
    assert_eq!(cursor_of(&cursors, 0), Some((Moment(50), 50)), "it read to the end");
    cursors.took(&read(Reach::Everything, &[job(0, 20, 20)], false, QUICK));
    assert_eq!(cursor_of(&cursors, 0), Some((Moment(20), 20)));
}

#[test]
fn a31_priorities_beyond_the_remembered_replace_those_that_a_scan_did_not_see() {
    let mut cursors = Cursors::new(POLL);
    let low: Vec<_> = (1..=300).map(|n| job(n, 1, i64::from(n))).collect();
    cursors.took(&read(Reach::Between, &low, false, QUICK));
    assert_eq!(cursors.known.len(), REMEMBERED);
    assert!(cursor_of(&cursors, 1).is_some());
    assert!(cursor_of(&cursors, 300).is_none(), "the highest are dropped first");
    // A scan finds other priorities; those that it does not find make room.
    let high: Vec<_> = (1000..1100).map(|n| job(n, 1, i64::from(n))).collect();
    cursors.took(&read(Reach::Everything, &high, false, QUICK));
    assert_eq!(cursors.known.len(), REMEMBERED);
    assert!(cursor_of(&cursors, 1099).is_some());
    assert!(cursor_of(&cursors, 250).is_none());
    assert!(cursor_of(&cursors, 1).is_some());
}

#[test]
fn deferred_jobs_have_cursors_of_their_own_behind_all_others() {
    let mut cursors = Cursors::new(POLL);
    let deferred = ClaimedJob { deferred: true, ..job(-5, 30, 30) };
    cursors.took(&read(Reach::Between, &[job(7, 20, 20), deferred], false, QUICK));
    let priorities: Vec<_> =
        cursors.lanes().iter().map(|lane| (lane.deferred, lane.priority)).collect();
    assert_eq!(priorities, [(false, 0), (false, 7), (true, -5)]);
    let late: Vec<_> = cursors.positions(Reach::Known, true).collect();
    let lane = Lane { deferred: true, priority: -5 };
    assert_eq!(late, [(lane, (Moment(30), 30))], "a claim of deferred jobs reads on from there");
}
