-- The tables of the sweeps.
--
-- Why: a sweep works on rows of a user's table. What it needs to know besides them is here: one row per
-- sweep (`sweep`: when it runs, what it did) and one per row that failed (`sweep_failure`).
-- Locks: none that matter; every object here is new.
-- An older program sees: nothing of this; it refuses a schema newer than it knows.

-- One row per sweep, written by the worker that declares it.
create table leasehold_internal.sweep (
    name text collate "C" primary key
        constraint sweep_name_form check (name ~ '^[a-z0-9][a-z0-9_.-]{0,63}$'),
    -- The swept table and its columns, so that operators can watch and redrive without the program.
    table_name text not null,
    key_column text not null,
    key_type text not null,
    order_column text not null,
    status_column text not null,
    waiting text not null,
    claimed text not null,
    done text not null,
    claimed_at_column text not null,
    claim_column text not null,
    claim_size int not null constraint sweep_claim_size_positive check (claim_size > 0),
    max_attempts int not null constraint sweep_max_attempts_positive check (max_attempts > 0),
    -- Rows claimed for longer than this belong to a worker that is gone.
    watchdog_after interval not null,
    watchdog_every interval not null,
    -- The most rows that one run of the watchdog resets.
    watchdog_most bigint not null,
    -- Either a cron pattern in a zone, or a pause between runs.
    cron text constraint sweep_cron_length check (octet_length(cron) <= 200),
    zone text,
    every interval,
    -- A sweep is due when the database's clock has passed this. The worker that finds nothing left moves it
    -- on, and compares it there, so that a request that came meanwhile is not lost.
    next_run_at timestamptz not null,
    run_started_at timestamptz,
    -- Null while a run is under way.
    run_ended_at timestamptz,
    watchdog_ran_at timestamptz,
    paused_at timestamptz,
    paused_by text,
    paused_why text,
    -- What all runs did. A worker writes it about once per second, so the counts of a dead worker lack its
    -- last second.
    rows_claimed bigint not null default 0,
    rows_finished bigint not null default 0,
    rows_failed bigint not null default 0,
    -- Finished too late: the watchdog had reset the row.
    rows_lost bigint not null default 0,
    -- Reset by the watchdog.
    rows_reset bigint not null default 0,
    -- Rows that waited and were due when a watchdog last counted them, at most ten thousand. The worker
    -- counts with its own rights, and the sample reads what it recorded. If the owner of the schema ran the
    -- predicate of a sweep, any role that may declare a sweep could have its code run with the owner's rights.
    rows_due bigint,
    due_counted_at timestamptz,
    created_at timestamptz not null default now(),
    -- The role that declared it.
    declared_by text,
    -- What a watchdog counted last, each up to ten thousand: claimed rows, those of them that have no
    -- failure, and those that should have been reset.
    claimed_now bigint,
    unfailed_now bigint,
    stuck_now bigint,
    oldest_claim_at timestamptz,
    claims_counted_at timestamptz,
    constraint sweep_pause_is_signed check (paused_at is null or paused_by is not null),
    constraint sweep_has_a_clock check ((cron is null) = (zone is null) and (cron is null) <> (every is null))
) with (fillfactor = 50, autovacuum_vacuum_threshold = 1000);

-- Rows whose handling failed. The row itself stays claimed under `claim` until `retry_at`; with
-- `dead_at` it stays so until an operator redrives it.
create table leasehold_internal.sweep_failure (
    sweep text collate "C" not null,
    key text collate "C" not null,
    -- The claim that failed. With the key it is the fence: a row claimed anew is not this failure's.
    claim bigint not null,
    attempts int not null constraint sweep_failure_attempts_counted check (attempts >= 0),
    last_error text not null,
    failed_at timestamptz not null default statement_timestamp(),
    -- Null: the row went back, or is dead.
    retry_at timestamptz,
    dead_at timestamptz,
    constraint sweep_failure_waits_or_is_dead check (retry_at is null or dead_at is null),
    primary key (sweep, key)
);
create index sweep_failure_retry_idx on leasehold_internal.sweep_failure (sweep, retry_at)
    where retry_at is not null;
create index sweep_failure_dead_idx on leasehold_internal.sweep_failure (sweep, dead_at)
    where dead_at is not null;
