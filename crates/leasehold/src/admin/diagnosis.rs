//! The statements of `leasehold doctor` and `leasehold bench`: what they read of the engine's tables and no handle
//! returns.
//!
//! They are here, beside the tables, so that the executable names no table of the engine. A test of the engine
//! prepares each one: a change of a table cannot break the doctor unseen. Every row is described at the head of
//! its file.

/// The name and the text of each statement, for the test that prepares them.
pub const ALL: &[(&str, &str)] = &[
    ("locked_jobs", LOCKED_JOBS),
    ("unhandled_names", UNHANDLED_NAMES),
    ("late_leases", LATE_LEASES),
    ("clock", CLOCK),
    ("wake_up", WAKE_UP),
    ("sweeps", SWEEPS),
    ("mirror_triggers", MIRROR_TRIGGERS),
    ("mirror_checks", MIRROR_CHECKS),
    ("mirror_equality", MIRROR_EQUALITY),
    ("samples", SAMPLES),
    ("evaluation", EVALUATION),
    ("alarm_receivers", ALARM_RECEIVERS),
    ("waiting_notifications", WAITING_NOTIFICATIONS),
    ("canaries", CANARIES),
    ("vacuum", VACUUM),
    ("bench_unfinished", BENCH_UNFINISHED),
    ("test_reads_jobs", TEST_RIGHTS[0]),
    ("test_reads_leases", TEST_RIGHTS[1]),
    ("test_completes", TEST_RIGHTS[2]),
    ("test_enqueue", TEST_ENQUEUE),
    ("test_waits", TEST_WAITS),
    ("test_claim", TEST_CLAIM),
    ("test_runs", TEST_RUNS),
    ("test_lease", TEST_LEASE),
    ("test_lease_end", TEST_LEASE_END),
    ("test_renew", TEST_RENEW),
    ("test_complete", TEST_COMPLETE),
    ("test_exists", TEST_EXISTS),
    ("test_history", TEST_HISTORY),
];

/// Jobs that have been due for a minute and are locked by a transaction.
pub const LOCKED_JOBS: &str = include_str!("../../queries/doctor/locked_jobs.sql");
/// Names that wait in a queue with live workers, none of which handles the name.
pub const UNHANDLED_NAMES: &str = include_str!("../../queries/doctor/unhandled_names.sql");
/// Leases that ran out and were not reclaimed.
pub const LATE_LEASES: &str = include_str!("../../queries/doctor/late_leases.sql");
/// The server's clock, and leases that end too late.
pub const CLOCK: &str = include_str!("../../queries/doctor/clock.sql");
/// Whether the trigger that wakes idle workers is enabled.
pub const WAKE_UP: &str = "select exists (select from pg_trigger where tgname = 'job_wakes_idle' \
     and tgrelid = 'leasehold.job'::regclass and tgenabled in ('O', 'A'))";
/// Sweeps that are late or have rows for an operator.
pub const SWEEPS: &str = include_str!("../../queries/doctor/sweeps.sql");
/// Triggers of mirrored tables.
pub const MIRROR_TRIGGERS: &str = include_str!("../../queries/doctor/mirror_triggers.sql");
/// Checks of mirrors that have stopped.
pub const MIRROR_CHECKS: &str = include_str!("../../queries/doctor/mirror_checks.sql");
/// Since when each mirror is equal.
pub const MIRROR_EQUALITY: &str = include_str!("../../queries/doctor/mirror_equality.sql");
/// Whether samples are taken and stored.
pub const SAMPLES: &str = include_str!("../../queries/doctor/samples.sql");
/// Whether samples are evaluated.
pub const EVALUATION: &str = include_str!("../../queries/doctor/evaluation.sql");
/// Receivers of alarms.
pub const ALARM_RECEIVERS: &str = include_str!("../../queries/doctor/alarm_receivers.sql");
/// Notifications of alarms that wait.
pub const WAITING_NOTIFICATIONS: &str =
    include_str!("../../queries/doctor/waiting_notifications.sql");
/// Canaries of watched queues.
pub const CANARIES: &str = include_str!("../../queries/doctor/canaries.sql");
/// What has kept vacuum from removing rows for longer than `$1` seconds.
pub const VACUUM: &str =
    "select h.who, h.remedy, h.age from leasehold_internal.vacuum_holders() h where h.age > $1";

/// Whether `leasehold bench` has jobs that wait or run. It asks often while it measures.
pub const BENCH_UNFINISHED: &str =
    "select exists (select from leasehold.job where queue = 'bench')";
/// Counts the rows of a full queue for the planner.
pub const BENCH_ANALYZE: &str = "analyze leasehold.job";

/// What the self-test must be allowed to do. A role that could not follow the job, claim it or complete it would leave
/// it behind. The completion is of no job and changes nothing.
pub const TEST_RIGHTS: &[&str] = &[
    "select from leasehold.job limit 0",
    "select from leasehold_internal.lease limit 0",
    "select leasehold.complete(0, 0)",
];
/// Enqueues the job `$1` of the self-test in its queue `$2`.
pub const TEST_ENQUEUE: &str = "select job_id from leasehold.enqueue($1, '{\"from\":\"doctor\"}', $2, \
     expires_at => statement_timestamp() + interval '1 minute', key => 'doctor', key_ttl => interval '0')";
/// The enqueued job.
pub const TEST_WAITS: &str = "select from leasehold.job where id = $1 and not held";
/// Claims it.
pub const TEST_CLAIM: &str = "select id, lease_generation from leasehold.claim('doctor', $1, 1)";
/// The claimed job.
pub const TEST_RUNS: &str = "select from leasehold.job where id = $1 and held";
/// The lease of its claim.
pub const TEST_LEASE: &str = "select from leasehold_internal.lease where lease_generation = $1";
/// When that lease ends.
pub const TEST_LEASE_END: &str =
    "select lease_expires_at::text from leasehold_internal.lease where lease_generation = $1";
/// Renews it.
pub const TEST_RENEW: &str = "select state from leasehold.renew(array[$1::bigint])";
/// Completes the job.
pub const TEST_COMPLETE: &str = "select leasehold.complete($1, $2)";
/// The job, if it was not removed.
pub const TEST_EXISTS: &str = "select from leasehold.job where id = $1";
/// The completed job in the history.
pub const TEST_HISTORY: &str = "select from leasehold_internal.history where job_ids @> array[$1::bigint] \
     and outcome = 'completed'";
/// Remove all rows of the queue `$1` of the self-test, in this order.
pub const TEST_REMOVE: &[&str] = &[
    "delete from leasehold.job where queue = $1",
    "delete from leasehold_internal.lease where queue = $1",
    "delete from leasehold_internal.history where queue = $1",
    "delete from leasehold_internal.idempotency_key where queue = $1",
    "delete from leasehold_internal.dead_job where queue = $1",
    "delete from leasehold_internal.queue where name = $1",
];
