//! The alarm rules. Each has one name, the same in SQL, metrics, lists and notifications.

use serde::{Deserialize, Serialize};

/// A condition that raises an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rule {
    /// Fewer jobs completed than expected: the consumer stopped, or the producer, or both.
    CompletionRateLow,
    /// More jobs wait than expected: they arrive faster than they complete, or they are stuck.
    QueueLengthHigh,
    /// Jobs were not started before they expired. They are kept.
    ExpiredJobs,
    /// A job that could run has waited too long.
    OldestReadyAge,
    /// Jobs keep dying.
    DeadJobsGrowing,
    /// Jobs are ready and no worker is there.
    NoWorkers,
    /// Workers die or stall under their jobs.
    LeaseLosses,
    /// A transaction, a slot or a standby has held back vacuum until claims slow down.
    VacuumHeldBack,
    /// A mirror has differed from its source for too long.
    MirrorDifferenceAge,
    /// A mirror equalled its source once, and no check has confirmed that for too long.
    MirrorNotCompared,
    /// Rows of a sweep have been claimed past the watchdog limit, or are dead.
    SweepStuckRows,
    /// A rule that only a later release knows.
    Other,
}

impl Rule {
    /// Every rule that this release knows.
    pub const ALL: &'static [Self] = &[
        Self::CompletionRateLow,
        Self::QueueLengthHigh,
        Self::ExpiredJobs,
        Self::OldestReadyAge,
        Self::DeadJobsGrowing,
        Self::NoWorkers,
        Self::LeaseLosses,
        Self::VacuumHeldBack,
        Self::MirrorDifferenceAge,
        Self::MirrorNotCompared,
        Self::SweepStuckRows,
    ];

    /// Returns the parts of a sample that the rule needs. Without one of them the rule is not
    /// evaluated.
    pub fn parts(self) -> &'static [&'static str] {
        match self {
            Self::DeadJobsGrowing | Self::LeaseLosses => &["flows"],
            Self::QueueLengthHigh | Self::ExpiredJobs | Self::NoWorkers => &["queues"],
            // The part "queues" has the pause of a queue; a paused queue completes nothing.
            Self::CompletionRateLow => &["flows", "queues"],
            // Suppressed while `CompletionRateLow` is raised, so it needs the parts of that rule too.
            Self::OldestReadyAge => &["ages", "flows", "queues"],
            Self::VacuumHeldBack => &["vacuum"],
            Self::MirrorDifferenceAge | Self::MirrorNotCompared => &["mirrors"],
            // If the table was not read, its counts of the last minute still stand.
            Self::SweepStuckRows | Self::Other => &[],
        }
    }

    /// Returns the name of the rule, as SQL, metrics and notifications use it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CompletionRateLow => "completion_rate_low",
            Self::QueueLengthHigh => "queue_length_high",
            Self::ExpiredJobs => "expired_jobs",
            Self::OldestReadyAge => "oldest_ready_age",
            Self::DeadJobsGrowing => "dead_jobs_growing",
            Self::NoWorkers => "no_workers",
            Self::LeaseLosses => "lease_losses",
            Self::VacuumHeldBack => "vacuum_held_back",
            Self::MirrorDifferenceAge => "mirror_difference_age",
            Self::MirrorNotCompared => "mirror_not_compared",
            Self::SweepStuckRows => "sweep_stuck_rows",
            Self::Other => "other",
        }
    }

    /// Returns the rule of this name.
    pub(crate) fn read(name: &str) -> Self {
        Self::ALL.iter().copied().find(|rule| rule.as_str() == name).unwrap_or(Self::Other)
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}
