//! How the databases of a fleet share slots, without a database.

use super::{Freed, Share, SlotPool};

fn two(slots: usize) -> (Share, Share) {
    let pool = SlotPool::new(slots, 2);
    (pool.join(slots), pool.join(slots))
}

/// Reserves for a claim of up to `most` jobs, and returns how many slots it has for them.
fn reserve(share: &Share, most: usize) -> usize {
    let free = share.available().1.min(most);
    if free > 0 {
        share.reserve(free);
    }
    free
}

/// Ends a claim that found `jobs` jobs, and starts what has a slot. Returns how many started.
fn start(share: &Share, jobs: usize) -> usize {
    share.waits(jobs);
    share.settle();
    (0..jobs).filter(|_| share.swap(NOTHING, Some(1), false)).count()
}

/// Claims from a database that has more jobs than it may claim.
fn claim(share: &Share) -> usize {
    let reserved = reserve(share, 100);
    if reserved > 0 {
        share.note_claim(true);
    }
    start(share, reserved)
}

const NOTHING: Freed = Freed { slots: 0, parked: false };
const ONE: Freed = Freed { slots: 1, parked: false };

/// Ends one job.
fn end(share: &Share) {
    share.swap(ONE, None, false);
}

#[test]
fn b22_idle_database_leaves_its_share_and_gets_it_back_as_slots_become_free() {
    let (busy, quiet) = two(10);
    assert_eq!(claim(&busy), 5, "an equal share until it is known to have more");
    assert_eq!(claim(&busy), 5, "the other one wants none");
    busy.claims(true);
    quiet.claims(true);
    for _ in 0..5 {
        assert_eq!((claim(&busy), claim(&quiet)), (0, 0));
        end(&busy);
        assert_eq!(claim(&busy), 0, "it holds more than the other");
        quiet.claims(true);
        assert_eq!(claim(&quiet), 1);
        quiet.claims(true);
    }
    busy.claims(true);
    assert_eq!(claim(&quiet), 0);
    end(&busy);
    assert_eq!(claim(&quiet), 0, "it has its share");
    assert_eq!(claim(&busy), 1);
}

#[test]
fn b22_free_slots_fill_those_that_hold_the_fewest_first() {
    let pool = SlotPool::new(9, 3);
    let members = [pool.join(9), pool.join(9), pool.join(9)];
    assert_eq!(claim(&members[0]), 3);
    members.iter().for_each(|member| member.claims(true));
    // The first has a third and wants more; the others share what is free without it.
    assert_eq!((reserve(&members[1], 100), reserve(&members[2], 100)), (3, 3));
    assert_eq!(reserve(&members[0], 100), 0);
    assert_eq!((start(&members[1], 0), start(&members[2], 0)), (0, 0));
    assert_eq!(reserve(&members[0], 100), 6, "the others had nothing to run");
}

#[test]
fn b22_slot_that_a_job_leaves_goes_to_the_database_with_fewer() {
    let (many, few) = two(4);
    assert_eq!((claim(&many), claim(&many)), (2, 2));
    many.waits(10);
    few.waits(1);
    assert!(!many.swap(ONE, Some(1), false), "the next job of the other database is first");
    assert!(few.swap(NOTHING, Some(1), false));
    assert!(many.swap(ONE, Some(1), false), "the other one waits for nothing");
}

#[test]
fn b22_one_slot_serves_databases_in_turns() {
    let (one, other) = two(1);
    one.waits(10);
    other.waits(10);
    assert!(one.swap(NOTHING, Some(1), false));
    for _ in 0..4 {
        assert!(!one.swap(ONE, Some(1), false));
        assert!(other.swap(NOTHING, Some(1), false));
        assert!(!other.swap(ONE, Some(1), false));
        assert!(one.swap(NOTHING, Some(1), false));
    }
}

#[test]
fn b22_task_that_keeps_its_slot_keeps_it_until_it_is_done() {
    let (one, other) = two(1);
    one.waits(2);
    other.waits(1);
    assert!(one.swap(NOTHING, Some(1), false));
    assert!(!one.swap(ONE, Some(1), true));
    assert!(!other.swap(NOTHING, Some(1), false));
    end(&one);
    assert!(other.swap(NOTHING, Some(1), false));
}

#[test]
fn b20_claim_of_a_database_that_may_have_nothing_leaves_slots_for_the_others() {
    let (one, other) = two(10);
    assert_eq!((reserve(&one, 100), reserve(&other, 100)), (5, 5));
}

#[test]
fn b20_claim_without_a_reply_holds_no_slots_for_long() {
    let (one, other) = two(1);
    assert_eq!((reserve(&one, 100), reserve(&other, 100)), (1, 0));
    one.is_late();
    assert_eq!(claim(&other), 1, "the other one has the slot");
    // The reply comes with a job all the same: it waits for the slot.
    assert_eq!(start(&one, 1), 0);
    assert!(!other.swap(ONE, Some(1), false));
    assert_eq!(claim(&other), 0);
    assert!(one.swap(NOTHING, Some(1), false));
}

#[test]
fn b20_job_that_waits_for_its_own_database_leaves_its_slot_to_the_others() {
    let (down, up) = two(4);
    assert_eq!((claim(&down), claim(&down)), (2, 2));
    down.park(4);
    assert_eq!(claim(&down), 0, "it starts no more jobs for them");
    assert_eq!((claim(&up), claim(&up)), (2, 2));
    down.swap(Freed { slots: 4, parked: true }, None, false);
    (0..4).for_each(|_| end(&up));
    up.note_claim(false);
    assert!(claim(&down) >= 2);
}

#[test]
fn jobs_of_all_databases_are_never_more_than_the_slots() {
    let pool = SlotPool::new(7, 3);
    let members = [pool.join(7), pool.join(3), pool.join(7)];
    let mut running = [0_usize; 3];
    for _ in 0..3000 {
        let at = rand::random_range(0..3);
        let member = &members[at];
        match rand::random_range(0..4) {
            0 if running[at] > 0 => {
                end(member);
                running[at] -= 1;
            }
            1 => member.note_claim(false),
            2 => drop(reserve(member, 100)),
            _ => running[at] += claim(member),
        }
        assert!(running.iter().sum::<usize>() <= 7, "{running:?}");
        assert!(running[1] <= 3);
    }
    for (member, running) in members.iter().zip(running) {
        (0..running).for_each(|_| end(member));
        member.waits(0);
        member.settle();
        member.note_claim(true);
    }
    let [one, two, three] = members;
    drop((two, three));
    one.note_claim(true);
    assert_eq!(one.available(), (7, 7), "all are free again");
}
