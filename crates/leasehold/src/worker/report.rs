//! The log lines about how attempts ended.

use std::time::Duration;

use super::context::Attempt;
use super::run::span;
use crate::duration::short;
use crate::error::CallError;
use crate::error_text::one_line;
use crate::job::{Generation, JobId};
use crate::queue::finish::{Finished, Transition};

/// Logs that an attempt failed and what follows: a warning while attempts are left, an error at the
/// end. A deferral that does not count is no failure.
pub(super) fn failed(
    attempt: &Attempt,
    outcome: Finished,
    next_in: Option<Duration>,
    transition: &Transition,
) {
    let Some(why) = transition.why() else { return };
    let (which, why) = (which_attempt(attempt), one_line(why));
    span(attempt).in_scope(|| match (outcome, transition) {
        (Finished::Retried, _) => {
            let wait = next_in.map_or_else(|| "a moment".to_owned(), short);
            tracing::warn!("{which} failed, next in {wait}: {why}");
        }
        (Finished::Deferred, Transition::Defer { wait, counted: true, .. }) => {
            tracing::warn!("{which} failed, next in {}: {why}", short(*wait));
        }
        (Finished::Snoozed, Transition::Snooze { wait, .. }) => {
            tracing::warn!("{which} was not started, next in {}: {why}", short(*wait));
        }
        (Finished::Buried, transition) => match transition.cause() {
            Some(cause) => tracing::error!("{which}: {cause}, the job is dead: {why}"),
            None => tracing::error!("{which} failed, the job is dead: {why}"),
        },
        (Finished::Cancelled, _) => {
            tracing::info!("{which} ended, the job is cancelled: {why}");
        }
        _ => {}
    });
}

/// Logs that the result of a handler is lost because another worker may hold the job.
pub(super) fn lost(job: JobId, generation: Generation) {
    tracing::warn!(job.id = job.0, %generation, "the lease was lost; the result was dropped");
}

/// Logs that nothing about the end of an attempt could be stored.
pub(super) fn dropped(attempt: &Attempt, error: &CallError) {
    let error = one_line(&error.to_string());
    span(attempt).in_scope(|| {
        tracing::error!(
            generation = %attempt.job.generation,
            "the end of the attempt cannot be recorded and is dropped; the job is due again when its \
             lease runs out: {error}"
        );
    });
}

fn which_attempt(attempt: &Attempt) -> String {
    let (number, most) = (attempt.job.attempts, attempt.job.max_attempts);
    // Deferred jobs have no last attempt.
    if most == i32::MAX {
        format!("attempt {number}")
    } else {
        format!("attempt {number} of {most}")
    }
}
