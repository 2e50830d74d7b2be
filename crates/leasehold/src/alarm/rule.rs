//! What can be wrong, in one word each: the same in SQL, metrics, lists and what is sent.

use serde::{Deserialize, Serialize};

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Fewer jobs completed than expected: the consumer stopped, or the producer, or both.
    CompletionRateLow,
    /// More jobs wait than expected: they come faster than they go, or they are stuck.
    QueueLengthHigh,
    /// Jobs were not started before they expired. They are kept.
    ExpiredJobs,
    /// A job that could run has waited too long.
    OldestReadyAge,
    /// Jobs are given up, one after the other.
    DeadLettersGrowing,
    /// Jobs could run and no worker is there.
    NoWorkers,
    /// Workers die or stall under their jobs.
    LeaseLosses,
    /// Something has held back Postgres's cleaning for so long that claims will slow down.
    VacuumHeldBack,
    /// A mirror has differed from its source for too long.
    MirrorDifferenceAge,
    /// A store was equal to its table once, and nobody has seen it equal for long.
    MirrorNotCompared,
    /// Rows of a sweep are in nobody's hands.
    SweepStuckRows,
}

impl Rule {
    pub const ALL: [Self; 11] = [
        Self::CompletionRateLow,
        Self::QueueLengthHigh,
        Self::ExpiredJobs,
        Self::OldestReadyAge,
        Self::DeadLettersGrowing,
        Self::NoWorkers,
        Self::LeaseLosses,
        Self::VacuumHeldBack,
        Self::MirrorDifferenceAge,
        Self::MirrorNotCompared,
        Self::SweepStuckRows,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::CompletionRateLow => "completion_rate_low",
            Self::QueueLengthHigh => "queue_length_high",
            Self::ExpiredJobs => "expired_jobs",
            Self::OldestReadyAge => "oldest_ready_age",
            Self::DeadLettersGrowing => "dead_letters_growing",
            Self::NoWorkers => "no_workers",
            Self::LeaseLosses => "lease_losses",
            Self::VacuumHeldBack => "vacuum_held_back",
            Self::MirrorDifferenceAge => "mirror_difference_age",
            Self::MirrorNotCompared => "mirror_not_compared",
            Self::SweepStuckRows => "sweep_stuck_rows",
        }
    }
}
