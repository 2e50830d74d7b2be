//! The alarm rules: evaluate a sample and return the findings. Pure.
//!
//! # Invariants
//! - One fault, one alarm. If completions of a queue are watched, [`Rule::CompletionRateLow`] reports
//!   that no worker serves it; the age of its jobs follows from that and raises no second alarm.
//! - A paused queue raises no alarm about completions or age: an operator paused it, and the pause
//!   records who. Its length and its expired jobs still raise alarms.
//! - Alarms clear with 10 % hysteresis: at the threshold itself an alarm would come and go with every
//!   sample. Counts below ten clear immediately.
//! - A rule whose part of the sample is missing is not evaluated: its alarm stays as it was.
//! - `CompletionRateLow` only considers minutes that were sampled while the queue was not paused; the
//!   window restarts after a gap or a pause. Once raised, it clears only when enough jobs have
//!   completed.

use std::time::Duration;

use serde::Serialize;

use super::Thresholds;
pub use super::rule::Rule;
use super::snapshot::{Holder, Open, QueueView, Snapshot};
use crate::duration::coarse;

/// A condition that holds now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// The queue, sweep or mirror.
    pub subject: String,
    /// The measured value.
    pub value: f64,
    /// The value above which, or below which, the rule raises an alarm.
    pub threshold: f64,
    /// One sentence for an operator.
    pub summary: String,
}

/// Evaluates every rule and returns the findings.
pub fn evaluate(snapshot: &Snapshot, thresholds: &Thresholds) -> Vec<Finding> {
    let evaluation = Evaluation { snapshot, thresholds, found: Vec::new() };
    evaluation.run()
}

struct Evaluation<'a> {
    snapshot: &'a Snapshot,
    thresholds: &'a Thresholds,
    found: Vec<Finding>,
}

impl Evaluation<'_> {
    fn run(mut self) -> Vec<Finding> {
        for queue in &self.snapshot.queues {
            self.flow(queue);
            self.length(queue);
            self.losses(queue);
        }
        for sweep in &self.snapshot.sweeps {
            let stuck = sweep.stuck + sweep.dead;
            if stuck > 0.0 {
                let summary = match (sweep.stuck > 0.0, sweep.dead > 0.0) {
                    (true, false) => format!(
                        "{} rows of sweep {} were claimed longer ago than the watchdog limit and were not reset; is a worker running that declares the sweep?",
                        sweep.stuck, sweep.sweep
                    ),
                    (false, _) => format!(
                        "{} rows of sweep {} are dead; list them: leasehold sweeps dead {}",
                        sweep.dead, sweep.sweep, sweep.sweep
                    ),
                    (true, true) => format!(
                        "{} rows of sweep {} were claimed longer ago than the watchdog limit and were not reset; {} are dead",
                        sweep.stuck, sweep.sweep, sweep.dead
                    ),
                };
                self.raise(Rule::SweepStuckRows, &sweep.sweep, stuck, 0.0, summary);
            }
        }
        for mirror in &self.snapshot.mirrors {
            let (age, most) =
                (mirror.oldest_difference_age, self.thresholds.max_difference_age.as_secs_f64());
            if self.above(Rule::MirrorDifferenceAge, &mirror.mirror, age, most) {
                let summary = format!(
                    "mirror {} has differed from its source for {}; {} rows differ",
                    mirror.mirror,
                    span(age),
                    mirror.differences
                );
                // One fault, one alarm: a mirror that differs cannot be compared as equal either.
                self.raise(Rule::MirrorDifferenceAge, &mirror.mirror, age, most, summary);
                continue;
            }
            let (age, most) =
                (mirror.uncompared_age, self.thresholds.max_uncompared_age.as_secs_f64());
            if self.above(Rule::MirrorNotCompared, &mirror.mirror, age, most) {
                let summary = format!(
                    "mirror {} has not been compared with its source for {}; is a worker running that can reach its store?",
                    mirror.mirror,
                    span(age)
                );
                self.raise(Rule::MirrorNotCompared, &mirror.mirror, age, most, summary);
            }
        }
        let (age, most) =
            (self.snapshot.oldest_xact_age, self.thresholds.max_transaction_age.as_secs_f64());
        if self.above(Rule::VacuumHeldBack, "", age, most) {
            let mut summary =
                format!("vacuum has removed no dead rows for {}: claims will slow down", span(age));
            for (index, holder) in self.snapshot.vacuum_held_by.iter().enumerate() {
                let word = if index == 0 { "held back by" } else { "and by" };
                let Holder { who, remedy, age } = holder;
                summary.push_str(&format!("; {word} {who}, {}; {remedy}", span(*age)));
            }
            self.raise(Rule::VacuumHeldBack, "", age, most, summary);
        }
        self.found
    }

    /// Checks whether jobs complete.
    fn flow(&mut self, view: &QueueView) {
        let QueueView { queue, completed, oldest_ready_age: age, .. } = view;
        if view.paused {
            return;
        }
        let watch = view.watch.as_ref().filter(|watch| !watch.off);
        let rated = watch.filter(|watch| watch.min_completed > 0.0);
        if rated.is_some() && !self.snapshot.knows(Rule::CompletionRateLow) {
            return;
        }
        if let Some(watch) = rated {
            let active = self.is_active(Rule::CompletionRateLow, queue);
            // Below ten, 10 % rounds down to nothing: a single completion clears the alarm of a quiet
            // queue.
            let least =
                if active { (watch.min_completed * 1.1).floor() } else { watch.min_completed };
            // Before a whole window has been watched, too few completions prove nothing.
            if *completed < least && (active || watch.watched_for >= watch.over) {
                let summary = format!(
                    "{} of queue {queue} completed within {}, fewer than {}: its workers or its producers have stopped",
                    jobs(*completed),
                    span(watch.over),
                    watch.min_completed
                );
                let least = watch.min_completed;
                return self.raise(Rule::CompletionRateLow, queue, *completed, least, summary);
            }
        } else if view.starved_minutes >= self.thresholds.starved_minutes() {
            let summary = format!("queue {queue} has ready jobs and no live worker; start one");
            let (minutes, most) = (view.starved_minutes, self.thresholds.starved_minutes());
            return self.raise(Rule::NoWorkers, queue, minutes, most, summary);
        }
        let most = match watch {
            Some(watch) => watch.max_age,
            None => Some(self.thresholds.max_age.as_secs_f64()),
        };
        if let Some(most) = most
            && self.above(Rule::OldestReadyAge, queue, *age, most)
        {
            let summary = format!("a job of queue {queue} has been ready for {}", span(*age));
            self.raise(Rule::OldestReadyAge, queue, *age, most, summary);
        }
    }

    /// Checks whether jobs pile up.
    fn length(&mut self, view: &QueueView) {
        let QueueView { queue, length, dead_expired, .. } = view;
        let watch = view.watch.as_ref().filter(|watch| !watch.off);
        if let Some(most) = watch.and_then(|watch| watch.max_length)
            && self.above(Rule::QueueLengthHigh, queue, *length, most)
        {
            let summary = format!("queue {queue} has {} jobs, more than {most}", length.round());
            self.raise(Rule::QueueLengthHigh, queue, *length, most, summary);
        }
        if *dead_expired > 0.0 {
            let summary = format!(
                "{} of queue {queue} expired before starting; list them: leasehold dead list --cause expired --queue {queue}",
                jobs(*dead_expired)
            );
            self.raise(Rule::ExpiredJobs, queue, *dead_expired, 0.0, summary);
        }
    }

    /// Checks whether jobs die or lose their workers.
    fn losses(&mut self, view: &QueueView) {
        let QueueView { queue, died, lost, .. } = view;
        let watch = view.watch.as_ref().filter(|watch| !watch.off);
        let dead = watch.map_or(f64::from(self.thresholds.max_dead), |watch| watch.max_dead);
        if dead > 0.0 && self.reaches(Rule::DeadJobsGrowing, queue, *died, dead) {
            let summary = format!(
                "{} of queue {queue} died within 15 minutes; list them: leasehold dead list --queue {queue}",
                jobs(*died)
            );
            self.raise(Rule::DeadJobsGrowing, queue, *died, dead, summary);
        }
        let most = watch.map_or(f64::from(self.thresholds.max_lost), |watch| watch.max_lost);
        if most > 0.0 && self.reaches(Rule::LeaseLosses, queue, *lost, most) {
            let summary = format!(
                "{} of queue {queue} lost a worker within 15 minutes: workers die or stall",
                jobs(*lost)
            );
            self.raise(Rule::LeaseLosses, queue, *lost, most, summary);
        }
    }

    fn is_active(&self, rule: Rule, subject: &str) -> bool {
        let same = |open: &Open| open.rule == rule.as_str() && open.subject == subject;
        self.snapshot.open.iter().any(same)
    }

    fn above(&self, rule: Rule, subject: &str, value: f64, most: f64) -> bool {
        value > if self.is_active(rule, subject) { most * 0.9 } else { most }
    }

    /// Like `above`, for counts that are too high once they reach their threshold.
    fn reaches(&self, rule: Rule, subject: &str, count: f64, most: f64) -> bool {
        count >= if self.is_active(rule, subject) { most * 0.9 } else { most }
    }

    fn raise(&mut self, rule: Rule, subject: &str, value: f64, threshold: f64, summary: String) {
        if !self.snapshot.knows(rule) {
            return;
        }
        self.found.push(Finding { rule, subject: subject.to_owned(), value, threshold, summary });
    }
}

fn jobs(count: f64) -> String {
    if count == 1.0 { "1 job".to_owned() } else { format!("{count} jobs") }
}

/// Formats seconds for a reader.
fn span(seconds: f64) -> String {
    coarse(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX))
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
