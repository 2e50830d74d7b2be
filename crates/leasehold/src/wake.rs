//! Wake-ups: hints that a queue has work, many enqueues sharing one.
//!
//! NOTIFY takes a lock of the whole database at commit, so it is sent beside enqueues, never inside
//! them, and at most once a moment for each queue. The last enqueue of a burst is always followed by
//! one: without it the job would wait for the worker's next look.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Wake-ups of one queue closer together than this are sent as one.
pub(crate) const EVERY: Duration = Duration::from_millis(2);
/// So many queues are remembered.
const MOST: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Wakes(Mutex<HashMap<String, Sent>>);

#[derive(Debug)]
struct Sent {
    at: Instant,
    another_is_due: bool,
}

/// What to do for one enqueue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// Send one now.
    Now,
    /// One was just sent: send another after [`EVERY`].
    Later,
    /// Another is due anyway.
    Shared,
}

impl Wakes {
    pub(crate) fn ask(&self, queue: &str, now: Instant) -> Wake {
        let mut sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match sent.get_mut(queue) {
            Some(last) if now.saturating_duration_since(last.at) < EVERY => {
                if last.another_is_due {
                    return Wake::Shared;
                }
                last.another_is_due = true;
                Wake::Later
            }
            Some(last) => {
                *last = Sent { at: now, another_is_due: false };
                Wake::Now
            }
            None => {
                if sent.len() >= MOST {
                    sent.clear();
                }
                sent.insert(queue.to_owned(), Sent { at: now, another_is_due: false });
                Wake::Now
            }
        }
    }

    /// The wake-up that was put off is being sent.
    pub(crate) fn sending(&self, queue: &str, now: Instant) {
        let mut sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sent.insert(queue.to_owned(), Sent { at: now, another_is_due: false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_gets_a_first_and_a_last_wake_up() {
        let wakes = Wakes::default();
        let start = Instant::now();
        assert_eq!(wakes.ask("a", start), Wake::Now);
        assert_eq!(wakes.ask("a", start), Wake::Later);
        assert_eq!(wakes.ask("a", start), Wake::Shared);
        wakes.sending("a", start + EVERY);
        assert_eq!(wakes.ask("a", start + EVERY), Wake::Later);
        assert_eq!(wakes.ask("a", start + 3 * EVERY), Wake::Now);
    }

    #[test]
    fn queues_do_not_share_their_wake_ups() {
        let wakes = Wakes::default();
        let now = Instant::now();
        assert_eq!(wakes.ask("a", now), Wake::Now);
        assert_eq!(wakes.ask("b", now), Wake::Now);
    }
}
