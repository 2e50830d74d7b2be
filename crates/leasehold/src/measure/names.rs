//! Every metric: its name, its type and its help text. Dashboards and alert rules are tested against
//! this list.

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricType {
    Counter,
    Gauge,
    Histogram,
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: MetricType,
    pub help: &'static str,
}

macro_rules! metrics {
    ($($constant:ident, $kind:ident, $name:literal, $help:literal;)*) => {
        $(pub const $constant: Metric = Metric { name: $name, kind: MetricType::$kind, help: $help };)*
        /// Every metric.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    BUILD_INFO, Gauge, "leasehold_build_info", "Always 1; the labels are the release of this process and the version of the schema.";
    DATABASE_UP, Gauge, "leasehold_database_up", "1 if the database replied to this scrape; 0: the text has only the counts of this process.";
    SAMPLE_AGE, Gauge, "leasehold_sample_age_seconds", "Time since the minute of the last sample began; above 240 no process samples, and no alarm is raised.";
    LISTEN_CONNECTED, Gauge, "leasehold_listen_connected", "1 while this process listens for new jobs; 0: it polls.";
    JOBS_ENQUEUED, Counter, "leasehold_jobs_enqueued_total", "Jobs that this process enqueued through the handle, each in its own transaction.";
    JOBS_FINISHED, Counter, "leasehold_jobs_finished_total", "Attempts of this process, by outcome.";
    LEADER, Gauge, "leasehold_leader", "1 in the process that took the last sample of the fleet.";
    JOBS_RECLAIMED, Counter, "leasehold_jobs_reclaimed_total", "Jobs that this process reclaimed from dead workers, by result: returned to the queue, or dead.";
    CLAIMS, Counter, "leasehold_claims_total", "Claims of this process, by result: hit, empty or error.";
    SCHEDULE_SLOTS, Counter, "leasehold_schedule_slots_total", "Slots of schedules: fired by this process, or missed by every process.";
    DB_ERRORS, Counter, "leasehold_db_errors_total", "Calls to the database that the server refused or did not reply to, in this process.";
    JOB_WAIT, Histogram, "leasehold_job_wait_seconds", "From the due time of a job to the start of its attempt, in this process.";
    JOB_DURATION, Histogram, "leasehold_job_duration_seconds", "How long attempts ran, in this process.";
    JOB_LATENCY, Histogram, "leasehold_job_latency_seconds", "From the enqueue to the end of completed jobs, in this process.";
    CLAIM_DURATION, Histogram, "leasehold_claim_duration_seconds", "How long claims took.";
    COMPLETE_DURATION, Histogram, "leasehold_complete_duration_seconds", "How long it took to record completions.";
    COMPLETE_BATCH, Histogram, "leasehold_complete_batch_jobs", "How many jobs were completed at once.";
    WORKER_SLOTS, Gauge, "leasehold_worker_slots", "Jobs that this process can run at a time.";
    WORKER_SLOTS_BUSY, Gauge, "leasehold_worker_slots_busy", "Slots of this process that are in use.";
    WORKER_JOBS_CLAIMED_AHEAD, Gauge, "leasehold_worker_jobs_claimed_ahead", "Jobs that this process has claimed and that wait for a slot.";
    QUEUE_INFO, Gauge, "leasehold_queue_info", "Always 1; the labels are the display name and the owner of a queue.";
    QUEUE_JOBS, Gauge, "leasehold_queue_jobs", "Jobs by state, dead ones without the expired, as of the last sample.";
    QUEUE_DEAD_EXPIRED, Gauge, "leasehold_queue_dead_expired_jobs", "Dead jobs that were not started before they expired, as of the last sample.";
    QUEUE_LENGTH, Gauge, "leasehold_queue_length", "Waiting and running jobs without those of the bulk tags, as of the last sample.";
    QUEUE_OLDEST, Gauge, "leasehold_queue_oldest_ready_age_seconds", "Age of the oldest ready job.";
    QUEUE_PAUSED, Gauge, "leasehold_queue_paused", "1 while a queue is paused.";
    QUEUE_WORKERS, Gauge, "leasehold_queue_workers", "Live workers of a queue.";
    QUEUE_EVENTS, Gauge, "leasehold_queue_last_minute_jobs", "Jobs of a queue in the last sampled minute, by event, in all processes.";
    TAG_EVENTS, Gauge, "leasehold_tag_last_minute_jobs", "Jobs of a queue and tag in the last sampled minute, by event, in all processes.";
    MIRROR_TAG_EVENTS, Gauge, "leasehold_mirror_tag_last_minute_rows", "Rows of a mirror in the last sampled minute, by tag and outcome.";
    DEAD_TUPLES, Gauge, "leasehold_dead_tuples", "Rows that vacuum has yet to remove.";
    TABLE_BYTES, Gauge, "leasehold_table_bytes", "Size of a table with its indexes.";
    OLDEST_XACT, Gauge, "leasehold_oldest_xact_age_seconds", "Age of the oldest transaction that keeps vacuum from removing rows.";
    SWEEP_ROWS, Counter, "leasehold_sweep_rows_total", "Rows that sweeps finished, in all processes, by result.";
    SWEEP_NOW, Gauge, "leasehold_sweep_rows", "Rows of a sweep by state: due, claimed, failing, dead or stuck.";
    MIRROR_COMPARED, Gauge, "leasehold_mirror_rows_compared", "Rows that the last whole check of a mirror compared.";
    MIRROR_REPAIRED, Counter, "leasehold_mirror_repaired_total", "Rows of a mirror that a check found different and had repaired.";
    MIRROR_DIFFERENCES, Gauge, "leasehold_mirror_differences", "Rows of a mirror that differ now.";
    MIRROR_OLDEST, Gauge, "leasehold_mirror_oldest_difference_age_seconds", "Age of the oldest difference; 0: nothing differs.";
    MIRROR_EQUAL_AGE, Gauge, "leasehold_mirror_equal_age_seconds", "Time since the mirror was last known to be equal to its source.";
    MIRROR_EVENTS, Gauge, "leasehold_mirror_last_minute_rows", "Rows of a mirror in the last sampled minute, by outcome.";
    ALARM, Gauge, "leasehold_alarm", "1 per open alarm; the state is open, acknowledged or silenced.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_of_their_kind() {
        let mut seen = std::collections::HashSet::new();
        for metric in ALL {
            let name = metric.name;
            assert!(seen.insert(name), "{name} twice");
            assert!(name.starts_with("leasehold_"), "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            assert_eq!(name.ends_with("_total"), metric.kind == MetricType::Counter, "{name}");
            assert!(metric.help.ends_with('.') && !metric.help.contains(['\n', '\\']), "{name}");
        }
    }
}
