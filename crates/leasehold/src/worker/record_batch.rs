//! Records many ends of one lease in as few statements as the server allows.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use super::decisions::Decision;
use super::finisher::{Finisher, Tries, intended};
use crate::error::CallError;
use crate::job::{Generation, JobId};
use crate::queue::finish::{self, FinishState, Finished, Transition};

/// Attempts of one generation that end the same way.
struct Piece {
    ends: Vec<Decision>,
    /// Whether the server refused a batch with these before.
    refused: bool,
    /// Whether a try had no reply, so that a missing job may be one that this worker finished.
    unsure: bool,
    /// Whether a try with these ran into a timeout before.
    slow: bool,
}

impl Piece {
    /// Takes the second half away, in a piece of its own.
    fn halve(&mut self) -> Self {
        let ends = self.ends.split_off(self.ends.len() / 2);
        Self { ends, refused: self.refused, unsure: self.unsure, slow: self.slow }
    }

    /// Returns a half after the second timeout: one locked row keeps the whole statement waiting.
    fn halve_if_slow(&mut self, error: &CallError) -> Option<Self> {
        if !error.ran_out_of_time() {
            return None;
        }
        let was_slow = std::mem::replace(&mut self.slow, true);
        (was_slow && self.ends.len() > 1).then(|| self.halve())
    }
}

impl Finisher {
    /// Completes or defers jobs of one generation, in as few statements as the server allows.
    pub(super) async fn batch(&self, generation: Generation, ends: Vec<Decision>) {
        let (count, began) = (ends.len(), Instant::now());
        let completes = ends.first().is_some_and(|end| end.transition == Transition::Complete);
        let mut tries = Tries::new();
        let whole = Piece { ends, refused: false, unsure: false, slow: false };
        // In turn: a piece that waits for a lock is tried again after all others.
        let mut pieces = VecDeque::from([whole]);
        while let Some(mut piece) = pieces.pop_front() {
            let error = match self.send(generation, &piece.ends).await {
                Ok(written) => {
                    self.written(generation, piece, &written, &mut tries).await;
                    continue;
                }
                Err(error) => error,
            };
            self.process.failed("finish", &error);
            if error.is_permanent() {
                match piece.ends.len() {
                    0 | 1 if piece.refused => {
                        for end in piece.ends {
                            let why = end.transition.why().map(str::to_owned);
                            self.fall_back(end, why.as_deref(), &error, &mut tries).await;
                        }
                        continue;
                    }
                    0 | 1 => piece.refused = true,
                    many => {
                        tracing::warn!(%error, %generation, jobs = many, "the server refused to record ends of attempts; trying fewer at a time");
                        piece.refused = true;
                        pieces.push_back(piece.halve());
                    }
                }
                pieces.push_back(piece);
            } else if error.was_refused() {
                tracing::warn!(%error, %generation, jobs = piece.ends.len(), "ends of attempts could not be recorded; trying again");
                if let Some(half) = piece.halve_if_slow(&error) {
                    pieces.extend([piece, half]);
                    continue;
                }
                match tries.again().await {
                    true => pieces.push_back(piece),
                    false => self.drop_ends(piece.ends, &error),
                }
            } else if let Some(mut held) =
                self.after_no_reply(generation, piece, &error, &mut tries).await
            {
                let half = held.halve_if_slow(&error);
                pieces.push_back(held);
                pieces.extend(half);
            }
        }
        if completes {
            self.process.completed(count, began.elapsed());
        }
    }

    /// Sends one statement. Returns the jobs that it found, and what became of them.
    async fn send(
        &self,
        generation: Generation,
        ends: &[Decision],
    ) -> Result<HashMap<i64, Finished>, CallError> {
        let deferrals: Vec<finish::Deferral<'_>> = ends.iter().filter_map(deferral).collect();
        if !deferrals.is_empty() {
            let ended = finish::defer(&self.link, &deferrals, generation).await?;
            return Ok(ended.into_iter().collect());
        }
        let ids: Vec<i64> = ends.iter().map(|end| end.attempt.job.id.0).collect();
        let done = match ends.iter().any(|end| end.attempt.keeps_a_result()) {
            false => finish::complete(&self.link, &ids, generation).await?,
            true => {
                let results: Vec<_> = ends.iter().map(|end| end.attempt.result()).collect();
                finish::complete_with_results(&self.link, &ids, generation, &results).await?
            }
        };
        Ok(done.into_iter().map(|id| (id, Finished::Completed)).collect())
    }

    /// Closes what one statement recorded. Jobs that it did not find were lost, unless an earlier try
    /// without a reply has finished them.
    async fn written(
        &self,
        generation: Generation,
        piece: Piece,
        recorded: &HashMap<i64, Finished>,
        tries: &mut Tries,
    ) {
        let ids = piece.ends.iter().map(|end| end.attempt.job.id.0);
        let missing: Vec<i64> = ids.filter(|id| !recorded.contains_key(id)).collect();
        let mut states = HashMap::new();
        if piece.unsure && !missing.is_empty() {
            states.extend(self.explain(&missing, generation, tries).await.unwrap_or_default());
        }
        self.close_batch(piece.ends.into_iter().map(|end| {
            let id = end.attempt.job.id;
            let earlier = states.get(&id) == Some(&FinishState::Finished);
            let outcome = match recorded.get(&id.0) {
                Some(outcome) => *outcome,
                None if earlier => intended(&end.transition),
                None => Finished::Lost,
            };
            (end, outcome)
        }));
    }

    /// Asks what became of a statement without a reply, and closes what it recorded. Returns the rest.
    async fn after_no_reply(
        &self,
        generation: Generation,
        piece: Piece,
        error: &CallError,
        tries: &mut Tries,
    ) -> Option<Piece> {
        let ids: Vec<i64> = piece.ends.iter().map(|end| end.attempt.job.id.0).collect();
        tracing::warn!(%error, %generation, jobs = ids.len(), "a finish had no reply; asking what became of it");
        let Some(states) = self.explain(&ids, generation, tries).await else {
            self.drop_ends(piece.ends, error);
            return None;
        };
        let states: HashMap<JobId, FinishState> = states.into_iter().collect();
        let state_of =
            |end: &Decision| states.get(&end.attempt.job.id).copied().unwrap_or(FinishState::Lost);
        let (held, over): (Vec<_>, Vec<_>) =
            piece.ends.into_iter().partition(|end| state_of(end) == FinishState::Held);
        self.close_batch(over.into_iter().map(|end| {
            let ours = state_of(&end) == FinishState::Finished;
            let outcome = if ours { intended(&end.transition) } else { Finished::Lost };
            (end, outcome)
        }));
        let Piece { refused, slow, .. } = piece;
        (!held.is_empty()).then_some(Piece { ends: held, refused, unsure: true, slow })
    }
}

fn deferral(end: &Decision) -> Option<finish::Deferral<'_>> {
    match &end.transition {
        Transition::Defer { wait, why, counted } => {
            Some(finish::Deferral { id: end.attempt.job.id, wait: *wait, why, counted: *counted })
        }
        _ => None,
    }
}
