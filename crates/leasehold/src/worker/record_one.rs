//! Records the end of one attempt, also if the server refuses it or does not reply.

use super::context::Attempt;
use super::decisions::Decision;
use super::finisher::{Finisher, Tries, intended};
use crate::error::CallError;
use crate::error_text::plain;
use crate::queue::finish::{self, Failed, FinishState, Finished, Transition};

/// The result of one try to end an attempt.
enum Written {
    Ended(Failed),
    /// The handler completed the job in its own transaction, and the job is still held.
    NotCommitted,
}

impl Finisher {
    /// Ends one attempt in any other way than by completing it.
    pub(super) async fn one(&self, end: Decision) {
        let (id, generation) = (end.attempt.job.id, end.attempt.job.generation);
        let mut tries = Tries::new();
        let mut transition = end.transition.clone();
        let (mut refused, mut unsure) = (false, false);
        loop {
            let (error, asked) = match self.write(&end.attempt, &transition).await {
                Ok(Written::NotCommitted) => {
                    let why = "complete_in was called, but its transaction did not commit";
                    transition = Transition::Retry { after: None, why: why.to_owned() };
                    continue;
                }
                Ok(Written::Ended(Failed { outcome: Finished::Lost, .. }))
                    if unsure || end.attempt.was_completed_in_transaction() =>
                {
                    // A try without a reply has ended the job, or a handler whose COMMIT had no reply
                    // returns an error for a job that is completed.
                    let outcome = self.ended_by_us(&end.attempt, &transition, &mut tries).await;
                    return self.end(end, &transition, outcome, None);
                }
                Ok(Written::Ended(Failed { outcome, next_in })) => {
                    return self.end(end, &transition, outcome, next_in);
                }
                Err(error) => {
                    let asked = transition != Transition::CompletedInTransaction;
                    (error, asked)
                }
            };
            self.process.failed("finish", &error);
            if error.is_permanent() && refused {
                return self.fall_back(end, transition.why(), &error, &mut tries).await;
            }
            tracing::warn!(%error, job.id = id.0, %generation, "the end of an attempt could not be recorded; trying again");
            refused |= error.is_permanent();
            if !tries.again().await {
                return self.drop_ends(vec![end], &error);
            }
            unsure |= asked && !error.was_refused();
        }
    }

    /// Makes one try. A completion in the handler's own transaction is looked up, not written.
    async fn write(
        &self,
        attempt: &Attempt,
        transition: &Transition,
    ) -> Result<Written, CallError> {
        let (id, generation) = (attempt.job.id, attempt.job.generation);
        let ended = match transition {
            Transition::CompletedInTransaction => {
                let states = finish::explain(&self.link, &[id.0], generation).await?;
                match states.first().map(|found| found.1) {
                    Some(FinishState::Held) => return Ok(Written::NotCommitted),
                    Some(FinishState::Finished) => {
                        // The handler's transaction left the lease row alone.
                        let _ = finish::settle(&self.link, generation).await;
                        Finished::Completed
                    }
                    _ => Finished::Lost,
                }
            }
            Transition::Retry { after, why } => {
                let failed = finish::fail(&self.link, id, generation, why, *after).await?;
                return Ok(Written::Ended(failed));
            }
            transition => finish::finish(&self.link, id, generation, transition).await?,
        };
        Ok(Written::Ended(Failed { outcome: ended, next_in: None }))
    }

    /// Returns how a job ended that a write did not find: by an earlier write of this attempt, or by the loss of its lease.
    async fn ended_by_us(
        &self,
        attempt: &Attempt,
        transition: &Transition,
        tries: &mut Tries,
    ) -> Finished {
        let (id, generation) = (attempt.job.id, attempt.job.generation);
        let states = self.explain(&[id.0], generation, tries).await;
        if states.and_then(|states| states.first().map(|found| found.1))
            != Some(FinishState::Finished)
        {
            return Finished::Lost;
        }
        match finish::ended_as(&self.link, id, generation).await {
            Ok(Some(outcome)) => {
                let _ = finish::settle(&self.link, generation).await;
                outcome
            }
            // Put back, as the transition demands; or unknown, and the transition is the best guess.
            Ok(None) | Err(_) => intended(transition),
        }
    }

    /// Records a plain failure in ASCII, without its own wait, because the server refuses the real
    /// result. If it refuses even that, the job returns when its lease runs out.
    pub(super) async fn fall_back(
        &self,
        end: Decision,
        why: Option<&str>,
        refused: &CallError,
        tries: &mut Tries,
    ) {
        let why = match why {
            Some(why) => plain(why),
            None => {
                plain(&format!("the database refused to record the end of the attempt: {refused}"))
            }
        };
        tracing::warn!(error = %refused, job.id = end.attempt.job.id.0, "the server refuses the end of an attempt; recording a failure instead");
        let transition = Transition::Retry { after: None, why };
        loop {
            match self.write(&end.attempt, &transition).await {
                Ok(Written::Ended(Failed { outcome, next_in })) => {
                    return self.end(end, &transition, outcome, next_in);
                }
                Ok(Written::NotCommitted) => return self.drop_ends(vec![end], refused),
                Err(error) => {
                    self.process.failed("finish", &error);
                    if error.is_permanent() || !tries.again().await {
                        return self.drop_ends(vec![end], &error);
                    }
                }
            }
        }
    }
}
