//! How the databases of a fleet share slots, without a database.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;

use super::{Permit, Reservation, SlotPool, Slots};

type Claiming = Pin<Box<dyn Future<Output = Reservation>>>;

fn two(slots: usize) -> (Arc<Slots>, Arc<Slots>) {
    let pool = SlotPool::new(slots, 2);
    (pool.join(slots), pool.join(slots))
}

fn claiming(slots: &Arc<Slots>) -> Claiming {
    let slots = Arc::clone(slots);
    Box::pin(async move { slots.reserve(100, 1, Duration::ZERO).await })
}

/// Fills the slots that a reservation has, as a claim does that finds more jobs than it may take.
async fn fill(slots: &Arc<Slots>, reserved: Reservation) -> Vec<Permit> {
    let up_to = reserved.renew();
    slots.note_claim(true);
    let mut started = Vec::new();
    for _ in 0..up_to {
        started.push(slots.acquire(1).await);
    }
    started
}

/// Claims, or returns `None` if that has to wait for a slot.
async fn claim_now(slots: &Arc<Slots>, claiming: &mut Claiming) -> Option<Vec<Permit>> {
    match poll!(claiming) {
        std::task::Poll::Ready(reserved) => Some(fill(slots, reserved).await),
        std::task::Poll::Pending => None,
    }
}

#[tokio::test]
async fn b22_idle_database_leaves_its_share_and_gets_it_back_as_slots_become_free() {
    let (busy, quiet) = two(10);
    let first = claiming(&busy).await;
    let mut jobs = fill(&busy, first).await;
    assert_eq!(jobs.len(), 5, "an equal share until it is known to have more");
    let second = claiming(&busy).await;
    jobs.extend(fill(&busy, second).await);
    assert_eq!(jobs.len(), 10, "the other one wants none");
    let (mut more, mut few) = (claiming(&busy), claiming(&quiet));
    let mut started = Vec::new();
    for held in 1..=5 {
        assert!(claim_now(&busy, &mut more).await.is_none());
        assert!(claim_now(&quiet, &mut few).await.is_none());
        jobs.pop();
        assert!(claim_now(&busy, &mut more).await.is_none(), "it holds more than the other");
        started.extend(claim_now(&quiet, &mut few).await.expect("a slot"));
        few = claiming(&quiet);
        assert_eq!(started.len(), held);
    }
    assert!(claim_now(&quiet, &mut few).await.is_none());
    jobs.pop();
    assert!(claim_now(&quiet, &mut few).await.is_none(), "it has its share");
    assert_eq!(claim_now(&busy, &mut more).await.map(|jobs| jobs.len()), Some(1));
}

#[tokio::test]
async fn b22_free_slots_fill_those_that_hold_the_fewest_first() {
    let pool = SlotPool::new(9, 3);
    let members = [pool.join(9), pool.join(9), pool.join(9)];
    let one = fill(&members[0], claiming(&members[0]).await).await;
    assert_eq!(one.len(), 3);
    let mut waiting: Vec<Claiming> = members.iter().map(claiming).collect();
    // The first has a third and wants more; the others share what is free without it.
    let mut reserved = Vec::new();
    for waiting in &mut waiting[1..] {
        let std::task::Poll::Ready(slots) = poll!(waiting) else { panic!("slots are free") };
        reserved.push(slots);
    }
    assert_eq!(reserved.iter().map(Reservation::renew).collect::<Vec<_>>(), [3, 3]);
    assert!(poll!(&mut waiting[0]).is_pending());
    drop(reserved);
    let std::task::Poll::Ready(slots) = poll!(&mut waiting[0]) else { panic!("slots are free") };
    assert_eq!(slots.renew(), 6, "the others had nothing to run");
}

#[tokio::test]
async fn b20_claim_of_a_database_that_may_have_nothing_leaves_slots_for_the_others() {
    let (one, other) = two(10);
    let without_reply = claiming(&one).await;
    assert_eq!(without_reply.renew(), 5);
    let std::task::Poll::Ready(slots) = poll!(claiming(&other)) else { panic!("slots are free") };
    assert_eq!(slots.renew(), 5);
}

#[tokio::test]
async fn b20_claim_without_a_reply_holds_no_slots_for_long() {
    let (one, other) = two(1);
    let without_reply = claiming(&one).await;
    let reserved = claiming(&other).await;
    assert_eq!(without_reply.renew(), 0, "the other one has the slot");
    let running = fill(&other, reserved).await;
    // The reply comes with a job all the same: it waits for the slot, before every claim.
    let (mut late, mut more) = (Box::pin(one.acquire(1)), claiming(&other));
    assert!(poll!(&mut late).is_pending() && poll!(&mut more).is_pending());
    drop(running);
    assert!(poll!(&mut more).is_pending());
    assert!(poll!(&mut late).is_ready());
}

#[tokio::test]
async fn b20_job_that_waits_for_its_own_database_leaves_its_slot_to_the_others() {
    let (down, up) = two(4);
    let mut jobs = fill(&down, claiming(&down).await).await;
    jobs.extend(fill(&down, claiming(&down).await).await);
    assert_eq!(jobs.len(), 4);
    let (mut more, mut other) = (claiming(&down), claiming(&up));
    jobs.iter().for_each(Permit::park);
    assert!(poll!(&mut more).is_pending(), "it starts no more jobs for them");
    assert_eq!(claim_now(&up, &mut other).await.map(|jobs| jobs.len()), Some(2));
    drop(jobs);
    assert!(poll!(&mut more).is_ready());
}

#[tokio::test]
async fn a_worker_of_one_database_keeps_the_slot_of_a_job_until_its_end_is_handed_over() {
    let slots = SlotPool::new(1, 1).join(1);
    let job = fill(&slots, claiming(&slots).await).await;
    job.iter().for_each(Permit::park);
    let mut more = claiming(&slots);
    assert!(poll!(&mut more).is_pending());
    drop(job);
    assert!(poll!(&mut more).is_ready());
}

#[tokio::test]
async fn jobs_of_all_databases_are_never_more_than_the_slots() {
    let pool = SlotPool::new(7, 3);
    let members = [pool.join(7), pool.join(3), pool.join(7)];
    let mut running: Vec<Vec<Permit>> = (0..3).map(|_| Vec::new()).collect();
    for _ in 0..3000 {
        let at = rand::random_range(0..3);
        match rand::random_range(0..3) {
            0 => drop(running[at].pop()),
            1 => members[at].note_claim(false),
            _ => {
                if let Some(jobs) = claim_now(&members[at], &mut claiming(&members[at])).await {
                    running[at].extend(jobs);
                }
            }
        }
        assert!(running.iter().map(Vec::len).sum::<usize>() <= 7);
        assert!(running[1].len() <= 3);
    }
    running.clear();
    members.iter().for_each(|member| member.note_claim(true));
    drop(members);
    assert_eq!(pool.join(7).reserve(7, 1, Duration::ZERO).await.renew(), 2, "all are free again");
}
