//! Services: the background loops of a process, all of one shape.
//!
//! A [`Service`] has turns. [`run_every`] runs one, waits, and runs the next, until it is asked to stop;
//! [`Duty`] handles the results.
//!
//! # Invariants
//! - After a success the next turn comes after the interval, shortened at random; after a failure it comes after
//!   a backoff of at most 2 s.
//! - A turn that fails or panics ends neither its own service nor another one.
//! - A stop ends the wait at once. It does not interrupt a turn: a turn that may be abandoned half-way is wrapped
//!   in [`CancellationToken::run_until_cancelled`] by its caller.

mod duty;

use std::fmt::Display;
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;

pub use duty::Duty;
pub use tokio_util::sync::CancellationToken;

use crate::backoff::{Backoff, RECONNECT, jitter};

/// [`retry_with_warnings`] warns at every failure whose number is a multiple of this.
const WARN_EVERY: u32 = 60;

/// Work that is done again and again in the background.
pub trait Service: Send {
    /// Why a turn failed.
    type Error: Display;

    /// Does what is due.
    fn turn(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Runs a turn of the service every `interval` until `stop`, and passes each result to the duty.
pub async fn run_every(
    mut service: impl Service,
    mut duty: Duty,
    interval: Duration,
    stop: &CancellationToken,
) {
    let mut backoff = RECONNECT.waits();
    while !stop.is_cancelled() {
        let failure = match AssertUnwindSafe(service.turn()).catch_unwind().await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(panic) => {
                let text = format!("panicked: {}", panic_text(&*panic));
                tracing::error!(duty = duty.name(), "a duty {text}");
                Some(text)
            }
        };
        let pause = match failure {
            None => {
                duty.note_success();
                backoff.reset();
                jitter(interval)
            }
            Some(error) => {
                duty.note_failure(&error);
                backoff.next_wait()
            }
        };
        let _ = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
    }
}

/// Waits by the backoff, then calls `attempt`; repeats both until a call returns [`ControlFlow::Break`].
pub async fn retry<T, F>(backoff: Backoff, mut attempt: impl FnMut() -> F) -> T
where
    F: Future<Output = ControlFlow<T>>,
{
    let mut waits = backoff.waits();
    loop {
        tokio::time::sleep(waits.next_wait()).await;
        if let ControlFlow::Break(value) = attempt().await {
            return value;
        }
    }
}

/// Like [`retry`], for calls that fail with an error. Logs each failure together with its `effect` for users:
/// every 60th as a warning, the others for debugging.
pub async fn retry_with_warnings<E: Display, F>(
    backoff: Backoff,
    effect: &str,
    mut attempt: impl FnMut() -> F,
) where
    F: Future<Output = ControlFlow<(), E>>,
{
    let mut tries = 0_u32;
    retry(backoff, || {
        tries = tries.wrapping_add(1);
        let (tried, number) = (attempt(), tries);
        async move {
            let ControlFlow::Continue(error) = tried.await else { return ControlFlow::Break(()) };
            match number.is_multiple_of(WARN_EVERY) {
                true => tracing::warn!(tries = number, %error, "{effect}"),
                false => tracing::debug!(tries = number, %error, "{effect}"),
            }
            ControlFlow::Continue(())
        }
    })
    .await;
}

/// Returns the message of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{Event, Events};

    const NEVER: Duration = Duration::from_secs(1 << 30);

    /// Calls a function per turn, with the number of the turn.
    struct Counting<F> {
        turns: u32,
        turn: F,
    }

    impl<F: FnMut(u32) -> Result<(), &'static str> + Send> Service for Counting<F> {
        type Error = &'static str;

        async fn turn(&mut self) -> Result<(), &'static str> {
            self.turns += 1;
            tokio::task::yield_now().await;
            (self.turn)(self.turns)
        }
    }

    async fn run(
        events: &Events,
        stop: &CancellationToken,
        turn: impl FnMut(u32) -> Result<(), &'static str> + Send,
    ) {
        let duty = Duty::new("count", events);
        run_every(Counting { turns: 0, turn }, duty, NEVER, stop).await;
    }

    #[tokio::test]
    async fn stop_ends_the_wait_between_two_turns() {
        let (stop, mut turns) = (CancellationToken::new(), 0);
        let events = Events::default();
        let running = run(&events, &stop, |turn| {
            turns = turn;
            Ok(())
        });
        let stopping = async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            stop.cancel();
        };
        tokio::join!(running, stopping);
        assert_eq!(turns, 1);
    }

    #[tokio::test]
    async fn stop_lets_a_turn_end() {
        let (stop, mut ended) = (CancellationToken::new(), false);
        let events = Events::default();
        let running = run(&events, &stop, |_| {
            ended = true;
            Ok(())
        });
        // The turn has begun when the stop comes: it yields first.
        tokio::join!(running, async { stop.cancel() });
        assert!(ended);
    }

    #[tokio::test]
    async fn retry_ends_with_the_first_try_that_breaks() {
        let backoff = Backoff::doubling(Duration::ZERO, Duration::ZERO);
        let mut tries = 0;
        let ended = retry(backoff, || {
            tries += 1;
            let end =
                if tries == 3 { ControlFlow::Break(tries) } else { ControlFlow::Continue(()) };
            std::future::ready(end)
        });
        assert_eq!(ended.await, 3);
        let mut left = 2 * WARN_EVERY;
        retry_with_warnings(backoff, "nothing is stored", || {
            left -= 1;
            let end =
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue("no disk") };
            std::future::ready(end)
        })
        .await;
        assert_eq!(left, 0);
    }

    #[tokio::test]
    async fn turn_that_fails_or_panics_is_tried_again_after_a_backoff() {
        let (stop, events, mut turns) = (CancellationToken::new(), Events::default(), 0);
        let mut seen = events.subscribe();
        run(&events, &stop, |turn| {
            turns = turn;
            match turn {
                1..5 => Err("no disk"),
                5 => panic!("on purpose"),
                _ => {
                    stop.cancel();
                    Ok(())
                }
            }
        })
        .await;
        assert_eq!(turns, 6);
        let event = seen.try_recv().expect("the fifth failure in a row is an event");
        let Event::DutyFailing { duty, times, error } = event else { panic!("{event:?}") };
        assert_eq!((&*duty, times, &*error), ("count", 5, "panicked: on purpose"));
    }
}
