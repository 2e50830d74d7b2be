//! The alarm rules: evaluate a sample and return the findings. Pure.
//!
//! # What is true
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

use serde::Serialize;

pub use super::rule::Rule;
use super::snapshot::{Holder, Open, QueueView, Snapshot};

/// Thresholds for queues without a watch, and for what has no watch.
#[derive(Clone, Debug, PartialEq)]
pub struct Defaults {
    /// For queues without a watch. Seconds.
    pub max_age: f64,
    /// Jobs that may die within 15 minutes.
    pub max_dead: f64,
    /// Leases that may be lost within 15 minutes.
    pub max_lost: f64,
    /// Seconds.
    pub max_xact_age: f64,
    /// Seconds.
    pub max_difference_age: f64,
    /// Seconds.
    pub max_unproven_age: f64,
    /// Minutes with ready jobs and no worker.
    pub starved_minutes: f64,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            max_age: 3600.0,
            max_dead: 10.0,
            max_lost: 10.0,
            max_xact_age: 900.0,
            max_difference_age: 600.0,
            max_unproven_age: 3600.0,
            starved_minutes: 5.0,
        }
    }
}

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
pub fn judge(snapshot: &Snapshot, defaults: &Defaults) -> Vec<Finding> {
    let judging = Judging { snapshot, defaults, found: Vec::new() };
    judging.run()
}

struct Judging<'a> {
    snapshot: &'a Snapshot,
    defaults: &'a Defaults,
    found: Vec<Finding>,
}

impl Judging<'_> {
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
                        "{} rows of sweep {} are in nobody's hands and were not brought back; does a worker keep house?",
                        sweep.stuck, sweep.sweep
                    ),
                    (false, _) => format!(
                        "{} rows of sweep {} were set aside; look at: leasehold sweeps dead {}",
                        sweep.dead, sweep.sweep, sweep.sweep
                    ),
                    (true, true) => format!(
                        "{} rows of sweep {} are in nobody's hands, {} were set aside",
                        sweep.stuck, sweep.sweep, sweep.dead
                    ),
                };
                self.up(Rule::SweepStuckRows, &sweep.sweep, stuck, 0.0, summary);
            }
        }
        for mirror in &self.snapshot.mirrors {
            let (age, most) = (mirror.oldest_difference_age, self.defaults.max_difference_age);
            if self.above(Rule::MirrorDifferenceAge, &mirror.mirror, age, most) {
                let summary = format!(
                    "mirror {} has differed from its source for {}; {} rows differ",
                    mirror.mirror,
                    span(age),
                    mirror.differences
                );
                // One fault, one alarm: a mirror that differs cannot be verified as equal either.
                self.up(Rule::MirrorDifferenceAge, &mirror.mirror, age, most, summary);
                continue;
            }
            let (age, most) = (mirror.unproven_age, self.defaults.max_unproven_age);
            if self.above(Rule::MirrorNotCompared, &mirror.mirror, age, most) {
                let summary = format!(
                    "nobody has seen mirror {} equal to its source for {}: differences would not be found; does a worker run that has its store?",
                    mirror.mirror,
                    span(age)
                );
                self.up(Rule::MirrorNotCompared, &mirror.mirror, age, most, summary);
            }
        }
        let (age, most) = (self.snapshot.oldest_xact_age, self.defaults.max_xact_age);
        if self.above(Rule::VacuumHeldBack, "", age, most) {
            let mut summary = format!(
                "dead rows cannot be removed, and have not been for {}: claims will slow down",
                span(age)
            );
            for (place, holder) in self.snapshot.vacuum_held_by.iter().enumerate() {
                let word = if place == 0 { "held back by" } else { "and by" };
                let Holder { who, remedy, age } = holder;
                summary.push_str(&format!("; {word} {who}, {}; {remedy}", span(*age)));
            }
            self.up(Rule::VacuumHeldBack, "", age, most, summary);
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
            let up = self.is_up(Rule::CompletionRateLow, queue);
            // Below ten, 10 % rounds down to nothing: a single completion clears the alarm of a quiet
            // queue.
            let least = if up { (watch.min_completed * 1.1).floor() } else { watch.min_completed };
            // Before a whole window has been watched, too few completions prove nothing.
            if *completed < least && (up || watch.watched_for >= watch.over) {
                let summary = format!(
                    "{} of queue {queue} completed within {}, at least {} should have: its workers or its producers have stopped",
                    jobs(*completed),
                    span(watch.over),
                    watch.min_completed
                );
                let least = watch.min_completed;
                return self.up(Rule::CompletionRateLow, queue, *completed, least, summary);
            }
        } else if view.starved_minutes >= self.defaults.starved_minutes {
            let summary = format!("queue {queue} has jobs that could run and no worker");
            let minutes = view.starved_minutes;
            return self.up(
                Rule::NoWorkers,
                queue,
                minutes,
                self.defaults.starved_minutes,
                summary,
            );
        }
        let most = match watch {
            Some(watch) => watch.max_age,
            None => Some(self.defaults.max_age),
        };
        if let Some(most) = most
            && self.above(Rule::OldestReadyAge, queue, *age, most)
        {
            let summary = format!("a job of queue {queue} has been ready for {}", span(*age));
            self.up(Rule::OldestReadyAge, queue, *age, most, summary);
        }
    }

    /// Checks whether jobs pile up.
    fn length(&mut self, view: &QueueView) {
        let QueueView { queue, length, expired_kept, .. } = view;
        let watch = view.watch.as_ref().filter(|watch| !watch.off);
        if let Some(most) = watch.and_then(|watch| watch.max_length)
            && self.above(Rule::QueueLengthHigh, queue, *length, most)
        {
            let summary =
                format!("{} jobs are in queue {queue}, at most {most} should be", length.round());
            self.up(Rule::QueueLengthHigh, queue, *length, most, summary);
        }
        if *expired_kept > 0.0 {
            let summary = format!(
                "{} of queue {queue} expired before it was started, and is kept: leasehold jobs list --state expired --queue {queue}",
                jobs(*expired_kept)
            );
            self.up(Rule::ExpiredJobs, queue, *expired_kept, 0.0, summary);
        }
    }

    /// Checks whether jobs die or lose their workers.
    fn losses(&mut self, view: &QueueView) {
        let QueueView { queue, died, lost, .. } = view;
        let watch = view.watch.as_ref().filter(|watch| !watch.off);
        let dead = watch.map_or(self.defaults.max_dead, |watch| watch.max_dead);
        if dead > 0.0 && self.reaches(Rule::DeadLettersGrowing, queue, *died, dead) {
            let summary = format!(
                "{} of queue {queue} died within 15 minutes; look at: leasehold dead list",
                jobs(*died)
            );
            self.up(Rule::DeadLettersGrowing, queue, *died, dead, summary);
        }
        let most = watch.map_or(self.defaults.max_lost, |watch| watch.max_lost);
        if most > 0.0 && self.reaches(Rule::LeaseLosses, queue, *lost, most) {
            let summary = format!(
                "{} of queue {queue} lost a worker within 15 minutes: workers die or stall",
                jobs(*lost)
            );
            self.up(Rule::LeaseLosses, queue, *lost, most, summary);
        }
    }

    fn is_up(&self, rule: Rule, subject: &str) -> bool {
        let same = |open: &Open| open.rule == rule.as_str() && open.subject == subject;
        self.snapshot.open.iter().any(same)
    }

    fn above(&self, rule: Rule, subject: &str, value: f64, most: f64) -> bool {
        value > if self.is_up(rule, subject) { most * 0.9 } else { most }
    }

    /// Like `above`, for counts that are too high once they reach their threshold.
    fn reaches(&self, rule: Rule, subject: &str, count: f64, most: f64) -> bool {
        count >= if self.is_up(rule, subject) { most * 0.9 } else { most }
    }

    fn up(&mut self, rule: Rule, subject: &str, value: f64, threshold: f64, summary: String) {
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
pub fn span(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..120 => format!("{whole} s"),
        120..7200 => format!("{} min", whole / 60),
        7200..172_800 => format!("{} h", whole / 3600),
        _ => format!("{} days", whole / 86_400),
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
