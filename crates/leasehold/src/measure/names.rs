//! Every metric: its name, its type and its help text. Dashboards and alert rules are tested against
//! this list.

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
}

macro_rules! metrics {
    ($($constant:ident, $kind:ident, $name:literal, $help:literal;)*) => {
        $(pub const $constant: Metric = Metric { name: $name, kind: Kind::$kind, help: $help };)*
        /// Every metric.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    BUILD_INFO, Gauge, "leasehold_build_info", "Always 1; the labels say which release runs on which schema.";
    DATABASE_UP, Gauge, "leasehold_database_up", "1 when the database answered this scrape, 0 when only the counts of this process are shown.";
    SAMPLE_AGE, Gauge, "leasehold_sample_age_seconds", "Time since the minute of the last sample began; above 240 nobody measures and no alarm is raised.";
    LISTEN_CONNECTED, Gauge, "leasehold_listen_connected", "1 while this process hears of new jobs at once; 0: it polls.";
    JOBS_ENQUEUED, Counter, "leasehold_jobs_enqueued_total", "Jobs that this process enqueued in transactions of their own.";
    JOBS_FINISHED, Counter, "leasehold_jobs_finished_total", "Attempts that this process ended, by how they ended.";
    LEADER, Gauge, "leasehold_leader", "1 in the process that took the last sample of the fleet.";
    JOBS_RESCUED, Counter, "leasehold_jobs_rescued_total", "Jobs that this process took from dead workers, by what became of them.";
    FETCHES, Counter, "leasehold_fetches_total", "Claims of this process, by whether they found jobs.";
    CRON_FIRES, Counter, "leasehold_cron_fires_total", "Slots of schedules: fired by this process, or missed by all.";
    DB_ERRORS, Counter, "leasehold_db_errors_total", "Calls to the database that this process got no answer to, or a refusal.";
    JOB_WAIT, Histogram, "leasehold_job_wait_seconds", "From when a job could run to when it ran, in this process.";
    JOB_DURATION, Histogram, "leasehold_job_duration_seconds", "How long attempts ran, in this process.";
    JOB_LATENCY, Histogram, "leasehold_job_latency_seconds", "From the enqueue to the end of completed jobs, in this process.";
    FETCH_DURATION, Histogram, "leasehold_fetch_duration_seconds", "How long claims took.";
    COMPLETE_DURATION, Histogram, "leasehold_complete_duration_seconds", "How long it took to record completions.";
    COMPLETE_BATCH, Histogram, "leasehold_complete_batch_jobs", "How many jobs were completed at once.";
    WORKER_SLOTS, Gauge, "leasehold_worker_slots", "Jobs that this process can run at a time.";
    WORKER_SLOTS_BUSY, Gauge, "leasehold_worker_slots_busy", "Slots of this process that are in use.";
    QUEUE_INFO, Gauge, "leasehold_queue_info", "Always 1; the labels say what people call a queue and whose it is.";
    QUEUE_JOBS, Gauge, "leasehold_queue_jobs", "Jobs by state, as of the last sample.";
    QUEUE_LENGTH, Gauge, "leasehold_queue_length", "Jobs that wait or run, without bulk work, as of the last sample.";
    QUEUE_OLDEST, Gauge, "leasehold_queue_oldest_ready_age_seconds", "For how long the oldest job that could run has waited.";
    QUEUE_PAUSED, Gauge, "leasehold_queue_paused", "1 while a queue is paused.";
    QUEUE_WORKERS, Gauge, "leasehold_queue_workers", "Living workers of a queue.";
    QUEUE_EVENTS, Gauge, "leasehold_queue_last_minute_jobs", "What happened to jobs of a queue in the last sampled minute, in all processes.";
    TAG_EVENTS, Gauge, "leasehold_tag_last_minute_jobs", "The same by tag.";
    MIRROR_TAG_EVENTS, Gauge, "leasehold_mirror_tag_last_minute_rows", "What a mirror did in the last sampled minute, by tag and outcome.";
    DEAD_TUPLES, Gauge, "leasehold_dead_tuples", "Rows that vacuum has yet to remove.";
    TABLE_BYTES, Gauge, "leasehold_table_bytes", "Size of a table with its indexes.";
    OLDEST_XACT, Gauge, "leasehold_oldest_xact_age_seconds", "Age of the oldest transaction that keeps vacuum from removing rows.";
    SWEEP_ROWS, Counter, "leasehold_sweep_rows_total", "Rows that sweeps ended, in all processes, by how.";
    SWEEP_NOW, Gauge, "leasehold_sweep_rows", "Rows of a sweep that are due, in hand, failing, set aside, or stuck.";
    MIRROR_CHECKED, Gauge, "leasehold_mirror_rows_checked", "Rows that the last whole check of a mirror compared.";
    MIRROR_REPAIRED, Counter, "leasehold_mirror_repaired_total", "Rows of a mirror that a check found different and had repaired.";
    MIRROR_DIFFERENCES, Gauge, "leasehold_mirror_differences", "Rows of a mirror that differ now.";
    MIRROR_OLDEST, Gauge, "leasehold_mirror_oldest_difference_age_seconds", "For how long the oldest difference has stood; 0: nothing differs.";
    MIRROR_EQUAL_AGE, Gauge, "leasehold_mirror_equal_age_seconds", "Time since the mirror was last known to be equal to its source.";
    MIRROR_EVENTS, Gauge, "leasehold_mirror_last_minute_rows", "What a mirror did in the last sampled minute, by outcome.";
    ALARM, Gauge, "leasehold_alarm", "1 for each alarm that is up; the state says whether somebody has seen or silenced it.";
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
            assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}");
            assert!(metric.help.ends_with('.') && !metric.help.contains(['\n', '\\']), "{name}");
        }
    }
}
