begin;
set local lock_timeout = '2s';
set local statement_timeout = '10min';
select pg_advisory_xact_lock(7305, 1);
-- Which migrations ran here. Version 0 stands for the functions and views.
create schema if not exists leasehold;
create table if not exists leasehold.schema_version (
    version int primary key,
    name text not null,
    checksum bytea not null,
    applied_at timestamptz not null default statement_timestamp()
);

-- The tables of the queue.
--
-- Why: one hot table of waiting and running jobs (`job`), one row a claim batch (`lease`), and
-- everything that is over somewhere else (`dead_job`, `history`), so that the claim scan never
-- meets a job that is finished.
-- Locks: none that matter; every object here is new.
-- An old binary sees: nothing of this; it refuses a schema newer than it knows.

create sequence leasehold.generation;

-- What holds for every job of a queue. Enqueueing needs no row here; the first claim of a queue
-- makes one with these defaults.
create table leasehold.queue (
    name text collate "C" primary key
        constraint queue_name_form check (name <> '' and octet_length(name) <= 64),
    -- How long a claim lasts without renewal.
    lease interval not null default interval '30 seconds'
        constraint lease_at_least_a_second check (lease >= interval '1 second'),
    -- How often a job may start before it is buried, where the job itself does not say.
    max_attempts int not null default 25
        constraint max_attempts_positive check (max_attempts > 0),
    -- How many workers may die under a job before it is buried.
    max_lost int not null default 3
        constraint max_lost_positive check (max_lost > 0),
    -- The most jobs that one claim takes.
    batch int not null default 1000
        constraint batch_positive check (batch > 0),
    -- A handler that is still running after this is given up.
    run_limit interval not null default interval '1 hour',
    -- Back-off between attempts: base * 2^(attempts - 1), never above the cap, with jitter.
    backoff_base interval not null default interval '1 second',
    backoff_cap interval not null default interval '1 hour',
    -- Whether finished jobs are filed in `history`.
    keep_history boolean not null default true,
    -- What people call it, and whose it is: for dashboards, and for whoever is woken.
    display_name text constraint queue_display_name_form check (octet_length(display_name) between 1 and 200),
    owner text constraint queue_owner_form check (octet_length(owner) between 1 and 200),
    paused_at timestamptz,
    paused_by text,
    paused_why text,
    created_at timestamptz not null default now(),
    constraint pause_is_signed check (paused_at is null or paused_by is not null)
);

-- Jobs that wait or run. Finished jobs leave at once.
--
-- A claim changes only `held`, `lease_generation` and `attempts`: no index mentions them and the
-- pages keep room, so a claim is a heap-only update and leaves no dead index entry behind.
create table leasehold.job (
    id bigint generated always as identity (cache 50) primary key,
    enqueued_at timestamptz not null default now(),
    scheduled_at timestamptz not null default now(),
    expires_at timestamptz not null default now() + interval '30 days',
    -- Lower runs first.
    priority int not null default 0,
    -- Null: what the queue says.
    max_attempts int constraint job_max_attempts_positive check (max_attempts > 0),
    -- How many workers died under this job.
    lost_count smallint not null default 0,
    cancel_requested boolean not null default false,
    -- What a claim changes stands together: the log holds the bytes from the first change to the last.
    -- True while the lease `lease_generation` owns the job.
    held boolean not null default false,
    -- The generation of the last claim; with `id` it is the fence. 0: never claimed.
    lease_generation bigint not null default 0,
    -- Charged when a job is claimed.
    attempts int not null default 0,
    queue text collate "C" not null default 'default'
        constraint job_queue_form check (queue <> '' and octet_length(queue) <= 64),
    name text collate "C" not null
        constraint job_name_form check (name <> '' and octet_length(name) <= 200),
    -- Where the job came from, for people and for measurement.
    tag text not null default '' constraint job_tag_form check (octet_length(tag) <= 200),
    kwargs jsonb not null default '{}'::jsonb
        constraint job_kwargs_object check (jsonb_typeof(kwargs) = 'object')
        constraint job_kwargs_size check (pg_column_size(kwargs) <= 65536),
    idempotency_key text collate "C",
    last_error text,
    -- W3C traceparent of whoever enqueued the job.
    trace_context text
) with (
    fillfactor = 45,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

-- A worker asks for a queue, the names it knows and a priority, and reads what is due in order.
-- Jobs due later and names it does not know are outside the range it reads.
create index job_claim_idx on leasehold.job (queue, name, priority, scheduled_at, id);

-- The few jobs whose worker died: they are claimed one at a time.
create index job_lost_idx on leasehold.job (queue, name, priority, scheduled_at, id)
    where lost_count > 0;

-- One row a claim: who holds the jobs of one generation, and until when.
-- A row outlives its end by a minute or more, so that a worker whose COMMIT reply was lost can ask
-- what became of it.
create table leasehold.lease (
    lease_generation bigint primary key,
    claimed_at timestamptz not null default statement_timestamp(),
    lease_expires_at timestamptz not null,
    lease interval not null,
    -- Null while any job is held. Set in the statement that lets go of the last one.
    ended_at timestamptz,
    keep_history boolean not null,
    queue text collate "C" not null,
    -- For people and for finding a worker's leases; never a fence.
    claimed_by text not null,
    -- Made by the claimer, so that a claim whose reply was lost can be found again.
    claim_id uuid,
    job_ids bigint[] not null,
    -- Jobs that an expiry took away from this lease.
    lost_ids bigint[] not null default '{}'
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

create index lease_expiry_idx on leasehold.lease (lease_expires_at) where ended_at is null;

-- Jobs that will not run again unless someone redrives them. Nothing removes them but a person or
-- a retention that a person set.
create table leasehold.dead_job (
    id bigint primary key,
    enqueued_at timestamptz not null,
    scheduled_at timestamptz not null,
    expires_at timestamptz not null,
    died_at timestamptz not null default statement_timestamp(),
    lease_generation bigint not null,
    priority int not null,
    attempts int not null,
    max_attempts int,
    lost_count smallint not null,
    cause text not null constraint dead_job_cause check (cause in (
        'exhausted',   -- every attempt failed
        'lost',        -- too many workers died under it
        'refused',     -- the handler said that another attempt is useless
        'undecodable', -- the arguments do not fit what the handler expects
        'expired'      -- not started before `expires_at`
    )),
    claimed_by text,
    queue text collate "C" not null,
    name text collate "C" not null,
    tag text not null,
    kwargs jsonb not null,
    idempotency_key text collate "C",
    last_error text,
    trace_context text
);
create index dead_job_queue_idx on leasehold.dead_job (queue, died_at);

-- Finished jobs, one row a batch, in partitions of a day that are dropped, never vacuumed.
create table leasehold.history (
    finished_at timestamptz not null default statement_timestamp(),
    outcome text not null constraint history_outcome check (outcome in ('completed', 'cancelled')),
    queue text collate "C" not null,
    lease_generation bigint not null,
    claimed_by text,
    job_ids bigint[] not null,
    names text[] not null,
    tags text[] not null,
    attempts int[] not null,
    enqueued_at timestamptz[] not null,
    kwargs jsonb[] not null,
    note text
) partition by range (finished_at);
-- Finishing a job must not fail because nobody made tomorrow's partition.
create table leasehold.history_rest partition of leasehold.history default;

-- Idempotency keys outlive the jobs that they made.
create table leasehold.idempotency_key (
    queue text collate "C" not null,
    key text collate "C" not null
        constraint key_form check (key <> '' and octet_length(key) <= 200),
    job_id bigint not null,
    payload_hash bytea not null,
    -- The key is taken until then, and for as long as its job waits or runs.
    holds_until timestamptz not null,
    created_at timestamptz not null default statement_timestamp(),
    primary key (queue, key)
);
create index idempotency_key_age_idx on leasehold.idempotency_key (holds_until);

-- "Already done" marks that handlers set before and after an effect.
create table leasehold.once_marker (
    scope text collate "C" not null constraint once_scope_form check (octet_length(scope) <= 300),
    step text collate "C" not null constraint once_step_form check (octet_length(step) <= 200),
    started_at timestamptz not null default statement_timestamp(),
    -- Null: started, and nobody knows whether the effect took place.
    finished_at timestamptz,
    result jsonb,
    job_id bigint,
    lease_generation bigint,
    -- Marks are kept at least this long.
    keep_until timestamptz not null,
    primary key (scope, step)
);
create index once_marker_age_idx on leasehold.once_marker (keep_until);

-- Worker processes, for people: no transition asks this table.
create table leasehold.worker (
    -- The name that people gave plus an id of this one process.
    id text primary key,
    name text not null,
    host text not null,
    pid int not null,
    version text not null,
    queues text[] not null,
    names text[] not null,
    slots int not null,
    busy int not null default 0,
    started_at timestamptz not null default statement_timestamp(),
    last_seen_at timestamptz not null default statement_timestamp(),
    draining_since timestamptz,
    stopped_at timestamptz
);

-- Jobs that the clock enqueues. `next_slot` is compared and moved in the statement that inserts
-- the job, so a slot fires once however many workers look at it.
create table leasehold.schedule (
    name text collate "C" primary key
        constraint schedule_name_form check (name ~ '^[a-z0-9][a-z0-9_.-]{0,63}$'),
    cron text not null constraint schedule_cron_length check (octet_length(cron) <= 200),
    zone text not null default 'UTC',
    queue text collate "C" not null default 'default',
    job_name text collate "C" not null,
    kwargs jsonb not null default '{}'::jsonb,
    tag text not null default 'schedule',
    priority int not null default 0,
    -- What to do with slots that passed while no worker ran.
    missed text not null default 'once'
        constraint schedule_missed check (missed in ('skip', 'once', 'all')),
    next_slot timestamptz not null,
    last_slot timestamptz,
    last_job_id bigint,
    missed_slots bigint not null default 0,
    paused_at timestamptz,
    paused_by text,
    created_at timestamptz not null default now()
);

-- What people did.
create table leasehold.audit (
    at timestamptz not null default statement_timestamp(),
    actor text not null,
    action text not null,
    subject text not null,
    detail text
);
create index audit_at_idx on leasehold.audit (at);

-- Where a walk over all jobs has got to, shared by every housekeeper: one of them takes the next
-- piece, the others find that it was just done.
create table leasehold.duty (
    name text collate "C" primary key,
    after_id bigint not null default 0,
    ran_at timestamptz not null default '-infinity'
);
insert into leasehold.duty (name) values ('walk_jobs');

insert into leasehold.schema_version (version, name, checksum) values (1, 'tables', '\x6a1a491936ef45fe2837b60efbb155551270822e1334f61fb852f8ed322b60d9') on conflict (version) do update set checksum = excluded.checksum, applied_at = statement_timestamp();
-- The tables of the sweeps.
--
-- Why: a sweep works on rows of somebody else's table; what it needs to know beside them stands
-- here: one row a sweep (`sweep`: when it runs, what it did) and one a row that failed
-- (`sweep_failure`).
-- Locks: none that matter; every object here is new.
-- An old binary sees: nothing of this; it refuses a schema newer than it knows.

-- One row a sweep, written by whoever declares it.
create table leasehold.sweep (
    name text collate "C" primary key
        constraint sweep_name_form check (name ~ '^[a-z0-9][a-z0-9_.-]{0,63}$'),
    -- The swept table and its columns, so that people can watch and redrive without the program.
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
    batch int not null constraint sweep_batch_positive check (batch > 0),
    max_attempts int not null constraint sweep_max_attempts_positive check (max_attempts > 0),
    -- Rows claimed for longer than this belong to a worker that is gone.
    watchdog_after interval not null,
    watchdog_every interval not null,
    -- At most so many rows come back in one run of the watchdog.
    watchdog_most bigint not null,
    -- Either a cron pattern in a zone, or a pause between runs.
    cron text constraint sweep_cron_length check (octet_length(cron) <= 200),
    zone text,
    every interval,
    -- A sweep is due when the database's clock has passed this. Moved on by whoever finds nothing
    -- left; compared there, so that a request that came meanwhile is not lost.
    next_run_at timestamptz not null,
    run_started_at timestamptz,
    -- Null while a run is under way.
    run_ended_at timestamptz,
    watchdog_ran_at timestamptz,
    paused_at timestamptz,
    paused_by text,
    paused_why text,
    -- What all runs did. Written now and then, so a worker that dies takes a second of it along.
    rows_claimed bigint not null default 0,
    rows_finished bigint not null default 0,
    rows_failed bigint not null default 0,
    -- Finished too late: the claim had been taken back.
    rows_lost bigint not null default 0,
    -- Brought back by the watchdog.
    rows_reset bigint not null default 0,
    -- Rows that waited and were due when a watchdog last counted them, at most ten thousand. Whoever counts
    -- has the sweep's own predicate and its own rights; nobody else runs the predicate.
    rows_due bigint,
    due_counted_at timestamptz,
    created_at timestamptz not null default now(),
    constraint sweep_pause_is_signed check (paused_at is null or paused_by is not null),
    constraint sweep_has_a_clock check ((cron is null) = (zone is null) and (cron is null) <> (every is null))
) with (fillfactor = 50, autovacuum_vacuum_threshold = 1000);

-- Rows whose handling failed. The row itself stays claimed under `claim` until `retry_at`; with
-- `dead_at` it stays so until someone redrives it.
create table leasehold.sweep_failure (
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
create index sweep_failure_retry_idx on leasehold.sweep_failure (sweep, retry_at)
    where retry_at is not null;
create index sweep_failure_dead_idx on leasehold.sweep_failure (sweep, dead_at)
    where dead_at is not null;

insert into leasehold.schema_version (version, name, checksum) values (2, 'sweep', '\xb08719ed2c79150b4ae56c72588de1497c4b31325d1ce11575b72e0953a1b327') on conflict (version) do update set checksum = excluded.checksum, applied_at = statement_timestamp();
-- The tables of the mirrors.
--
-- Why: a mirror keeps a second store equal to rows of somebody else's table. What it has to remember
-- beside them stands here: one row a mirror (`mirror`: how far its check and its rebuild are, what
-- they found), one a row that was deleted (`mirror_gone`) and one a difference that was found
-- (`mirror_difference`).
-- Locks: none that matter; every object here is new.
-- An old binary sees: nothing of this; it refuses a schema newer than it knows.

-- One row a mirror, written by whoever declares it.
create table leasehold.mirror (
    name text collate "C" primary key
        constraint mirror_name_form check (name ~ '^[a-z0-9][a-z0-9_.-]{0,63}$'),
    -- The mirrored table and its columns.
    table_name text not null,
    key_column text not null,
    key_kind text not null
        constraint mirror_key_kind check (key_kind in ('text', 'uuid', 'integer')),
    version_column text not null,
    -- Where the jobs of its changes go, and what they look like.
    queue text collate "C" not null,
    job_name text collate "C" not null,
    job_field text not null,
    -- A change is looked at this long after it was made.
    verify_after interval not null,
    -- Deletions are remembered this long.
    tombstones interval not null,
    check_every interval not null,
    range_rows int not null constraint mirror_range_positive check (range_rows > 0),

    -- The set of documents that is searched; null: the store has only one.
    serving text,
    -- A second set that is written too: one that is being built, or the former one.
    second text,
    phase text not null default 'none' constraint mirror_phase check (phase in (
        'none',      -- one set
        'building',  -- the second is being filled
        'verifying', -- the second is compared with the table
        'swapped'    -- the second is the former one, kept to go back to
    )),
    rebuild_after text collate "C",
    rebuild_rows bigint not null default 0,
    rebuild_started_at timestamptz,
    rebuild_ended_at timestamptz,

    -- Where the check is: the last key that it has compared, and who is at it until when.
    check_after text collate "C",
    check_token bigint not null default 0,
    check_due_at timestamptz not null default '-infinity',
    check_busy_until timestamptz,
    round_started_at timestamptz,
    round_rows bigint not null default 0,
    round_repaired bigint not null default 0,

    -- What the last whole round of the check found.
    checked_at timestamptz,
    rows_checked bigint not null default 0,
    repaired bigint not null default 0,
    repaired_total bigint not null default 0,
    rounds bigint not null default 0,
    differences bigint not null default 0,
    oldest_difference timestamptz,
    -- Every change that was committed before this is in the store.
    equal_as_of timestamptz,

    created_at timestamptz not null default now(),
    constraint mirror_phase_has_a_second check ((phase = 'none') = (second is null))
) with (fillfactor = 50, autovacuum_vacuum_threshold = 1000);

-- Rows that were deleted, with a version above every one that they had. A document that comes late
-- finds its tombstone; a row that comes back starts above it.
create table leasehold.mirror_gone (
    mirror text collate "C" not null,
    key text collate "C" not null,
    version bigint not null,
    gone_at timestamptz not null default statement_timestamp(),
    primary key (mirror, key)
);
create index mirror_gone_age_idx on leasehold.mirror_gone (mirror, gone_at);

-- What a check found unequal, and nobody has seen equal since.
create table leasehold.mirror_difference (
    mirror text collate "C" not null,
    key text collate "C" not null,
    kind text not null constraint mirror_difference_kind check (kind in (
        'missing', -- in the table, not in the store
        'stale',   -- in both, in two versions
        'ghost'    -- in the store, not in the table
    )),
    source_version bigint,
    held_version bigint,
    first_seen timestamptz not null default statement_timestamp(),
    last_seen timestamptz not null default statement_timestamp(),
    -- How many jobs were made to mend it, and when the last one was.
    repairs int not null default 0,
    repaired_at timestamptz,
    primary key (mirror, key)
);
create index mirror_difference_age_idx on leasehold.mirror_difference (mirror, first_seen);

insert into leasehold.schema_version (version, name, checksum) values (3, 'mirror', '\x07ee801e4fd0b573290a9d85bcca74aa16fbc9577385c3a5ddddfe5d7b2fd449') on conflict (version) do update set checksum = excluded.checksum, applied_at = statement_timestamp();
-- What the engine measures of itself, and the alarms that follow from it.
--
-- Why: a queue that nobody looks at fails in silence. Once a minute one worker of the fleet writes
-- down what it sees (`measure`), compares it with what people expect (`watch`), and keeps what is
-- wrong (`alarm`).
-- Locks: the tables are new. `dead_job` and `history` get an index each, and finishing waits while
-- they are built: one read over the rows that are kept, without their arguments.
-- An old binary sees: nothing of this; it refuses a schema newer than it knows.

-- One value a minute, metric and subject; minutes are kept for a day.
create table leasehold.measure (
    -- The minute, by its beginning.
    at timestamptz not null,
    kind text collate "C" not null constraint measure_kind check (kind in (
        'queue', 'tag', 'sweep', 'mirror', 'mirror_tag', 'database')),
    -- A queue, `queue/tag`, a sweep, a mirror, `mirror/tag`, a table, or empty: the database as a whole.
    subject text collate "C" not null,
    metric text collate "C" not null,
    -- True: so many in this minute. False: as it stood at the end of it.
    flow boolean not null,
    value double precision not null,
    primary key (at, kind, subject, metric)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05);

-- For a chart: one metric over a day, without the others of each minute.
create index measure_series_idx on leasehold.measure (kind, metric, at);

-- The same an hour: flows are sums, the others the mean. Hours are kept for ninety days.
create table leasehold.measure_hour (
    at timestamptz not null,
    kind text collate "C" not null,
    subject text collate "C" not null,
    metric text collate "C" not null,
    flow boolean not null,
    value double precision not null,
    highest double precision not null,
    -- Of how many minutes.
    minutes int not null,
    primary key (at, kind, subject, metric)
);

create index measure_hour_series_idx on leasehold.measure_hour (kind, metric, at);

-- What happened and left no other trace: retries, losses, burials, what a mirror did. Appended by the
-- statement that did it, read once by the sampler, thrown away after two hours.
create table leasehold.tally (
    at timestamptz not null default statement_timestamp(),
    queue text not null default '',
    tag text not null default '',
    what text not null,
    n bigint not null,
    -- Whom it concerns when that is no queue: the name of a mirror.
    subject text not null default ''
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
create index tally_at_idx on leasehold.tally (at);

-- A minute's reading must not read a day. Rows come in the order of their time, so that a few bytes
-- for each range of pages are enough, and filing a batch costs nothing more.
create index history_finished_idx on leasehold.history using brin (finished_at)
    with (pages_per_range = 32, autosummarize = on);
-- Expired jobs are few, and each of them is an alarm.
create index dead_job_expired_idx on leasehold.dead_job (queue) where cause = 'expired';

-- What people expect of a queue.
create table leasehold.watch (
    queue text collate "C" primary key
        constraint watch_queue_form check (queue <> '' and octet_length(queue) <= 64),
    -- Fewer jobs completed than this within `over`: an alarm. 0: off.
    min_completed bigint not null default 1
        constraint watch_min_completed_counted check (min_completed >= 0),
    over interval not null default interval '10 minutes'
        constraint watch_over_sane check (over between interval '2 minutes' and interval '23 hours'),
    -- More jobs than this wait or run: an alarm. Null: off.
    max_length bigint constraint watch_max_length_counted check (max_length >= 0),
    -- Jobs of these tags do not count into the length: work that is long on purpose. `reindex_*` is
    -- every tag that begins so.
    bulk_tags text[] not null default '{reindex_*}',
    -- The oldest job that could run has waited longer than this: an alarm. Null: off.
    max_age interval default interval '1 hour' constraint watch_max_age_positive check (max_age > interval '0'),
    -- So many jobs died, or lost their worker, within a quarter of an hour: an alarm. 0: off.
    max_dead bigint not null default 10 constraint watch_max_dead_counted check (max_dead >= 0),
    max_lost bigint not null default 10 constraint watch_max_lost_counted check (max_lost >= 0),
    -- Somebody said that this queue is not to be watched: services that declare a watch leave it so.
    off boolean not null default false,
    -- Nothing is too little before it has been looked at for `over`.
    since timestamptz not null default statement_timestamp(),
    changed_by text not null
);

-- What is wrong, and what was. One open row for a rule and what it is about.
create table leasehold.alarm (
    id bigint generated always as identity primary key,
    rule text collate "C" not null,
    subject text collate "C" not null,
    raised_at timestamptz not null default statement_timestamp(),
    -- Null: it still holds.
    cleared_at timestamptz,
    -- As of the last look.
    seen_at timestamptz not null default statement_timestamp(),
    value double precision not null,
    threshold double precision not null,
    summary text not null,
    acknowledged_at timestamptz,
    acknowledged_by text,
    acknowledged_why text,
    -- Nobody is told before then.
    silenced_until timestamptz,
    silenced_by text,
    silenced_why text,
    -- When the word went out. Null: nobody was told, so nobody needs to hear that it is over.
    notified_at timestamptz,
    constraint alarm_acknowledged_by_someone
        check ((acknowledged_at is null) = (acknowledged_by is null)
               and (acknowledged_at is null) = (acknowledged_why is null)),
    constraint alarm_silence_is_signed
        check (silenced_until is null or (silenced_by is not null and silenced_why is not null))
);
create unique index alarm_open_idx on leasehold.alarm (rule, subject) where cleared_at is null;
create index alarm_raised_idx on leasehold.alarm (raised_at);

-- Who is told: the names of the jobs that carry the word. Whoever can carry it says so now and then.
create table leasehold.alarm_receiver (
    job_name text collate "C" primary key
        constraint alarm_receiver_form check (job_name ~ '^leasehold\.alarm\.[a-z0-9_.-]{1,64}$'),
    seen_at timestamptz not null default statement_timestamp()
);

insert into leasehold.duty (name) values ('measure');

insert into leasehold.schema_version (version, name, checksum) values (4, 'watch', '\x7b22bc4dd0c9226cc9509f1b4e382d48712bc94acf2a254e80a0298e19a907c0') on conflict (version) do update set checksum = excluded.checksum, applied_at = statement_timestamp();
-- Functions that read jobs or leases turn off the plans that read a whole table. A session keeps the
-- plan that it made when the table was empty, and would go on reading all of it, for each job that
-- fails, until somebody counts the rows again. The hot ones also keep one plan for all arguments:
-- planning anew for each call costs more than the call. And none is compiled: over a large table the
-- estimate is high, but a claim reads a few rows.

-- The settings of a queue. The first worker that asks makes the row.
create or replace function leasehold.queue_settings(of_queue text)
returns leasehold.queue
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    settings leasehold.queue;
begin
    select * into settings from leasehold.queue where name = of_queue;
    if not found then
        insert into leasehold.queue (name) values (of_queue) on conflict (name) do nothing;
        select * into settings from leasehold.queue where name = of_queue;
    end if;
    return settings;
exception when check_violation then
    raise exception 'queue name % is not allowed', quote_literal(of_queue)
        using errcode = 'LH001',
              hint = 'A queue name has 1 to 64 bytes.';
end $$;

-- A generation no claim ever had. The sequence makes it grow; the random low bits keep a
-- generation from being issued twice when a failover or a restore sets the sequence back.
create or replace function leasehold.next_generation()
returns bigint
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    return (nextval('leasehold.generation') << 20) | floor(random() * 1048576)::bigint;
end $$;

-- How long a job waits after its nth attempt failed: doubling, capped, with a fifth of jitter
-- either way so that what failed together does not come back together.
create or replace function leasehold.backoff(attempts int, base interval, cap interval)
returns interval
language sql volatile set search_path = leasehold, pg_temp as $$
    select least(base * power(2, least(greatest(attempts, 1) - 1, 30)), cap)
           * (0.8 + 0.4 * random())
$$;

-- The number of the SQL contract. Functions of one contract keep their names, arguments and
-- results; an incompatible change gets a new name beside the old one.
create or replace function leasehold.contract()
returns int
language sql immutable as 'select 1';

-- Enqueues one job in the caller's transaction.
--
-- Without a key every call makes a job. With a key, the first call makes the job and later ones
-- get its id: the key is taken while the job waits or runs, and for `key_for` after the enqueue.
-- The same key with another name or other arguments is refused.
create or replace function leasehold.enqueue(
    name text,
    kwargs jsonb default '{}'::jsonb,
    queue text default 'default',
    priority int default 0,
    scheduled_at timestamptz default null,
    expires_at timestamptz default null,
    tag text default '',
    max_attempts int default null,
    key text default null,
    key_for interval default interval '24 hours',
    trace_context text default null
)
returns table (job_id bigint, inserted boolean)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_variable
declare
    due timestamptz := coalesce(scheduled_at, statement_timestamp());
    dead_line timestamptz := coalesce(
        expires_at, greatest(due, statement_timestamp()) + interval '30 days');
    digest bytea;
    known leasehold.idempotency_key;
begin
    perform leasehold.check_enqueue(name, kwargs, queue);
    perform leasehold.check_options(tag, max_attempts, due, key);
    if key is null then
        insert into leasehold.job as j
            (name, kwargs, queue, priority, scheduled_at, expires_at, tag, max_attempts, trace_context)
        values (name, kwargs, queue, priority, due, dead_line, tag, max_attempts, trace_context)
        returning j.id into job_id;
        inserted := true;
        return next;
        return;
    end if;

    digest := leasehold.payload_hash(name, kwargs);
    loop
        job_id := nextval('leasehold.job_id_seq');
        -- Waits for a transaction that is inserting the same key.
        insert into leasehold.idempotency_key (queue, key, job_id, payload_hash, holds_until)
        values (queue, key, job_id, digest, statement_timestamp() + key_for)
        on conflict on constraint idempotency_key_pkey do nothing;
        if not found then
            -- Lock first and look afterwards, each in a statement of its own: a statement that
            -- waits here does not see the job that the other transaction made, takes the key for
            -- free and makes a second one.
            select * into known from leasehold.idempotency_key k
             where k.queue = queue and k.key = key
               for update;
            if not found then
                continue; -- the key was pruned in between
            end if;
            if known.holds_until > statement_timestamp()
               or exists (select from leasehold.job j where j.id = known.job_id) then
                if known.payload_hash <> digest then
                    raise exception 'key % of queue % belongs to job % with another payload',
                        quote_literal(key), quote_literal(queue), known.job_id
                        using errcode = 'LH003',
                              hint = 'Use a new key for a new request; repeat a request with the same name and arguments.';
                end if;
                job_id := known.job_id;
                inserted := false;
                return next;
                return;
            end if;
            -- Its time is up and its job is over.
            update leasehold.idempotency_key k
               set job_id = job_id, payload_hash = digest,
                   holds_until = statement_timestamp() + key_for, created_at = statement_timestamp()
             where k.queue = queue and k.key = key;
        end if;
        insert into leasehold.job
            (id, name, kwargs, queue, priority, scheduled_at, expires_at, tag, max_attempts,
             idempotency_key, trace_context)
        overriding system value
        values (job_id, name, kwargs, queue, priority, due, dead_line, tag, max_attempts,
                key, trace_context);
        inserted := true;
        return next;
        return;
    end loop;
end $$;

-- Enqueues many jobs of one queue in the caller's transaction; `keys` may hold nulls.
-- The answer is in the order of the arguments.
create or replace function leasehold.enqueue_many(
    names text[],
    kwargs jsonb[],
    queue text default 'default',
    priority int default 0,
    scheduled_at timestamptz default null,
    expires_at timestamptz default null,
    tag text default '',
    max_attempts int default null,
    keys text[] default null,
    key_for interval default interval '24 hours'
)
returns table (job_id bigint, inserted boolean)
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_variable
declare
    due timestamptz := coalesce(scheduled_at, statement_timestamp());
    dead_line timestamptz := coalesce(
        expires_at, greatest(due, statement_timestamp()) + interval '30 days');
    job_ids bigint[] := array_fill(null::bigint, array[cardinality(names)]);
    new_ones boolean[] := array_fill(null::boolean, array[cardinality(names)]);
    i int;
begin
    if cardinality(names) <> cardinality(kwargs)
       or (keys is not null and cardinality(keys) <> cardinality(names)) then
        raise exception 'names, kwargs and keys must have the same length'
            using errcode = 'LH002', hint = 'Pass one entry a job in each array.';
    end if;
    perform leasehold.check_options(tag, max_attempts, due, null);
    for i in 1 .. cardinality(names) loop
        perform leasehold.check_enqueue(names[i], kwargs[i], queue);
    end loop;
    if keys is null then
        return query
        insert into leasehold.job as j
            (name, kwargs, queue, priority, scheduled_at, expires_at, tag, max_attempts)
        select u.name, u.kwargs, queue, priority, due, dead_line, tag, max_attempts
          from unnest(names, kwargs) as u (name, kwargs)
        returning j.id, true;
        return;
    end if;
    -- Keys are taken in one order by everybody, so that two batches cannot wait for each other.
    -- The answers are kept in arrays: a temporary table of the same name that the caller made
    -- before, with a trigger on it, would run the caller's code with the owner's rights.
    for i in select s.i from generate_subscripts(names, 1) as s (i)
             order by keys[s.i] collate "C" nulls last, s.i loop
        select e.job_id, e.inserted into job_id, inserted
          from leasehold.enqueue(names[i], kwargs[i], queue, priority, due, dead_line, tag,
                                 max_attempts, keys[i], key_for) e;
        job_ids[i] := job_id;
        new_ones[i] := inserted;
    end loop;
    return query
    select u.job_id, u.inserted
      from unnest(job_ids, new_ones) with ordinality as u (job_id, inserted, place)
     order by u.place;
end $$;

-- Says what is wrong with a job before it is stored.
create or replace function leasehold.check_enqueue(name text, kwargs jsonb, queue text)
returns void
language plpgsql immutable set search_path = leasehold, pg_temp as $$
begin
    if queue is null or queue !~ '^[a-z0-9][a-z0-9_.-]{0,63}$' then
        raise exception 'queue name % is not allowed', coalesce(quote_literal(queue), 'null')
            using errcode = 'LH001',
                  hint = 'Use 1 to 64 of a-z, 0-9, dot, dash and underscore, starting with a letter or digit.';
    end if;
    if name is null or name = '' or octet_length(name) > 200 then
        raise exception 'a job name has 1 to 200 bytes'
            using errcode = 'LH002', hint = 'Name the job after what it does, such as email.send.';
    end if;
    if kwargs is null or jsonb_typeof(kwargs) <> 'object' then
        raise exception 'the arguments of a job are a JSON object'
            using errcode = 'LH002', hint = 'Wrap the value: {"value": ...}.';
    end if;
    if pg_column_size(kwargs) > 65536 then
        raise exception 'the arguments of a job take at most 64 KiB, these take % bytes',
            pg_column_size(kwargs)
            using errcode = 'LH002', hint = 'Store the bulk elsewhere and enqueue a reference to it.';
    end if;
end $$;

-- The same for what a job may do without. The table checks it too; this says it in words.
create or replace function leasehold.check_options(
    tag text, max_attempts int, scheduled_at timestamptz, key text
)
returns void
language plpgsql immutable set search_path = leasehold, pg_temp as $$
begin
    if key = '' or octet_length(key) > 200 then
        raise exception 'this idempotency key has % bytes', octet_length(key)
            using errcode = 'LH002',
                  hint = 'A key has 1 to 200 bytes; leave it out to enqueue without one, hash what is longer.';
    end if;
    if tag is null or octet_length(tag) > 200 then
        raise exception 'this tag has % bytes', coalesce(octet_length(tag)::text, 'no')
            using errcode = 'LH002', hint = 'A tag has at most 200 bytes; it may be empty.';
    end if;
    if max_attempts < 1 then
        raise exception 'a job cannot have % attempts', max_attempts
            using errcode = 'LH002',
                  hint = 'Give it at least one attempt, or null for what its queue says.';
    end if;
    if scheduled_at not between timestamptz '0001-01-01 00:00Z' and timestamptz '9999-01-01 00:00Z' then
        raise exception 'a job cannot be scheduled at %', scheduled_at
            using errcode = 'LH002', hint = 'Give it a date before the year 9999.';
    end if;
end $$;

-- What two enqueues with one key must agree on. `jsonb` has one text for one value.
create or replace function leasehold.payload_hash(name text, kwargs jsonb)
returns bytea
language sql immutable set search_path = leasehold, pg_temp as $$
    select sha256(convert_to(name || E'\n' || kwargs::text, 'UTF8'))
$$;

-- Tells idle workers that a queue has work. A hint: a worker that misses it polls. Call it after
-- the commit, or let the poll find the job: NOTIFY inside busy transactions serialises commits.
create or replace function leasehold.wake(queue text default 'default')
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select pg_notify('leasehold_wake', queue)
$$;

-- Where a queue has work for these names: one row a (name, priority) that has any job at all, with
-- the place of its first. Hops from one pair to the next in the index; never reads the jobs between,
-- nor names that were not asked for.
create or replace function leasehold.lanes(of_queue text, known_names text[] default null)
returns table (name text, priority int, first_at timestamptz, first_id bigint)
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $$
begin
    if known_names is null then
        return query
        with recursive hop (name, priority, first_at, first_id) as (
            (select j.name, j.priority, j.scheduled_at, j.id from leasehold.job j
              where j.queue = of_queue
              order by j.name, j.priority, j.scheduled_at, j.id limit 1)
            union all
            select next.name, next.priority, next.scheduled_at, next.id
              from hop cross join lateral (
                select j.name, j.priority, j.scheduled_at, j.id from leasehold.job j
                 where j.queue = of_queue and (j.name, j.priority) > (hop.name, hop.priority)
                 order by j.name, j.priority, j.scheduled_at, j.id limit 1) next
        )
        select hop.name, hop.priority, hop.first_at, hop.first_id from hop;
    else
        return query
        with recursive hop (name, priority, first_at, first_id) as (
            select first.name, first.priority, first.scheduled_at, first.id
              from (select distinct u.name from unnest(known_names) as u (name)) known
             cross join lateral (
                select j.name, j.priority, j.scheduled_at, j.id from leasehold.job j
                 where j.queue = of_queue and j.name = known.name
                 order by j.priority, j.scheduled_at, j.id limit 1) first
            union all
            select hop.name, next.priority, next.scheduled_at, next.id
              from hop cross join lateral (
                select j.priority, j.scheduled_at, j.id from leasehold.job j
                 where j.queue = of_queue and j.name = hop.name and j.priority > hop.priority
                 order by j.priority, j.scheduled_at, j.id limit 1) next
        )
        select hop.name, hop.priority, hop.first_at, hop.first_id from hop;
    end if;
end $$;

do $$ begin
    create type leasehold.claimed_job as (
        id bigint, name text, kwargs jsonb, priority int, scheduled_at timestamptz,
        attempts int, max_attempts int, lost_count smallint, lease_generation bigint,
        tag text, enqueued_at timestamptz, idempotency_key text, trace_context text,
        run_limit interval, lease interval, max_lost int
    );
exception when duplicate_object then null;
end $$;

-- Claims up to `up_to` jobs of one queue from the given lanes, each from just after a place in the
-- order, and gives them one lease.
--
-- One statement does it: rows that another claimer is looking at are skipped, and the write checks
-- again that they are free. The write goes by row address because a join on ids under a LIMIT
-- tempts the planner into reading the whole table. Jobs whose worker died are left to `claim_lost`.
-- The generation is drawn after the rows are locked: drawn before, a claim that was held up could
-- give a job a lower one than a claim that overtook it, and whoever compares generations would
-- trust the former holder.
create or replace function leasehold.claim_lanes(
    worker text, from_queue text, up_to int, lease_for interval, with_claim_id uuid,
    lane_names text[], lane_priorities int[], after_at timestamptz[], after_id bigint[]
)
returns setof leasehold.claimed_job
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_tidscan = on
set enable_seqscan = off set jit = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $$
declare
    settings leasehold.queue := leasehold.queue_settings(from_queue);
    length interval := coalesce(lease_for, settings.lease);
begin
    if settings.paused_at is not null or up_to <= 0 then
        return;
    end if;
    return query
    with picked as materialized (
        select due.place
          from (select u.name, u.priority, coalesce(u.after_at, '-infinity') as after_at, u.after_id
                  from unnest(lane_names, lane_priorities, after_at, after_id)
                       as u (name, priority, after_at, after_id)) lane
         cross join lateral (
            select j.ctid as place, j.priority, j.scheduled_at, j.id
              from leasehold.job j
             where j.queue = from_queue and j.name = lane.name and j.priority = lane.priority
               and (j.scheduled_at, j.id) > (lane.after_at, lane.after_id)
               and j.scheduled_at <= statement_timestamp()
               and j.expires_at > statement_timestamp()
               and not j.held and j.lost_count = 0
             order by j.scheduled_at, j.id
             limit up_to
               for update skip locked) due
         order by due.priority, due.scheduled_at, due.id
         limit up_to
    ), numbered as materialized (
        select leasehold.next_generation() as generation
          from (select count(*) as jobs from picked) p where p.jobs > 0
    ), claimed as (
        update leasehold.job j
           set held = true, lease_generation = (select n.generation from numbered n),
               attempts = j.attempts + 1
         where j.ctid = any (array(select place from picked)) and not j.held
        returning j.*
    ), leased as (
        insert into leasehold.lease
            (lease_generation, lease_expires_at, lease, keep_history, queue, claimed_by, claim_id, job_ids)
        select min(c.lease_generation), statement_timestamp() + length, length,
               settings.keep_history, from_queue, worker, with_claim_id, array_agg(c.id)
          from claimed c having count(*) > 0
    )
    select c.id, c.name, c.kwargs, c.priority, c.scheduled_at, c.attempts,
           coalesce(c.max_attempts, settings.max_attempts), c.lost_count, c.lease_generation,
           c.tag, c.enqueued_at, c.idempotency_key, c.trace_context, settings.run_limit, length,
           settings.max_lost
      from claimed c;
end $$;

-- Claims one job whose worker died, alone under its own lease, so that a job that kills its worker
-- again takes no neighbour's lease with it. `last_chance` picks which: jobs that one more loss
-- would bury, or the others.
create or replace function leasehold.claim_lost(
    worker text, from_queue text, lease_for interval, with_claim_id uuid,
    known_names text[], last_chance boolean
)
returns setof leasehold.claimed_job
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_tidscan = on
set enable_seqscan = off set jit = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $$
declare
    settings leasehold.queue := leasehold.queue_settings(from_queue);
    length interval := coalesce(lease_for, settings.lease);
begin
    if settings.paused_at is not null
       or not exists (select from leasehold.job j where j.queue = from_queue and j.lost_count > 0) then
        return;
    end if;
    return query
    with picked as materialized (
        select j.ctid as place
          from leasehold.job j
         where j.queue = from_queue and j.lost_count > 0
           and (known_names is null or j.name = any (known_names))
           and (last_chance is null
                or (j.lost_count >= settings.max_lost - 1) = last_chance)
           and j.scheduled_at <= statement_timestamp()
           and j.expires_at > statement_timestamp()
           and not j.held
         order by j.priority, j.scheduled_at, j.id
         limit 1
           for update skip locked
    ), numbered as materialized (
        select leasehold.next_generation() as generation
          from (select count(*) as jobs from picked) p where p.jobs > 0
    ), claimed as (
        update leasehold.job j
           set held = true, lease_generation = (select n.generation from numbered n),
               attempts = j.attempts + 1
         where j.ctid = any (array(select place from picked)) and not j.held
        returning j.*
    ), leased as (
        insert into leasehold.lease
            (lease_generation, lease_expires_at, lease, keep_history, queue, claimed_by, claim_id, job_ids)
        select min(c.lease_generation), statement_timestamp() + length, length,
               settings.keep_history, from_queue, worker, with_claim_id, array_agg(c.id)
          from claimed c having count(*) > 0
    )
    select c.id, c.name, c.kwargs, c.priority, c.scheduled_at, c.attempts,
           coalesce(c.max_attempts, settings.max_attempts), c.lost_count, c.lease_generation,
           c.tag, c.enqueued_at, c.idempotency_key, c.trace_context, settings.run_limit, length,
           settings.max_lost
      from claimed c;
end $$;

-- Whether a due job waits that one more loss would bury. A worker asks before it clears the way for
-- such a job: nothing else should run in the process that claims it.
create or replace function leasehold.last_chance_waits(from_queue text, known_names text[])
returns boolean
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select exists (
        select from leasehold.job j join leasehold.queue q on q.name = j.queue
         where j.queue = from_queue and j.lost_count > 0
           and (known_names is null or j.name = any (known_names))
           and j.lost_count >= q.max_lost - 1 and q.paused_at is null
           and j.scheduled_at <= statement_timestamp()
           and j.expires_at > statement_timestamp()
           and not j.held)
$$;

-- The claim for consumers in any language: returns expired leases first, then claims, from the
-- start of the order. `names` null: every name. A job whose worker died comes alone.
create or replace function leasehold.claim(
    worker text,
    queue text default 'default',
    batch int default 25,
    lease interval default null,
    names text[] default null,
    claim_id uuid default null
)
returns setof leasehold.claimed_job
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_variable
begin
    perform leasehold.expire_leases(100);
    return query select * from leasehold.claim_lost(worker, queue, lease, claim_id, names, null);
    if found then
        return;
    end if;
    return query
    select c.* from (
        select array_agg(l.name) as names, array_agg(l.priority) as priorities,
               array_agg(null::timestamptz) as after_at, array_agg(0::bigint) as after_id
          from leasehold.lanes(queue, names) l) lane
     cross join lateral leasehold.claim_lanes(
        worker, queue, batch, lease, claim_id,
        lane.names, lane.priorities, lane.after_at, lane.after_id) c
     where lane.names is not null;
end $$;

-- The jobs of a claim whose reply was lost, if it took place.
create or replace function leasehold.recover_claim(worker text, lost_claim_id uuid)
returns setof leasehold.claimed_job
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select j.id, j.name, j.kwargs, j.priority, j.scheduled_at, j.attempts,
           coalesce(j.max_attempts, q.max_attempts), j.lost_count, j.lease_generation,
           j.tag, j.enqueued_at, j.idempotency_key, j.trace_context, q.run_limit, l.lease,
           q.max_lost
      from leasehold.lease l
      join leasehold.queue q on q.name = l.queue
     cross join lateral unnest(l.job_ids) with ordinality as held (id, place)
      join leasehold.job j on j.id = held.id and j.held and j.lease_generation = l.lease_generation
     where l.claimed_by = worker and l.claim_id = lost_claim_id and l.ended_at is null
     order by held.place
$$;

-- Renews the leases of one worker. Each generation asked for gets one answer:
--   renewed   held for another lease length
--   busy      another transaction is at work on the lease; ask again soon
--   ended     every job of it is finished
--   lost      it expired; nothing done under it will be accepted
-- Never waits for a lock: one busy lease must not delay the others.
create or replace function leasehold.renew(generations bigint[])
returns table (generation bigint, state text)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
begin
    return query
    with mine as (
        select l.lease_generation from leasehold.lease l
         where l.lease_generation = any (generations) and l.ended_at is null
         order by l.lease_generation
           for update skip locked
    ), renewed as (
        update leasehold.lease l
           set lease_expires_at = statement_timestamp() + l.lease
         where l.lease_generation in (select lease_generation from mine) and l.ended_at is null
        returning l.lease_generation
    )
    select asked.generation,
           case when exists (select from renewed r where r.lease_generation = asked.generation)
                then 'renewed'
                when l.lease_generation is null or l.lost_ids <> '{}' then 'lost'
                when l.ended_at is not null then 'ended'
                else 'busy' end
      from unnest(generations) as asked (generation)
      left join leasehold.lease l on l.lease_generation = asked.generation;
end $$;

-- Which of these jobs someone asked to cancel while they run.
create or replace function leasehold.cancel_requests(ids bigint[])
returns setof bigint
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select j.id from leasehold.job j where j.id = any (ids) and j.held and j.cancel_requested
$$;

-- Fails unless the caller still owns the job. Locks the row against expiry until the caller's
-- transaction ends, so what that transaction writes is written by the owner.
create or replace function leasehold.check_lease(job_id bigint, generation bigint)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
begin
    perform from leasehold.job j
      where j.id = job_id and j.lease_generation = generation and j.held
        for share;
    if not found then
        raise exception 'lease on job % (generation %) was lost', job_id, generation
            using errcode = 'LH004',
                  hint = 'Another worker owns the job now. Roll back and drop the result.';
    end if;
end $$;

-- Ends a lease when none of its jobs is held any more. Skips a lease that someone else is at work
-- on: whoever that is ends it, or the next expiry does.
-- `just_finished`: the ids the caller let go of; when they are all of the lease's, nothing needs
-- to be looked up.
create or replace function leasehold.settle(generation bigint, just_finished bigint[] default null)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
begin
    update leasehold.lease
       set ended_at = statement_timestamp()
     where lease_generation = (
        select l.lease_generation from leasehold.lease l
         where l.lease_generation = generation and l.ended_at is null
           and (l.job_ids = just_finished
                or not exists (select from leasehold.job j
                                where j.id = any (l.job_ids)
                                  and j.lease_generation = generation and j.held))
           for update skip locked);
end $$;

-- Completes jobs of one lease. The generation is the fence: once a lease has expired, the old
-- worker matches no row and cannot touch the newer attempt. Returns the ids it completed; an id
-- that is missing was lost, or completed before.
-- `settling` false leaves the lease row alone, for callers whose transaction stays open: a lock on
-- it would keep the worker from renewing.
-- Rows are read by the primary key and by nothing else, so they are locked in the order of the ids:
-- a batch that is sent again while the first try still runs waits for it instead of deadlocking.
create or replace function leasehold.complete_many(ids bigint[], generation bigint, settling boolean default true)
returns setof bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_bitmapscan = off set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    keeping boolean;
    holder text;
begin
    select l.keep_history, l.claimed_by into keeping, holder
      from leasehold.lease l where l.lease_generation = generation;
    if keeping then
        return query
        with finished as (
            delete from leasehold.job j
             where j.id = any (ids) and j.lease_generation = generation and j.held
            returning j.id, j.queue, j.name, j.tag, j.attempts, j.enqueued_at, j.kwargs
        ), filed as (
            insert into leasehold.history
                (outcome, queue, lease_generation, claimed_by, job_ids, names, tags, attempts,
                 enqueued_at, kwargs)
            select 'completed', min(f.queue), generation, holder, array_agg(f.id), array_agg(f.name),
                   array_agg(f.tag), array_agg(f.attempts), array_agg(f.enqueued_at),
                   array_agg(f.kwargs)
              from finished f having count(*) > 0
        )
        select f.id from finished f;
    else
        -- Without history nothing else would tell that the queue is alive.
        return query
        with finished as (
            delete from leasehold.job j
             where j.id = any (ids) and j.lease_generation = generation and j.held
            returning j.id, j.queue, j.tag
        ), counted as (
            insert into leasehold.tally (queue, tag, what, n)
            select f.queue, f.tag, 'completed', count(*) from finished f group by f.queue, f.tag
        )
        select f.id from finished f;
    end if;
    if settling then
        perform leasehold.settle(generation, ids);
    end if;
end $$;

-- Completes one job; false: the lease was lost, nothing changed.
create or replace function leasehold.complete(job_id bigint, generation bigint)
returns boolean
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select exists (select from leasehold.complete_many(array[job_id], generation, true))
$$;

-- Moves jobs out of the hot table for good. `cause` is one of `dead_job.cause`.
-- Only for the functions here: the caller has checked the fence and holds the row lock.
create or replace function leasehold.bury_rows(ids bigint[], generation bigint, why text, error text, worker text)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    buried int;
begin
    with dead as (
        delete from leasehold.job j
         where j.id = any (ids) and j.lease_generation = generation and j.held
        returning j.*
    ), counted as (
        insert into leasehold.tally (queue, tag, what, n)
        select d.queue, d.tag, w.what, count(*)
          from dead d cross join unnest(case when why = 'lost' then '{buried,lost}'::text[]
                                             else '{buried}' end) as w (what)
         group by d.queue, d.tag, w.what
    )
    insert into leasehold.dead_job
        (id, enqueued_at, scheduled_at, expires_at, lease_generation, priority, attempts,
         max_attempts, lost_count, cause, claimed_by, queue, name, tag, kwargs, idempotency_key,
         last_error, trace_context)
    select d.id, d.enqueued_at, d.scheduled_at, d.expires_at, d.lease_generation, d.priority,
           d.attempts, d.max_attempts,
           d.lost_count + (case when why = 'lost' then 1 else 0 end), why, worker, d.queue,
           d.name, d.tag, d.kwargs, d.idempotency_key, left(coalesce(error, d.last_error), 4096),
           d.trace_context
      from dead d;
    get diagnostics buried = row_count;
    return buried;
end $$;

-- Files jobs that were cancelled and removes them.
create or replace function leasehold.cancel_rows(ids bigint[], only_held boolean, generation bigint, why text)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    cancelled int;
begin
    with gone as (
        delete from leasehold.job j
         where j.id = any (ids) and j.held = only_held
           and (not only_held or j.lease_generation = generation)
        returning j.*
    )
    insert into leasehold.history
        (outcome, queue, lease_generation, job_ids, names, tags, attempts, enqueued_at, kwargs, note)
    select 'cancelled', g.queue, g.lease_generation, array[g.id], array[g.name], array[g.tag],
           array[g.attempts], array[g.enqueued_at], array[g.kwargs], left(why, 4096)
      from gone g;
    get diagnostics cancelled = row_count;
    return cancelled;
end $$;

-- An attempt failed. The job comes back after `after` (default: the queue's back-off), or is
-- buried when it has no attempt left. Answers 'retry', 'buried', 'cancelled' or 'lost'.
create or replace function leasehold.fail(
    job_id bigint, generation bigint, error text, after interval default null
)
returns text
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    mine leasehold.job;
    settings leasehold.queue;
    holder text;
    verdict text;
begin
    select * into mine from leasehold.job j
     where j.id = job_id and j.lease_generation = generation and j.held
       for update;
    if not found then
        return 'lost';
    end if;
    settings := leasehold.queue_settings(mine.queue);
    select l.claimed_by into holder from leasehold.lease l where l.lease_generation = generation;
    if mine.cancel_requested then
        perform leasehold.cancel_rows(array[job_id], true, generation, error);
        verdict := 'cancelled';
    elsif mine.attempts >= coalesce(mine.max_attempts, settings.max_attempts) then
        perform leasehold.bury_rows(array[job_id], generation, 'exhausted', error, holder);
        verdict := 'buried';
    else
        update leasehold.job j
           set held = false, last_error = left(error, 4096),
               scheduled_at = statement_timestamp() + coalesce(
                   after, leasehold.backoff(j.attempts, settings.backoff_base, settings.backoff_cap))
         where j.id = job_id and j.lease_generation = generation and j.held;
        insert into leasehold.tally (queue, tag, what, n) values (mine.queue, mine.tag, 'retried', 1);
        verdict := 'retry';
    end if;
    perform leasehold.settle(generation);
    return verdict;
end $$;

-- Gives a job up for good: another attempt would not help. False: the lease was lost.
create or replace function leasehold.bury(
    job_id bigint, generation bigint, error text, cause text default 'refused'
)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    holder text;
    buried int;
begin
    select l.claimed_by into holder from leasehold.lease l where l.lease_generation = generation;
    buried := leasehold.bury_rows(array[job_id], generation, cause, error, holder);
    perform leasehold.settle(generation);
    return buried > 0;
end $$;

-- Puts a job off. Not a failure: the attempt is given back. False: the lease was lost.
create or replace function leasehold.snooze(job_id bigint, generation bigint, wait interval)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    unwanted boolean;
begin
    -- Lock first: a cancel that was asked for a moment ago must not be put off with the job.
    select j.cancel_requested into unwanted from leasehold.job j
     where j.id = job_id and j.lease_generation = generation and j.held
       for update;
    if not found then
        return false;
    end if;
    if unwanted then
        perform leasehold.cancel_rows(array[job_id], true, generation, 'cancelled while it snoozed');
    else
        update leasehold.job j
           set held = false, attempts = j.attempts - 1, scheduled_at = statement_timestamp() + wait
         where j.id = job_id and j.lease_generation = generation and j.held;
    end if;
    perform leasehold.settle(generation);
    return true;
end $$;

-- Hands jobs back that were not run: the attempt is given back and nothing else changes.
-- Returns the ids it released.
create or replace function leasehold.release(ids bigint[], generation bigint)
returns setof bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    unwanted bigint[];
begin
    -- Lock first, in the order of the ids: see `snooze`.
    select coalesce(array_agg(mine.id) filter (where mine.cancel_requested), '{}') into unwanted
      from (select j.id, j.cancel_requested from leasehold.job j
             where j.id = any (ids) and j.lease_generation = generation and j.held
             order by j.id for update) mine;
    perform leasehold.cancel_rows(unwanted, true, generation, 'cancelled before it ran');
    return query
    update leasehold.job j
       set held = false, attempts = j.attempts - 1
     where j.id = any (ids) and j.lease_generation = generation and j.held
    returning j.id;
    perform leasehold.settle(generation);
end $$;

-- The owner of a job ends it as cancelled. False: the lease was lost.
create or replace function leasehold.finish_cancelled(job_id bigint, generation bigint, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    cancelled int := leasehold.cancel_rows(array[job_id], true, generation, why);
begin
    perform leasehold.settle(generation);
    return cancelled > 0;
end $$;

-- What became of jobs whose finish had no answer:
--   held       not written; finish again
--   finished   written by this generation
--   lost       an expiry took the job away before, or the lease is too old to know
create or replace function leasehold.explain_finish(ids bigint[], generation bigint)
returns table (job_id bigint, state text)
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select asked.id,
           case when j.held and j.lease_generation = generation then 'held'
                when asked.id = any (l.job_ids) and not asked.id = any (l.lost_ids) then 'finished'
                else 'lost' end
      from unnest(ids) as asked (id)
      left join leasehold.job j on j.id = asked.id
      left join leasehold.lease l on l.lease_generation = generation
$$;

-- Completes jobs that nobody has claimed yet: their work was done elsewhere, in the caller's
-- transaction. A job that a worker holds is left to it; its handler finds nothing to do. Answers
-- how many were completed.
create or replace function leasehold.complete_waiting(ids bigint[])
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_bitmapscan = off set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    completed int;
begin
    -- Nothing waits for a lock here: a row that someone is at work on is theirs.
    with picked as materialized (
        select j.id from leasehold.job j
         where j.id = any (ids) and not j.held order by j.id for update skip locked
    ), finished as (
        delete from leasehold.job j
         where j.id = any (array(select p.id from picked p)) and not j.held
        returning j.id, j.queue, j.name, j.tag, j.attempts, j.enqueued_at, j.kwargs
    ), filed as (
        insert into leasehold.history
            (outcome, queue, lease_generation, job_ids, names, tags, attempts, enqueued_at, kwargs)
        select 'completed', f.queue, 0, array_agg(f.id), array_agg(f.name), array_agg(f.tag),
               array_agg(f.attempts), array_agg(f.enqueued_at), array_agg(f.kwargs)
          from finished f group by f.queue
        having coalesce((select q.keep_history from leasehold.queue q where q.name = f.queue), true)
    ), counted as (
        insert into leasehold.tally (queue, tag, what, n)
        select f.queue, f.tag, 'completed', count(*) from finished f group by f.queue, f.tag
        having not coalesce((select q.keep_history from leasehold.queue q where q.name = f.queue), true)
    )
    select count(*) into completed from finished;
    return completed;
end $$;

-- Lease cleanup, first step: jobs of expired leases that have an attempt left go back to the
-- queue at once, their loss counted. A job that was lost before waits a little longer each time.
-- `one_lease`: that one; null: every expired one. Answers with the number of jobs.
create or replace function leasehold.return_expired(one_lease bigint default null, up_to int default 100)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    gone record;
    taken bigint[];
    total int := 0;
begin
    -- A lease that is being renewed, settled or expired by someone else is theirs.
    for gone in
        select l.lease_generation, l.job_ids, q.max_attempts, q.max_lost
          from leasehold.lease l join leasehold.queue q on q.name = l.queue
         where l.ended_at is null and l.lease_expires_at < statement_timestamp()
           and (one_lease is null or l.lease_generation = one_lease)
         order by l.lease_expires_at limit up_to
           for update of l skip locked
    loop
        -- A row that a transaction still works on is left for the next round: never wait here.
        with free as (
            select j.id from leasehold.job j
             where j.id = any (gone.job_ids) and j.lease_generation = gone.lease_generation and j.held
               and not j.cancel_requested
               and j.attempts < coalesce(j.max_attempts, gone.max_attempts)
               and j.lost_count + 1 < gone.max_lost
             order by j.id for update skip locked
        ), returned as (
            update leasehold.job j
               set held = false, lost_count = j.lost_count + 1,
                   scheduled_at = statement_timestamp()
                       + case when j.lost_count = 0 then interval '0'
                              else interval '5 seconds' * power(2, least(j.lost_count, 10)) end,
                   last_error = 'the worker was lost: its lease ran out'
             where j.id in (select id from free)
               and j.lease_generation = gone.lease_generation and j.held
            returning j.id, j.queue, j.tag
        ), counted as (
            insert into leasehold.tally (queue, tag, what, n)
            select r.queue, r.tag, 'lost', count(*) from returned r group by r.queue, r.tag
        )
        select coalesce(array_agg(r.id), '{}') into taken from returned r;
        total := total + cardinality(taken);
        perform leasehold.end_lease(gone.lease_generation, taken);
    end loop;
    return total;
end $$;

-- Lease cleanup, second step: jobs of expired leases that have no attempt left, or that too many
-- workers died under, are buried; those that someone asked to cancel are cancelled.
create or replace function leasehold.bury_expired(one_lease bigint default null, up_to int default 100)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    gone record;
    cancelling bigint[];
    losing bigint[];
    failing bigint[];
    total int := 0;
begin
    for gone in
        select l.lease_generation, l.job_ids, l.claimed_by, q.max_attempts, q.max_lost
          from leasehold.lease l join leasehold.queue q on q.name = l.queue
         where l.ended_at is null and l.lease_expires_at < statement_timestamp()
           and (one_lease is null or l.lease_generation = one_lease)
         order by l.lease_expires_at limit up_to
           for update of l skip locked
    loop
        select coalesce(array_agg(f.id) filter (where f.cancel_requested), '{}'),
               coalesce(array_agg(f.id) filter (where not f.cancel_requested
                   and f.lost_count + 1 >= gone.max_lost), '{}'),
               coalesce(array_agg(f.id) filter (where not f.cancel_requested
                   and f.lost_count + 1 < gone.max_lost), '{}')
          into cancelling, losing, failing
          from (
            select j.id, j.cancel_requested, j.lost_count from leasehold.job j
             where j.id = any (gone.job_ids) and j.lease_generation = gone.lease_generation and j.held
               and (j.cancel_requested
                    or j.attempts >= coalesce(j.max_attempts, gone.max_attempts)
                    or j.lost_count + 1 >= gone.max_lost)
             order by j.id for update skip locked) f;
        continue when cardinality(cancelling || losing || failing) = 0;
        perform leasehold.cancel_rows(cancelling, true, gone.lease_generation,
                                      'cancelled; its worker was lost');
        total := total
            + leasehold.bury_rows(losing, gone.lease_generation, 'lost',
                                  'workers kept dying under this job', gone.claimed_by)
            + leasehold.bury_rows(failing, gone.lease_generation, 'exhausted',
                                  'the worker of the last attempt was lost: its lease ran out',
                                  gone.claimed_by);
        perform leasehold.end_lease(gone.lease_generation, cancelling || losing || failing);
    end loop;
    return total;
end $$;

-- Notes which jobs an expiry took, and ends the lease when none is left.
-- Only for the functions here: the caller holds the lock on the lease.
create or replace function leasehold.end_lease(generation bigint, taken bigint[])
returns void
language sql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
    update leasehold.lease l
       set lost_ids = l.lost_ids || taken,
           ended_at = case when not exists (
               select from leasehold.job j
                where j.id = any (l.job_ids) and j.lease_generation = l.lease_generation and j.held)
               then statement_timestamp() end
     where l.lease_generation = generation and l.ended_at is null
$$;

-- Both steps of lease cleanup.
create or replace function leasehold.expire_leases(up_to int default 100)
returns table (returned int, buried int)
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    buried := leasehold.bury_expired(null, up_to);
    returned := leasehold.return_expired(null, up_to);
    return next;
end $$;

-- Lease cleanup by one of many: does nothing when another housekeeper is at it. The lock ends with
-- the statement, so it cannot be stranded in a pooled session; it saves work and guards nothing.
-- `anyway`: without the election, in case that the elected one is a ghost. Says whose jobs they were: one row
-- a queue, or a single one without.
create or replace function leasehold.rescue(up_to int default 100, anyway boolean default false)
returns table (elected boolean, queue text, returned int, buried int)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    lost_before jsonb;
begin
    elected := anyway or pg_try_advisory_xact_lock(7305, 2);
    returned := 0;
    buried := 0;
    if not elected then
        return next;
        return;
    end if;
    buried := leasehold.bury_expired(null, up_to);
    -- What was just written down: by this transaction, at this moment. Some of the buried were lost as well.
    select coalesce(jsonb_object_agg(t.queue, t.n), '{}') into lost_before
      from (select t.queue, sum(t.n) as n from leasehold.tally t
             where t.at = statement_timestamp() and t.xmin = pg_current_xact_id()::xid
               and t.what = 'lost' group by t.queue) t
     where buried > 0;
    returned := leasehold.return_expired(null, up_to);
    if returned + buried = 0 then
        return next;
        return;
    end if;
    return query
    select true, t.queue,
           (coalesce(sum(t.n) filter (where t.what = 'lost'), 0)
               - coalesce((lost_before ->> t.queue)::bigint, 0))::int,
           coalesce(sum(t.n) filter (where t.what = 'buried'), 0)::int
      from leasehold.tally t
     where t.at = statement_timestamp() and t.xmin = pg_current_xact_id()::xid
       and t.what in ('lost', 'buried')
     group by t.queue;
end $$;

-- A lease that ends later than its length allows was written by a clock that has since gone back:
-- shorten it, or a dead worker's jobs would wait for the clock to catch up.
create or replace function leasehold.clamp_leases()
returns int
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    with shortened as (
        update leasehold.lease l set lease_expires_at = statement_timestamp() + l.lease
         where l.ended_at is null
           and l.lease_expires_at > statement_timestamp() + l.lease + interval '60 seconds'
        returning 1)
    select count(*)::int from shortened
$$;

-- Looks at up to `up_to` waiting jobs after the id `after_id` and sets aside those that were not
-- started in time. Answers how many, and where to go on (null: the end was reached).
create or replace function leasehold.expire_jobs(after_id bigint default 0, up_to int default 5000)
returns table (expired int, next_id bigint)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    late bigint[];
    seen int;
begin
    select count(*), max(j.id),
           coalesce(array_agg(j.id) filter (where not j.held and j.expires_at <= statement_timestamp()), '{}')
      into seen, next_id, late
      from (select id, held, expires_at from leasehold.job
             where id > after_id order by id limit up_to) j;
    with gone as (
        delete from leasehold.job j
         where j.id = any (array(
                select f.id from leasehold.job f
                 where f.id = any (late) and not f.held and f.expires_at <= statement_timestamp()
                 order by f.id for update skip locked))
           and not j.held and j.expires_at <= statement_timestamp()
        returning j.*
    ), counted as (
        insert into leasehold.tally (queue, tag, what, n)
        select g.queue, g.tag, 'expired', count(*) from gone g group by g.queue, g.tag
    )
    insert into leasehold.dead_job
        (id, enqueued_at, scheduled_at, expires_at, lease_generation, priority, attempts,
         max_attempts, lost_count, cause, queue, name, tag, kwargs, idempotency_key, last_error,
         trace_context)
    select g.id, g.enqueued_at, g.scheduled_at, g.expires_at, g.lease_generation, g.priority,
           g.attempts, g.max_attempts, g.lost_count, 'expired', g.queue, g.name, g.tag, g.kwargs,
           g.idempotency_key, coalesce(g.last_error, 'not started before it expired'),
           g.trace_context
      from gone g;
    get diagnostics expired = row_count;
    if seen < up_to then
        next_id := null;
    end if;
    return next;
end $$;

-- Gives back jobs that are held by a lease which is not there, among those after `after_id` and up
-- to `last_id`. No transition makes such a job, but a hand can, and nothing else would free it.
create or replace function leasehold.return_strays(after_id bigint, last_id bigint)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    strays bigint[];
    seen bigint[];
    returned int;
begin
    select array_agg(j.id), array_agg(j.lease_generation) into strays, seen
      from leasehold.job j
     where j.id > after_id and j.id <= last_id and j.held
       and not exists (select from leasehold.lease l
                        where l.lease_generation = j.lease_generation and l.ended_at is null);
    if strays is null then
        return 0;
    end if;
    -- The generation that was seen: a job that was claimed meanwhile has another one, and a lease
    -- that this statement may not see yet.
    with free as (
        select j.id from unnest(strays, seen) as s (id, generation)
          join leasehold.job j on j.id = s.id and j.lease_generation = s.generation and j.held
         order by j.id for update of j skip locked
    )
    update leasehold.job j
       set held = false, lost_count = j.lost_count + 1, scheduled_at = statement_timestamp(),
           last_error = 'it was held by a lease that does not exist'
     where j.id in (select id from free) and j.held
       and not exists (select from leasehold.lease l
                        where l.lease_generation = j.lease_generation and l.ended_at is null);
    get diagnostics returned = row_count;
    return returned;
end $$;

-- The next piece of the walk over all jobs: sets late ones aside and gives strays back. The pieces
-- are shared by all housekeepers, one every `every`.
create or replace function leasehold.walk_jobs(every interval default interval '1 second', up_to int default 5000)
returns table (expired int, strays int)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    place bigint;
    following bigint;
begin
    expired := 0;
    strays := 0;
    select d.after_id into place from leasehold.duty d
     where d.name = 'walk_jobs' and d.ran_at <= statement_timestamp() - every
       for update skip locked;
    if found then
        select e.expired, e.next_id into expired, following from leasehold.expire_jobs(place, up_to) e;
        strays := leasehold.return_strays(place, coalesce(following, 9223372036854775807));
        -- A walk past the remains of many finished jobs is slow: the next one waits fifty times as
        -- long as this one took.
        update leasehold.duty d
           set after_id = coalesce(following, 0),
               ran_at = clock_timestamp() + 50 * (clock_timestamp() - statement_timestamp())
         where d.name = 'walk_jobs';
    end if;
    return next;
end $$;

-- What operators do. Every one of these names who did it.

-- Cancels a job: a waiting one at once; a running one is asked to stop and ends as cancelled when
-- its handler gives up. Answers 'cancelled', 'requested' or 'gone'.
create or replace function leasehold.cancel(job_id bigint, actor text, why text default null)
returns text
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    answer text;
begin
    loop
        if leasehold.cancel_rows(array[job_id], false, null, coalesce(why, 'cancelled by ' || actor)) > 0 then
            answer := 'cancelled';
        else
            update leasehold.job j set cancel_requested = true where j.id = job_id and j.held;
            if found then
                answer := 'requested';
            elsif exists (select from leasehold.job j where j.id = job_id) then
                continue; -- released or claimed between the two statements: look again
            else
                return 'gone';
            end if;
        end if;
        insert into leasehold.audit (actor, action, subject, detail)
        values (actor, 'cancel', 'job ' || job_id, concat_ws(': ', answer, why));
        return answer;
    end loop;
end $$;

-- Lets waiting jobs run now, whatever their back-off. Returns the ids it moved.
create or replace function leasehold.promote(ids bigint[], actor text)
returns setof bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    moved bigint[];
begin
    with due as (
        update leasehold.job j set scheduled_at = statement_timestamp()
         where j.id = any (array(
                select w.id from leasehold.job w
                 where w.id = any (ids) and not w.held and w.scheduled_at > statement_timestamp()
                 order by w.id for update))
           and not j.held and j.scheduled_at > statement_timestamp()
        returning j.id)
    select coalesce(array_agg(id), '{}') into moved from due;
    if moved <> '{}' then
        insert into leasehold.audit (actor, action, subject, detail)
        values (actor, 'promote', cardinality(moved) || ' jobs', left(moved::text, 1000));
    end if;
    return query select unnest(moved);
end $$;

-- Brings dead jobs back for a new life: attempts and losses start again, the generation goes on
-- growing. A job takes its idempotency key again, and stays where it is while the key belongs to a
-- newer job. Returns the ids it moved.
create or replace function leasehold.redrive(ids bigint[], actor text)
returns setof bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    moved bigint[];
begin
    perform from leasehold.dead_job d where d.id = any (ids) order by d.id for update;
    -- Their keys, in everybody's order: made where they were pruned, locked where they stand, so
    -- that no enqueue takes a key while its old job comes back.
    insert into leasehold.idempotency_key as k (queue, key, job_id, payload_hash, holds_until)
    select distinct on (d.queue, d.idempotency_key) d.queue, d.idempotency_key, d.id,
           leasehold.payload_hash(d.name, d.kwargs), statement_timestamp()
      from leasehold.dead_job d
     where d.id = any (ids) and d.idempotency_key is not null
     order by d.queue, d.idempotency_key, d.id desc
    on conflict on constraint idempotency_key_pkey do update set job_id = k.job_id;
    -- A statement later the jobs of these keys can be seen. A key whose time is up and whose job is
    -- over goes back to the last of its dead jobs.
    update leasehold.idempotency_key k
       set job_id = d.id, payload_hash = leasehold.payload_hash(d.name, d.kwargs)
      from (select distinct on (e.queue, e.idempotency_key) e.*
              from leasehold.dead_job e
             where e.id = any (ids) and e.idempotency_key is not null
             order by e.queue, e.idempotency_key, e.id desc) d
     where k.queue = d.queue and k.key = d.idempotency_key and k.job_id <> d.id
       and k.holds_until <= statement_timestamp()
       and not exists (select from leasehold.job j where j.id = k.job_id);
    with back as (
        delete from leasehold.dead_job d
         where d.id = any (ids)
           and (d.idempotency_key is null
                or exists (select from leasehold.idempotency_key k
                            where k.queue = d.queue and k.key = d.idempotency_key and k.job_id = d.id))
        returning d.*
    ), alive as (
        insert into leasehold.job
            (id, enqueued_at, scheduled_at, expires_at, lease_generation, priority, max_attempts,
             queue, name, tag, kwargs, idempotency_key, last_error, trace_context)
        overriding system value
        select b.id, b.enqueued_at, statement_timestamp(),
               greatest(b.expires_at, statement_timestamp() + interval '30 days'),
               b.lease_generation, b.priority, b.max_attempts, b.queue, b.name, b.tag, b.kwargs,
               b.idempotency_key, b.last_error, b.trace_context
          from back b
        returning id
    )
    select coalesce(array_agg(id), '{}') into moved from alive;
    if moved <> '{}' then
        insert into leasehold.audit (actor, action, subject, detail)
        values (actor, 'redrive', cardinality(moved) || ' jobs', left(moved::text, 1000));
    end if;
    return query select unnest(moved);
end $$;

-- Stops claims from a queue; running jobs go on. False: it was paused already.
create or replace function leasehold.pause(of_queue text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    perform leasehold.queue_settings(of_queue);
    update leasehold.queue set paused_at = statement_timestamp(), paused_by = actor, paused_why = why
     where name = of_queue and paused_at is null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'pause', 'queue ' || of_queue, why);
    return true;
end $$;

-- Lets claims go on. False: it was not paused.
create or replace function leasehold.resume(of_queue text, actor text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    update leasehold.queue set paused_at = null, paused_by = null, paused_why = null
     where name = of_queue and paused_at is not null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject) values (actor, 'resume', 'queue ' || of_queue);
    perform leasehold.wake(of_queue);
    return true;
end $$;

-- Durable "already done" marks for handlers.

-- Begins a step. Answers 'started' to the first caller; 'unfinished' when an earlier attempt began
-- and nobody knows whether its effect took place; 'finished' with the stored result.
create or replace function leasehold.once_start(
    in_scope text, of_step text, by_job bigint, generation bigint, keep interval default interval '30 days'
)
returns table (state text, result jsonb)
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    insert into leasehold.once_marker as m (scope, step, job_id, lease_generation, keep_until)
    values (in_scope, of_step, by_job, generation, statement_timestamp() + keep)
    on conflict (scope, step) do nothing;
    if found then
        state := 'started';
        return next;
        return;
    end if;
    select case when m.finished_at is null then 'unfinished' else 'finished' end, m.result
      into state, result
      from leasehold.once_marker m where m.scope = in_scope and m.step = of_step;
    return next;
end $$;

-- Finishes a step with its result; the first result stays. False: it was finished before.
create or replace function leasehold.once_finish(in_scope text, of_step text, with_result jsonb)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    update leasehold.once_marker m set finished_at = statement_timestamp(), result = with_result
     where m.scope = in_scope and m.step = of_step and m.finished_at is null;
    return found;
end $$;

-- Forgets a step whose effect is known not to have taken place. Finished steps stay.
create or replace function leasehold.once_forget(in_scope text, of_step text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    delete from leasehold.once_marker m
     where m.scope = in_scope and m.step = of_step and m.finished_at is null;
    return found;
end $$;

-- Removes what nobody needs any more, a bounded number of rows a call.
-- Finished jobs go by dropping partitions: see `drop_history`.
create or replace function leasehold.prune(
    up_to int default 5000,
    dead_for interval default null,
    ended_leases_for interval default interval '2 minutes'
)
returns table (leases int, keys int, markers int, workers int, dead int)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    old_queues text[];
    old_keys text[];
begin
    delete from leasehold.lease l where l.lease_generation = any (array(
        select e.lease_generation from leasehold.lease e
         where e.ended_at < statement_timestamp() - ended_leases_for
         limit up_to for update skip locked));
    get diagnostics leases = row_count;
    -- A key stays while its job waits or runs. Its job is looked for when the key is locked, in a
    -- statement of its own: one that looked before would miss a job that was made meanwhile.
    select array_agg(e.queue), array_agg(e.key) into old_queues, old_keys
      from (select k.queue, k.key from leasehold.idempotency_key k
             where k.holds_until < statement_timestamp()
               and not exists (select from leasehold.job j where j.id = k.job_id)
             order by k.holds_until limit up_to for update skip locked) e;
    delete from leasehold.idempotency_key k
     using unnest(old_queues, old_keys) as old (queue, key)
     where k.queue = old.queue and k.key = old.key
       and not exists (select from leasehold.job j where j.id = k.job_id);
    get diagnostics keys = row_count;
    -- A mark stays while its job can still run.
    delete from leasehold.once_marker m where (m.scope, m.step) in (
        select e.scope, e.step from leasehold.once_marker e
         where e.keep_until < statement_timestamp()
           and not exists (select from leasehold.job j where j.id = e.job_id)
           and not exists (select from leasehold.dead_job d where d.id = e.job_id)
         order by e.keep_until limit up_to for update skip locked);
    get diagnostics markers = row_count;
    delete from leasehold.worker w
     where w.last_seen_at < statement_timestamp() - interval '1 day';
    get diagnostics workers = row_count;
    dead := 0;
    if dead_for is not null then
        delete from leasehold.dead_job d where d.id = any (array(
            select e.id from leasehold.dead_job e
             where e.died_at < statement_timestamp() - dead_for
             limit up_to for update skip locked));
        get diagnostics dead = row_count;
    end if;
    return next;
end $$;

-- Makes the history partitions of the coming days. Answers with the number made.
--
-- Attaching asks for a lock that finishes do not mind, except on the partition that takes the rest.
-- It waits a second at most, and leaves the work for next time: every finish queues up behind it.
create or replace function leasehold.extend_history(days int default 7)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
declare
    day date;
    part text;
    made int := 0;
begin
    for day in select d::date from generate_series(
            (statement_timestamp() at time zone 'UTC')::date + 1,
            (statement_timestamp() at time zone 'UTC')::date + days, interval '1 day') d loop
        part := 'history_' || to_char(day, 'YYYYMMDD');
        continue when to_regclass('leasehold.' || part) is not null;
        begin
            execute format('create table leasehold.%I (like leasehold.history including all)', part);
            execute format(
                'alter table leasehold.history attach partition leasehold.%I for values from (%L) to (%L)',
                part, day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
            made := made + 1;
        exception
            -- The clock was ahead once and rows of that day are in the rest: it goes on taking them.
            when check_violation then null;
            when duplicate_table or unique_violation then null; -- made by another housekeeper meanwhile
            when lock_not_available then return made;
        end;
    end loop;
    return made;
end $$;

-- Drops history partitions whose last day is older than `keep`. Answers with the number dropped.
-- Every finish queues up behind a drop, so it waits a second at most: see `extend_history`.
create or replace function leasehold.drop_history(keep interval)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
declare
    part record;
    dropped int := 0;
begin
    delete from leasehold.history_rest where finished_at < statement_timestamp() - keep;
    for part in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
         where i.inhparent = 'leasehold.history'::regclass and c.relname ~ '^history_\d{8}$'
           and (to_date(substr(c.relname, 9), 'YYYYMMDD') + 1)::timestamp at time zone 'UTC'
               < statement_timestamp() - keep
         order by c.relname
    loop
        begin
            execute format('drop table if exists leasehold.%I', part.relname);
            dropped := dropped + 1;
        exception when lock_not_available then return dropped;
        end;
    end loop;
    return dropped;
end $$;

-- Fires one slot of a schedule: moves `next_slot` from the value the caller saw and inserts the
-- job, both or neither. Null: somebody else fired it, or the schedule was paused or removed.
create or replace function leasehold.fire_schedule(
    of_name text, slot timestamptz, following timestamptz, passed bigint default 0, with_job boolean default true
)
returns bigint
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    entry leasehold.schedule;
    made bigint;
begin
    update leasehold.schedule s
       set next_slot = following, missed_slots = s.missed_slots + passed,
           last_slot = case when with_job then slot else s.last_slot end
     where s.name = of_name and s.next_slot = slot and s.paused_at is null
    returning * into entry;
    if not found then
        return null;
    end if;
    if not with_job then
        return 0;
    end if;
    insert into leasehold.job as j (name, kwargs, queue, priority, tag)
    values (entry.job_name, entry.kwargs, entry.queue, entry.priority, entry.tag)
    returning j.id into made;
    update leasehold.schedule s set last_job_id = made where s.name = of_name;
    return made;
end $$;

-- A worker says that it is alive.
create or replace function leasehold.register_worker(
    of_id text, of_name text, of_host text, of_pid int, of_version text, of_queues text[],
    of_names text[], of_slots int, is_busy int, is_draining boolean
)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold.worker as w
        (id, name, host, pid, version, queues, names, slots, busy, draining_since)
    values (of_id, of_name, of_host, of_pid, of_version, of_queues, of_names, of_slots, is_busy,
            case when is_draining then statement_timestamp() end)
    on conflict (id) do update
        set last_seen_at = statement_timestamp(), busy = excluded.busy,
            draining_since = coalesce(w.draining_since, excluded.draining_since),
            stopped_at = null
$$;

create or replace function leasehold.unregister_worker(of_id text)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold.worker set stopped_at = statement_timestamp(), busy = 0,
           last_seen_at = statement_timestamp()
     where id = of_id
$$;

-- What a sweep knows beside the rows of its table. The statements on those rows are made by the
-- library for each table; these functions keep the run, the failures and the counts.

-- The number of a claim. Workers may draw one here; everything else about generations is not theirs.
create or replace function leasehold.next_claim()
returns bigint
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select leasehold.next_generation()
$$;

-- Declares a sweep. The same declaration again changes nothing of its run: a deploy neither repeats
-- nor drops a night. A sweep that is due stays due, whatever its new clock says.
create or replace function leasehold.declare_sweep(
    of_name text, of_table text, of_key text, of_key_type text, of_order text, of_status text,
    word_waiting text, word_claimed text, word_done text, of_claimed_at text, of_claim text,
    of_batch int, of_max_attempts int, after interval, check_every interval, most bigint,
    of_cron text, of_zone text, of_every interval, first_run timestamptz
)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold.sweep as s
        (name, table_name, key_column, key_type, order_column, status_column, waiting, claimed, done,
         claimed_at_column, claim_column, batch, max_attempts, watchdog_after, watchdog_every,
         watchdog_most, cron, zone, every, next_run_at)
    values (of_name, of_table, of_key, of_key_type, of_order, of_status, word_waiting, word_claimed,
            word_done, of_claimed_at, of_claim, of_batch, of_max_attempts, after, check_every, most,
            of_cron, of_zone, of_every, coalesce(first_run, statement_timestamp()))
    on conflict (name) do update
        set table_name = excluded.table_name, key_column = excluded.key_column,
            key_type = excluded.key_type, order_column = excluded.order_column,
            status_column = excluded.status_column, waiting = excluded.waiting,
            claimed = excluded.claimed, done = excluded.done,
            claimed_at_column = excluded.claimed_at_column, claim_column = excluded.claim_column,
            batch = excluded.batch, max_attempts = excluded.max_attempts,
            watchdog_after = excluded.watchdog_after, watchdog_every = excluded.watchdog_every,
            watchdog_most = excluded.watchdog_most,
            next_run_at = case
                when s.next_run_at <= statement_timestamp() then s.next_run_at
                when (s.cron, s.zone, s.every) is not distinct from
                     (excluded.cron, excluded.zone, excluded.every) then s.next_run_at
                else excluded.next_run_at end,
            cron = excluded.cron, zone = excluded.zone, every = excluded.every
$$;

-- Whether a sweep is due, and for which moment. The first worker that asks opens the run; later ones
-- join it. Nothing is written while there is nothing to do.
create or replace function leasehold.begin_sweep(of_name text)
returns table (due boolean, slot timestamptz)
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    entry leasehold.sweep;
begin
    select * into entry from leasehold.sweep s where s.name = of_name;
    due := found and entry.paused_at is null and entry.next_run_at <= statement_timestamp();
    slot := entry.next_run_at;
    if due and (entry.run_started_at is null or entry.run_ended_at is not null) then
        update leasehold.sweep s set run_started_at = statement_timestamp(), run_ended_at = null
         where s.name = of_name and s.next_run_at = entry.next_run_at
           and (s.run_started_at is null or s.run_ended_at is not null);
    end if;
    return next;
end $$;

-- Ends the run that was due at `slot`; the next one is at `following`, or after a pause. False: it was
-- ended already, or someone asked for another one meanwhile, or the sweep is paused; look again.
create or replace function leasehold.close_sweep(
    of_name text, slot timestamptz, following timestamptz, pause interval default null
)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    update leasehold.sweep s
       set run_ended_at = statement_timestamp(),
           next_run_at = coalesce(following, statement_timestamp() + pause)
     where s.name = of_name and s.next_run_at = slot and s.paused_at is null;
    return found;
end $$;

-- Adds to the counts of a sweep. Answers whether its loops may go on: false while it is paused.
create or replace function leasehold.count_sweep(
    of_name text, more_claimed bigint, more_finished bigint, more_failed bigint, more_lost bigint
)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    goes_on boolean;
begin
    if more_claimed = 0 and more_finished = 0 and more_failed = 0 and more_lost = 0 then
        return exists (select from leasehold.sweep s where s.name = of_name and s.paused_at is null);
    end if;
    update leasehold.sweep s
       set rows_claimed = s.rows_claimed + more_claimed,
           rows_finished = s.rows_finished + more_finished,
           rows_failed = s.rows_failed + more_failed, rows_lost = s.rows_lost + more_lost
     where s.name = of_name
    returning s.paused_at is null into goes_on;
    return coalesce(goes_on, false);
end $$;

-- Takes the next turn of a sweep's watchdog. False: another worker had it less than an interval ago.
-- No lock is held: when the one who took the turn dies, the next turn is somebody else's.
create or replace function leasehold.take_watch(of_name text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    update leasehold.sweep s set watchdog_ran_at = statement_timestamp()
     where s.name = of_name
       and (s.watchdog_ran_at is null
            or s.watchdog_ran_at <= statement_timestamp() - s.watchdog_every
            -- The clock went back.
            or s.watchdog_ran_at > statement_timestamp() + s.watchdog_every);
    return found;
end $$;

-- Writes down what the watchdog brought back, and wakes the sweep: rows that went back must not wait
-- for the next night.
create or replace function leasehold.note_watch(of_name text, more_reset bigint)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold.sweep s
       set rows_reset = s.rows_reset + more_reset, watchdog_ran_at = statement_timestamp(),
           next_run_at = case when more_reset > 0 then statement_timestamp() else s.next_run_at end
     where s.name = of_name
$$;

-- Writes down how many rows are due, as whoever has the sweep counted them.
create or replace function leasehold.note_due(of_name text, due bigint)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold.sweep s set rows_due = due, due_counted_at = statement_timestamp()
     where s.name = of_name
$$;

-- Notes that rows failed under a claim. The caller has made sure that the claim still holds them.
-- A row that is out of attempts, or whose handler said that another is useless, is dead.
-- Says of each row how often it failed and whether it is dead.
create or replace function leasehold.fail_swept(
    of_sweep text, keys text[], whys text[], finals boolean[], of_claim bigint, max_attempts int,
    base interval, cap interval
)
returns table (key text, attempts int, dead boolean)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
begin
    return query
    insert into leasehold.sweep_failure as f
        (sweep, key, claim, attempts, last_error, retry_at, dead_at)
    select of_sweep, g.key, of_claim, 1, g.why,
           case when not g.final and max_attempts > 1
                then statement_timestamp() + leasehold.backoff(1, base, cap) end,
           case when g.final or max_attempts <= 1 then statement_timestamp() end
      from unnest(keys, whys, finals) as g (key, why, final)
     order by g.key
    on conflict on constraint sweep_failure_pkey do update
        set attempts = f.attempts + 1, claim = excluded.claim, last_error = excluded.last_error,
            failed_at = statement_timestamp(),
            retry_at = case when excluded.dead_at is null and f.attempts + 1 < max_attempts
                            then statement_timestamp()
                                 + leasehold.backoff(f.attempts + 1, base, cap) end,
            dead_at = case when excluded.dead_at is not null or f.attempts + 1 >= max_attempts
                           then statement_timestamp() end
      -- Told twice of the same failure: counted once.
      where f.claim <> excluded.claim
    returning f.key, f.attempts, f.dead_at is not null;
end $$;

-- Makes a sweep due now. False: there is no such sweep.
create or replace function leasehold.run_sweep(of_name text, actor text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    -- Also when it is due already: a run that is about to end must notice, and look again.
    update leasehold.sweep s set next_run_at = statement_timestamp() where s.name = of_name;
    if found and actor is not null then
        insert into leasehold.audit (actor, action, subject) values (actor, 'run', 'sweep ' || of_name);
        return true;
    end if;
    return found;
end $$;

-- Stops a sweep's claims; the batch that a loop has in hand is finished. False: paused already, or
-- no such sweep.
create or replace function leasehold.pause_sweep(of_name text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    update leasehold.sweep s set paused_at = statement_timestamp(), paused_by = actor, paused_why = why
     where s.name = of_name and s.paused_at is null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'pause', 'sweep ' || of_name, why);
    return true;
end $$;

-- Lets a sweep go on. False: it was not paused.
create or replace function leasehold.resume_sweep(of_name text, actor text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    update leasehold.sweep s set paused_at = null, paused_by = null, paused_why = null
     where s.name = of_name and s.paused_at is not null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject) values (actor, 'resume', 'sweep ' || of_name);
    return true;
end $$;

-- Lets dead rows go back: the watchdog, who alone may do that, resets them at its next turn, which is
-- now. Their failures are counted from the start. Null keys: all dead rows of the sweep. Gives the
-- keys.
create or replace function leasehold.redrive_sweep(of_name text, keys text[], actor text, up_to int default 10000)
returns setof text
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
declare
    moved text[];
begin
    with picked as materialized (
        select f.key from leasehold.sweep_failure f
         where f.sweep = of_name and f.dead_at is not null and (keys is null or f.key = any (keys))
         order by f.key limit up_to for update skip locked
    ), back as (
        update leasehold.sweep_failure f
           set dead_at = null, attempts = 0, retry_at = statement_timestamp()
         where f.sweep = of_name and f.key = any (array(select p.key from picked p))
           and f.dead_at is not null
        returning f.key)
    select coalesce(array_agg(b.key order by b.key), '{}') into moved from back b;
    if moved <> '{}' then
        update leasehold.sweep s set watchdog_ran_at = null where s.name = of_name;
        insert into leasehold.audit (actor, action, subject, detail)
        values (actor, 'redrive', cardinality(moved) || ' rows of sweep ' || of_name,
                left(moved::text, 1000));
    end if;
    return query select unnest(moved);
end $$;

-- Sweeps with their state in words and the rows that failed, each count up to ten thousand.
create or replace view leasehold.sweep_state as
select s.name, s.table_name,
       case when s.paused_at is not null then 'paused'
            when s.run_started_at is not null and s.run_ended_at is null then 'running'
            when s.next_run_at <= statement_timestamp() then 'due'
            else 'idle' end as state,
       s.cron, s.zone, s.every, s.next_run_at, s.run_started_at, s.run_ended_at, s.watchdog_ran_at,
       s.paused_at, s.paused_by, s.paused_why, s.rows_claimed, s.rows_finished, s.rows_failed,
       s.rows_lost, s.rows_reset, 
       (select count(*) from (select from leasehold.sweep_failure f
         where f.sweep = s.name and f.retry_at is not null limit 10000) c) as failing,
       (select count(*) from (select from leasehold.sweep_failure f
         where f.sweep = s.name and f.dead_at is not null limit 10000) c) as dead
  from leasehold.sweep s;

-- What a mirror does in the database. The statements on the mirrored table itself are made by the
-- library for each table; these functions keep the changes, the deletions, the check and the rebuild.

-- The fingerprint of a key in a version: 52 bits, the same as the library's `fingerprint`.
create or replace function leasehold.fingerprint(key text, version bigint)
returns bigint
language sql immutable strict parallel safe as $$
    select ('x' || encode(substring(sha256(convert_to(key || ':' || version, 'UTF8')) from 1 for 7),
                          'hex'))::bit(56)::bigint >> 4
$$;

-- Declares a mirror. The same declaration again changes nothing of its check or its rebuild. Its
-- queue takes as many jobs at once as the mirror does, unless someone has said otherwise.
create or replace function leasehold.declare_mirror(
    of_name text, of_table text, of_key text, of_kind text, of_version text, of_queue text,
    of_job text, of_field text, after interval, keep interval, every interval, of_range int,
    of_batch int
)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold.queue (name, batch) values (of_queue, of_batch)
    on conflict (name) do nothing;
    insert into leasehold.mirror as m
        (name, table_name, key_column, key_kind, version_column, queue, job_name, job_field,
         verify_after, tombstones, check_every, range_rows)
    values (of_name, of_table, of_key, of_kind, of_version, of_queue, of_job, of_field, after, keep,
            every, of_range)
    on conflict (name) do update
        set table_name = excluded.table_name, key_column = excluded.key_column,
            key_kind = excluded.key_kind, version_column = excluded.version_column,
            queue = excluded.queue, job_name = excluded.job_name, job_field = excluded.job_field,
            verify_after = excluded.verify_after, tombstones = excluded.tombstones,
            check_every = excluded.check_every, range_rows = excluded.range_rows
      -- A deploy of many workers must not make all of them wait for one row.
      where (m.table_name, m.key_column, m.key_kind, m.version_column, m.queue, m.job_name,
             m.job_field, m.verify_after, m.tombstones, m.check_every, m.range_rows)
            is distinct from
            (excluded.table_name, excluded.key_column, excluded.key_kind, excluded.version_column,
             excluded.queue, excluded.job_name, excluded.job_field, excluded.verify_after,
             excluded.tombstones, excluded.check_every, excluded.range_rows)
$$;

-- The idempotency key under which the changes of one row become one job.
create or replace function leasehold.mirror_mark(of_mirror text, key text)
returns text
language sql immutable set search_path = leasehold, pg_temp as $$
    select case when octet_length(of_mirror) + octet_length(key) <= 180
                then 'mirror:' || of_mirror || ':' || key
                else 'mirror:' || of_mirror || ':sha256:'
                     || encode(sha256(convert_to(key, 'UTF8')), 'hex') end
$$;

-- The arguments of a job for one row. Stores see whole numbers with leading zeros; people do not.
create or replace function leasehold.mirror_kwargs(kind text, field text, key text)
returns jsonb
language sql immutable set search_path = leasehold, pg_temp as $$
    select jsonb_build_object(
        field, case kind when 'integer' then to_jsonb(key::bigint) else to_jsonb(key) end)
$$;

-- Jobs for rows that changed, in the transaction that changed them: one a row.
--
-- A change joins the job of an earlier one while that job waits: the lock on it keeps every claim
-- away until this transaction is over, so whoever claims it then sees the change. A job that is
-- running, or that somebody has locked, may have read the row before this change: a new one is made.
-- Nothing here waits for a lock that another transaction may hold for long. A statement that changes
-- many rows makes plain jobs; a pass works each row once, however many jobs name it.
create or replace function leasehold.mirror_changed(of_mirror text, keys text[])
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    m leasehold.mirror;
    due timestamptz;
    late timestamptz;
    with_tag text;
    with_priority int;
    one text;
    mark text;
    arguments jsonb;
    made bigint;
    known bigint;
    keyed boolean;
begin
    if coalesce(cardinality(keys), 0) = 0 then
        return;
    end if;
    select * into m from leasehold.mirror where name = of_mirror;
    if not found then
        return; -- Nobody mirrors it any more. Who does so again compares every row.
    end if;
    perform from unnest(keys) as k (key) where k.key = '' or octet_length(k.key) > 400;
    if found then
        raise exception 'a row of % has a key that mirror % cannot use', m.table_name, m.name
            using errcode = 'LH002', hint = 'A key has 1 to 400 bytes.';
    end if;
    due := statement_timestamp() + m.verify_after;
    late := due + interval '30 days';
    with_tag := coalesce(nullif(current_setting('leasehold.tag', true), ''), 'mirror.' || m.name);
    if octet_length(with_tag) > 200 then
        with_tag := left(with_tag, 50);
    end if;
    with_priority := least(
        coalesce(nullif(current_setting('leasehold.priority', true), '')::int, 1), 999999);
    if cardinality(keys) > 100 then
        insert into leasehold.job
            (name, kwargs, queue, priority, scheduled_at, expires_at, tag, max_attempts)
        select m.job_name,
               -- These have no mark, and the check must tell them from those that change nothing.
               '{"changed": true}'::jsonb || leasehold.mirror_kwargs(m.key_kind, m.job_field, k.key),
               m.queue,
               -- Nobody writes so many directly: there is nothing to wait for.
               with_priority, statement_timestamp(), late, with_tag, 2147483647
          from (select distinct u.key from unnest(keys) as u (key)) k;
        return;
    end if;
    for one in select distinct u.key collate "C" from unnest(keys) as u (key) order by 1 loop
        mark := leasehold.mirror_mark(m.name, one);
        arguments := leasehold.mirror_kwargs(m.key_kind, m.job_field, one);
        made := nextval('leasehold.job_id_seq');
        -- The transaction that changes a row has locked it, so no other one inserts the same key now.
        insert into leasehold.idempotency_key as i (queue, key, job_id, payload_hash, holds_until)
        values (m.queue, mark, made, leasehold.payload_hash(m.job_name, arguments),
                statement_timestamp())
        on conflict on constraint idempotency_key_pkey do nothing;
        keyed := found;
        if not keyed then
            select i.job_id into known from leasehold.idempotency_key i
             where i.queue = m.queue and i.key = mark for update skip locked;
            if found then
                perform from leasehold.job j
                 where j.id = known and not j.held and j.lost_count = 0 and not j.cancel_requested
                   -- A job that is about to expire would take the change along.
                   and j.expires_at > due + interval '15 days'
                   for update skip locked;
                if found then
                    -- However long it was put off before: this change is new.
                    update leasehold.job j
                       set priority = least(j.priority, with_priority),
                           scheduled_at = least(j.scheduled_at, due)
                     where j.id = known and (j.priority > with_priority or j.scheduled_at > due);
                    continue;
                end if;
                update leasehold.idempotency_key i
                   set job_id = made, payload_hash = leasehold.payload_hash(m.job_name, arguments),
                       holds_until = statement_timestamp()
                 where i.queue = m.queue and i.key = mark;
                keyed := true;
            end if;
        end if;
        insert into leasehold.job
            (id, name, kwargs, queue, priority, scheduled_at, expires_at, tag, max_attempts,
             idempotency_key)
        overriding system value
        values (made, m.job_name, arguments, m.queue, with_priority, due, late, with_tag, 2147483647,
                case when keyed then mark end);
    end loop;
end $$;

-- The same for rows that are deleted. `versions` are above those that the rows had.
create or replace function leasehold.mirror_removed(of_mirror text, keys text[], versions bigint[])
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    if coalesce(cardinality(keys), 0) = 0
       or not exists (select from leasehold.mirror m where m.name = of_mirror) then
        return;
    end if;
    insert into leasehold.mirror_gone as g (mirror, key, version)
    select of_mirror, r.key, max(r.version)
      from unnest(keys, versions) as r (key, version) group by r.key order by r.key collate "C"
    on conflict (mirror, key) do update
        set version = greatest(g.version, excluded.version), gone_at = statement_timestamp();
    perform leasehold.mirror_changed(of_mirror, keys);
end $$;

-- Rows that are inserted under a key that was deleted before, with the version of the deletion.
-- Asked after the insert: only then has it waited for a transaction that deletes the same key.
create or replace function leasehold.mirror_revived(of_mirror text, keys text[])
returns table (key text, version bigint)
language sql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    select g.key, g.version from leasehold.mirror_gone g
     where g.mirror = of_mirror and g.key = any (keys)
$$;

-- Jobs for rows that are to be written again, due now. `force`: even where the store has them.
create or replace function leasehold.mirror_reindex(
    of_mirror text, keys text[], with_tag text default 'reindex', with_priority int default 100,
    force boolean default false
)
returns bigint
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    m leasehold.mirror;
    made bigint;
begin
    select * into m from leasehold.mirror where name = of_mirror;
    if not found then
        raise exception 'there is no mirror %', quote_literal(of_mirror)
            using errcode = 'LH002', hint = 'See which there are: select name from leasehold.mirror.';
    end if;
    insert into leasehold.job (name, kwargs, queue, priority, tag, max_attempts)
    select m.job_name,
           leasehold.mirror_kwargs(m.key_kind, m.job_field, k.key)
               || case when force then '{"force": true}'::jsonb else '{}'::jsonb end,
           m.queue, least(with_priority, 999999), with_tag, 2147483647
      from unnest(keys) as k (key);
    get diagnostics made = row_count;
    return made;
end $$;

-- Puts jobs of one lease off, many at once. They go to lanes of their own, behind those of jobs that
-- were never put off, so that however many of them are due, a claim has room for fresh ones.
-- `counted`: the attempt was a failure and stays counted. There is no last attempt: such jobs end
-- when their work is seen done, or when they expire. Gives the ids that were still ours.
create or replace function leasehold.put_off(
    ids bigint[], generation bigint, waits float8[], whys text[], counted boolean[]
)
returns setof bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_bitmapscan = off set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    unwanted bigint[];
begin
    -- Lock first, in the order of the ids: see `snooze`.
    select coalesce(array_agg(mine.id) filter (where mine.cancel_requested), '{}') into unwanted
      from (select j.id, j.cancel_requested from leasehold.job j
             where j.id = any (ids) and j.lease_generation = generation and j.held
             order by j.id for update) mine;
    if unwanted <> '{}' then
        perform leasehold.cancel_rows(unwanted, true, generation, 'cancelled while it was put off');
    end if;
    return query
    update leasehold.job j
       set held = false, attempts = j.attempts - (case when o.counted then 0 else 1 end),
           max_attempts = 2147483647,
           priority = case when j.priority < 1000000 then j.priority + 1000000 else j.priority end,
           scheduled_at = statement_timestamp() + make_interval(secs => o.wait),
           last_error = coalesce(left(o.why, 4096), j.last_error)
      from unnest(ids, waits, whys, counted) as o (id, wait, why, counted)
     where j.id = o.id and j.lease_generation = generation and j.held
    returning j.id;
    perform leasehold.settle(generation);
    return query select unnest(unwanted);
end $$;

-- A store answers again: what was put off meanwhile is due now, up to so many. Says how many.
create or replace function leasehold.mirror_recovered(of_mirror text, up_to int default 5000)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    moved int;
begin
    update leasehold.job j set scheduled_at = statement_timestamp()
     where j.id = any (array(
            select w.id from leasehold.mirror m
              join leasehold.job w on w.queue = m.queue and w.name = m.job_name
             where m.name = of_mirror and w.priority >= 1000000 and not w.held
               and w.scheduled_at > statement_timestamp()
             -- Those that failed by themselves wait on.
               and w.attempts = 0
             limit up_to for update of w skip locked))
       and not j.held;
    get diagnostics moved = row_count;
    return moved;
end $$;

-- What the check of a mirror keeps: its place, what it found, what is counted and what may be
-- forgotten.

-- Takes the next range of a mirror's check. No row: it is not due, or somebody is at it. Who takes it
-- and dies holds it up for two minutes.
create or replace function leasehold.take_check(of_name text)
returns table (token bigint, after text, round_started_at timestamptz)
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold.mirror m
       set check_token = leasehold.next_generation(),
           check_busy_until = statement_timestamp() + interval '2 minutes',
           round_started_at = case when m.check_after is null then statement_timestamp()
                                   else m.round_started_at end,
           round_rows = case when m.check_after is null then 0 else m.round_rows end,
           round_repaired = case when m.check_after is null then 0 else m.round_repaired end
     where m.name = of_name
       and (m.check_due_at <= statement_timestamp()
            -- The clock went back.
            or m.check_due_at > statement_timestamp() + m.check_every + interval '1 minute')
       and (m.check_busy_until is null or m.check_busy_until <= statement_timestamp()
            or m.check_busy_until > statement_timestamp() + interval '10 minutes')
    returning m.check_token, m.check_after, m.round_started_at
$$;

-- Ends a range of the check. `next_after` null: the round is over, and what it found is published.
-- False: it took too long, and somebody else has taken the range.
create or replace function leasehold.end_check(
    of_name text, of_token bigint, next_after text, more_rows bigint, more_repaired bigint,
    pause interval
)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    m leasehold.mirror;
begin
    update leasehold.mirror c
       set check_after = next_after, check_busy_until = null,
           check_due_at = statement_timestamp() + pause,
           round_rows = c.round_rows + more_rows, round_repaired = c.round_repaired + more_repaired
     where c.name = of_name and c.check_token = of_token
    returning * into m;
    if not found then
        return false;
    end if;
    if next_after is null then
        perform leasehold.publish_check(of_name, m.round_started_at, m.round_rows, m.round_repaired);
    end if;
    return true;
end $$;

-- Writes down what a whole round found: equal as of its start, if nothing is left different.
create or replace function leasehold.publish_check(
    of_name text, began timestamptz, of_rows bigint, of_repaired bigint
)
returns timestamptz
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold.mirror m
       set checked_at = statement_timestamp(), rows_checked = of_rows, repaired = of_repaired,
           repaired_total = m.repaired_total + of_repaired, rounds = m.rounds + 1,
           differences = d.found, oldest_difference = d.oldest,
           equal_as_of = case when d.found = 0 then greatest(m.equal_as_of, began)
                              else m.equal_as_of end
      from (select count(*) as found, min(first_seen) as oldest
              from leasehold.mirror_difference where mirror = of_name) d
     where m.name = of_name
    returning m.equal_as_of
$$;

-- Which of these rows have jobs, and since when a change has waited: null if none does, and the row is only
-- to be looked at again. Jobs are read as a whole and laid beside the rows, never once for each row.
create or replace function leasehold.mirror_pending(of_mirror text, keys text[])
returns table (key text, since timestamptz)
language plpgsql stable security definer
set search_path = leasehold, pg_temp
set enable_nestloop = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    m leasehold.mirror;
begin
    if cardinality(keys) = 0 then
        return;
    end if;
    select * into m from leasehold.mirror where name = of_mirror;
    return query
    select k.key, min(j.enqueued_at) filter (
               where j.kwargs ? 'changed' or j.idempotency_key = leasehold.mirror_mark(m.name, k.key))
      from unnest(keys) as k (key)
      join leasehold.job j
        on j.kwargs ->> m.job_field
           = leasehold.mirror_kwargs(m.key_kind, m.job_field, k.key) ->> m.job_field
     where j.queue = m.queue and j.name = m.job_name
     group by k.key;
end $$;

-- Notes what is unequal, and makes a job for each row that has none. A row that changed since the
-- round began is not a difference yet: its own job is on its way. Only if nothing older waits: a change
-- that was made before the round is missing from the store all the same. A row that stays unequal gets
-- another job a minute later, then two, up to a day.
create or replace function leasehold.mirror_differs(
    of_mirror text, began timestamptz, keys text[], kinds text[], sources bigint[], helds bigint[]
)
returns table (different int, made int)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    m leasehold.mirror;
    wanted text[];
begin
    select * into m from leasehold.mirror where name = of_mirror;
    with marked as materialized (
        select a.key, a.kind, a.source, a.held, j.enqueued_at as since
          from unnest(keys, kinds, sources, helds) as a (key, kind, source, held)
          left join leasehold.idempotency_key i
            on i.queue = m.queue and i.key = leasehold.mirror_mark(m.name, a.key)
          left join leasehold.job j on j.id = i.job_id
    ), asked as materialized (
        -- A mark names the newest job of a row; an older one may be running beside it.
        select a.key, a.kind, a.source, a.held, least(a.since, p.since) as since,
               a.since is not null or p.key is not null as has_job
          from marked a
          left join leasehold.mirror_pending(
                        m.name, array(select n.key from marked n
                                       where n.since is null or n.since >= began)) p
            on p.key = a.key
    ), noted as (
        insert into leasehold.mirror_difference as d
            (mirror, key, kind, source_version, held_version, repairs, repaired_at)
        select m.name, a.key, a.kind, a.source, a.held,
               case when a.has_job then 0 else 1 end,
               case when a.has_job then null else statement_timestamp() end
          from asked a where a.since is null or a.since < began
         order by a.key collate "C"
        on conflict (mirror, key) do update
            set kind = excluded.kind, source_version = excluded.source_version,
                held_version = excluded.held_version, last_seen = statement_timestamp(),
                repairs = case when excluded.repairs > 0 and (d.repaired_at is null
                    or d.repaired_at <= statement_timestamp() - least(
                        interval '30 seconds' * power(2, least(d.repairs, 20)), interval '1 day'))
                    then d.repairs + 1 else d.repairs end,
                repaired_at = case when excluded.repairs > 0 and (d.repaired_at is null
                    or d.repaired_at <= statement_timestamp() - least(
                        interval '30 seconds' * power(2, least(d.repairs, 20)), interval '1 day'))
                    then statement_timestamp() else d.repaired_at end
        returning d.key, d.repaired_at = statement_timestamp() as due
    )
    select count(*), coalesce(array_agg(n.key) filter (where n.due), '{}') into different, wanted
      from noted n;
    made := leasehold.mirror_reindex(m.name, wanted, 'mirror.repair', 50);
    return next;
end $$;

-- Rows of a range were seen equal, but for those that are named.
create or replace function leasehold.mirror_equal(
    of_mirror text, after text, up_to text, but text[] default '{}'
)
returns void
language sql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    delete from leasehold.mirror_difference d
     -- No key is empty. The end of a range is looked up among the differences themselves where there is
     -- none, so that both ends are found by the index.
     where d.mirror = of_mirror and d.key > coalesce(after, '')
       and d.key <= coalesce(up_to, (select max(l.key) from leasehold.mirror_difference l
                                      where l.mirror = of_mirror))
       and not exists (select from unnest(but) as b (key) where b.key = d.key)
$$;

-- Rows were seen equal.
create or replace function leasehold.mirror_seen(of_mirror text, keys text[])
returns void
language sql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    delete from leasehold.mirror_difference d where d.mirror = of_mirror and d.key = any (keys)
$$;

-- Deletions that are old enough to be forgotten.
create or replace function leasehold.mirror_old_gone(of_mirror text, up_to int default 1000)
returns table (key text, version bigint)
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select g.key, g.version
      from leasehold.mirror m
      join leasehold.mirror_gone g on g.mirror = m.name
     where m.name = of_mirror and g.gone_at < statement_timestamp() - m.tombstones
     order by g.gone_at limit up_to
$$;

-- The store has forgotten them. One that was renewed meanwhile stays.
create or replace function leasehold.mirror_forgotten(of_mirror text, keys text[], versions bigint[])
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
declare
    gone int;
begin
    delete from leasehold.mirror_gone g where g.ctid = any (array(
        select o.ctid from unnest(keys, versions) as f (key, version)
          join leasehold.mirror_gone o on o.mirror = of_mirror and o.key = f.key
                                       and o.version = f.version
           for update of o skip locked));
    get diagnostics gone = row_count;
    return gone;
end $$;

-- Forgets marks of changes whose jobs are over. Each change leaves one, which is more than `prune` is
-- made for. Its job is looked for when the mark is locked, in a statement of its own: see `prune`.
create or replace function leasehold.mirror_prune(of_mirror text, up_to int default 5000)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    of_queue text;
    old_keys text[];
    gone int;
begin
    select m.queue into of_queue from leasehold.mirror m where m.name = of_mirror;
    select array_agg(e.key) into old_keys
      from (select k.key from leasehold.idempotency_key k
             where k.queue = of_queue and k.key > 'mirror:' || of_mirror || ':'
               and k.key < 'mirror:' || of_mirror || ';'
               and k.holds_until < statement_timestamp()
               and not exists (select from leasehold.job j where j.id = k.job_id)
             limit up_to for update skip locked) e;
    delete from leasehold.idempotency_key k
     where k.queue = of_queue and k.key = any (old_keys)
       and not exists (select from leasehold.job j where j.id = k.job_id);
    get diagnostics gone = row_count;
    return gone;
end $$;

-- Remembers a deletion that nobody wrote down. One row a call: a caller that held one row and waited
-- for the next could meet a transaction that does so the other way round. Gives the version.
create or replace function leasehold.mirror_entomb(of_mirror text, of_key text, above bigint)
returns bigint
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold.mirror_gone as g (mirror, key, version)
    values (of_mirror, of_key, above + 1)
    on conflict (mirror, key) do update
        set version = greatest(g.version, excluded.version), gone_at = statement_timestamp()
    returning g.version
$$;

-- Counts what a pass did, for the figures of each minute.
create or replace function leasehold.mirror_tally(
    of_mirror text, of_queue text, tags text[], whats text[], ns bigint[]
)
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    insert into leasehold.tally (queue, tag, what, n, subject)
    select of_queue, t.tag, t.what, t.n, of_mirror from unnest(tags, whats, ns) as t (tag, what, n);
end $$;

-- Which sets of documents a mirror has, how far a rebuild is, and what people ask for.

-- Which set of documents is searched, where nobody has written that down yet. Gives what stands now.
create or replace function leasehold.mirror_serves(of_name text, of_serving text)
returns text
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    update leasehold.mirror m set serving = of_serving where m.name = of_name and m.serving is null;
    return (select m.serving from leasehold.mirror m where m.name = of_name);
end $$;

-- The store itself says that it searches another set: it was lost and made anew, or somebody swapped
-- it by hand. The check fills what is missing.
create or replace function leasehold.mirror_adopts(of_name text, of_former text, of_serving text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    update leasehold.mirror m
       set serving = of_serving,
           second = case when m.second = of_serving then m.serving else m.second end
     where m.name = of_name and m.serving = of_former
       and (m.phase = 'none' or (m.phase = 'swapped' and m.second = of_serving));
    return found;
end $$;

-- A rebuild begins: from now on every write goes to the second set too. False: there is one already.
create or replace function leasehold.begin_rebuild(of_name text, of_second text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    update leasehold.mirror m
       set second = of_second, phase = 'building', rebuild_after = null, rebuild_rows = 0,
           rebuild_started_at = statement_timestamp(), rebuild_ended_at = null
     where m.name = of_name and m.phase = 'none';
    return found;
end $$;

-- The second set has the rows up to a key; null: all. False: somebody else has gone on from there.
create or replace function leasehold.note_rebuild(
    of_name text, of_second text, from_key text, to_key text, more_rows bigint
)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    update leasehold.mirror m
       set rebuild_after = to_key, rebuild_rows = m.rebuild_rows + more_rows,
           phase = case when to_key is null then 'verifying' else 'building' end
     where m.name = of_name and m.second = of_second and m.phase = 'building'
       and m.rebuild_after is not distinct from from_key;
    return found;
end $$;

-- Searches go to the second set now; the former one is kept and written on. Again: back.
create or replace function leasehold.note_swap(of_name text, to_set text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    update leasehold.mirror m
       set serving = m.second, second = m.serving, phase = 'swapped',
           rebuild_ended_at = coalesce(m.rebuild_ended_at, statement_timestamp())
     where m.name = of_name and m.second = to_set and m.phase in ('verifying', 'swapped');
    return found;
end $$;

-- The second set is written no more. Gives its name; null: there was none.
create or replace function leasehold.drop_second(of_name text)
returns text
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    dropped text;
begin
    select m.second into dropped from leasehold.mirror m where m.name = of_name for update;
    update leasehold.mirror m
       set second = null, phase = 'none', rebuild_after = null
     where m.name = of_name and m.second is not null;
    return dropped;
end $$;

-- Asks a worker that has the store to do something with it. Asked twice, it is done once. A roll-back says
-- to which set: whoever does it a second time, after a worker that died, must not come back here. Gives
-- the number of the job; null: there is no such mirror.
create or replace function leasehold.order_mirror(of_name text, what text, actor text)
returns bigint
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    m leasehold.mirror;
    made bigint;
begin
    if what not in ('check', 'rebuild', 'rollback', 'drop') then
        raise exception 'a mirror cannot be told to %', quote_literal(what)
            using errcode = 'LH002', hint = 'Use check, rebuild, rollback or drop.';
    end if;
    select * into m from leasehold.mirror where name = of_name;
    if not found then
        return null;
    end if;
    select e.job_id into made from leasehold.enqueue(
        name => 'mirror.' || m.name || '.order', kwargs => jsonb_build_object('do', what)
            || case when what = 'rollback' then
                   jsonb_build_object('to', case when m.phase = 'swapped' then m.second end)
               else '{}' end,
        queue => m.queue, tag => 'mirror.order', priority => 0,
        key => 'mirror:' || m.name || ':order:' || what, key_for => interval '0') e;
    insert into leasehold.audit (actor, action, subject) values (actor, what, 'mirror ' || m.name);
    perform leasehold.wake(m.queue);
    return made;
end $$;

-- Mirrors with their state in words.
create or replace view leasehold.mirror_state as
select m.name, m.table_name, m.queue, m.job_name, m.phase, m.serving, m.second, m.rebuild_rows,
       m.rebuild_started_at, m.rebuild_ended_at, m.round_started_at, m.round_rows, m.checked_at,
       m.rows_checked, m.repaired, m.repaired_total, m.rounds, m.equal_as_of,
       d.found as differences, d.oldest as oldest_difference,
       (select count(*) from leasehold.mirror_gone g where g.mirror = m.name) as tombstones
  from leasehold.mirror m
 cross join lateral (
        select count(*) as found, min(first_seen) as oldest
          from leasehold.mirror_difference f where f.mirror = m.name) d;

-- Who keeps Postgres from removing dead rows here, the one that holds it back furthest first: sessions,
-- prepared transactions, replication slots and standbys, each with what ends it. No text of a query: it
-- may hold a secret. `xids` counts the transactions that have begun since.
--
-- Everybody may see the ids of a session's transaction. Since when it is open, its state and its kind are
-- seen only by whoever may read statistics (grant the owner of these functions pg_read_all_stats); slots and
-- standbys never say. Then the age is worked out from what the samples of the last day say about
-- the ids that were given out: it is at least so much.
create or replace function leasehold.vacuum_holders()
returns table (kind text, who text, remedy text, age double precision, xids bigint)
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    next_xid double precision := pg_snapshot_xmax(pg_current_snapshot())::text::double precision;
begin
    return query
    with holder as (
        select case when a.sends then 'standby' else 'session' end as kind,
               concat_ws(', ', case when a.sends then 'a standby behind pid ' else 'session pid ' end || a.pid,
                   'application ' || nullif(left(a.application_name, 64), ''),
                   'role ' || a.usename, coalesce(a.state, 'in a state that only pg_read_all_stats sees')) as who,
               case when a.sends then 'look at the standby: hot_standby_feedback holds back for its queries'
                    else 'end it: select pg_terminate_backend(' || a.pid || ')' end as remedy,
               a.xact_start as since,
               greatest(age(a.backend_xmin), age(a.backend_xid)) as behind
          from (select *, coalesce(s.backend_type = 'walsender', s.datname is null) as sends
                  from pg_stat_activity s
                 -- The server's own processes belong to nobody.
                 where s.usesysid is not null and s.pid <> pg_backend_pid()
                   and coalesce(s.backend_type in ('client backend', 'walsender'), true)
                   and (s.backend_xmin is not null or s.backend_xid is not null)) a
         where a.sends or a.datname = current_database()
        union all
        select 'prepared', 'prepared transaction ' || quote_literal(left(p.gid, 200)) || ', role ' || p.owner,
               'end it: rollback prepared ' || quote_literal(left(p.gid, 200)) || ' (or commit prepared)',
               p.prepared, age(p.transaction)
          from pg_prepared_xacts p where p.database = current_database()
        union all
        select 'slot', 'replication slot ' || quote_ident(s.slot_name)
                   || case when s.active then ', in use by pid ' || s.active_pid else ', used by nobody' end,
               case when s.active then 'look at the standby: hot_standby_feedback holds back for its queries'
                    else 'when nobody needs it: select pg_drop_replication_slot('
                         || quote_literal(s.slot_name) || ')' end,
               null, age(s.xmin)
          from pg_replication_slots s where s.xmin is not null
    )
    select h.kind, regexp_replace(h.who, '[[:cntrl:]]', '?', 'g'), h.remedy,
           greatest(extract(epoch from clock_timestamp() - coalesce(h.since, before.at)), 0)::double precision,
           h.behind::bigint
      from holder h
      left join lateral (
        -- Ids up to this one had been given out when that minute was sampled. One look a minute into
        -- the index, and only for those that do not say since when.
        select coalesce(max(m.at) filter (where m.value <= next_xid - h.behind) + interval '2 minutes',
                        min(m.at)) as at
          from generate_series(date_trunc('minute', statement_timestamp()) - interval '24 hours',
                               date_trunc('minute', statement_timestamp()), interval '1 minute') as g (minute)
         cross join lateral (
            select s.at, s.value from leasehold.measure s
             where s.at = g.minute and s.kind = 'database' and s.subject = '' and s.metric = 'next_xid'
             limit 1) m
         where h.since is null) before on true
     order by h.behind desc nulls last, 4 desc;
end $$;

-- Self-measurement. One process of the fleet takes a sample a minute; the reading is bounded, whatever
-- the queues hold: see each function.

-- Whether a minute has passed since the last sample. Cheap: everybody asks this often.
create or replace function leasehold.sample_due()
returns boolean
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select exists (
        select from leasehold.duty d
         where d.name = 'measure'
           and (d.ran_at < date_trunc('minute', statement_timestamp())
                -- The clock went back.
                or d.ran_at > statement_timestamp() + interval '1 minute'))
$$;

-- Takes the sample of the minute that has just ended. Whoever takes it goes on in the same transaction with
-- what may take too long and is left out then: `recount_queues`, and `measure_sweep` for each sweep. Answers that minute; null: somebody else takes it, or has taken
-- it. A sampler that dies takes its sample along, and the next one takes the place.
create or replace function leasehold.take_sample()
returns timestamptz
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set jit = off as $$
declare
    this_minute timestamptz := date_trunc('minute', statement_timestamp());
    sampled timestamptz := this_minute - interval '1 minute';
    before timestamptz;
begin
    select d.ran_at into before from leasehold.duty d
     where d.name = 'measure'
       and (d.ran_at < this_minute or d.ran_at > statement_timestamp() + interval '1 minute')
       for update skip locked;
    if not found then
        return null;
    end if;
    -- Two minutes more than nobody has read: a transaction that was open then may have committed since.
    perform leasehold.measure_flows(
        greatest(least(before, sampled) - interval '2 minutes', this_minute - interval '1 hour'),
        this_minute);
    perform leasehold.measure_queues(sampled);
    perform leasehold.measure_mirrors(sampled);
    perform leasehold.measure_database(sampled);
    perform leasehold.measure_hours(before, this_minute);
    perform leasehold.prune_measures();
    update leasehold.duty d set ran_at = this_minute where d.name = 'measure';
    return sampled;
end $$;

-- A tag and whose it is, in one word: `mail/api`. What stands before the first stroke is the queue, or the
-- mirror: a stroke of its own is written %2F.
create or replace function leasehold.tag_subject(whose text, tag text)
returns text
language sql immutable as $$
    select replace(replace(whose, '%', '%25'), '/', '%2F') || '/' || tag
$$;

-- What happened, by the minute. Reading a minute again gives the same or more, so it may be read as
-- often as one likes.
create or replace function leasehold.measure_flows(since timestamptz, before timestamptz)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
begin
    insert into leasehold.measure as m (at, kind, subject, metric, flow, value)
    with batch as materialized (
        select date_trunc('minute', h.finished_at) as at, h.queue, h.outcome, h.tags,
               -- Most batches are of one tag, and need not be taken apart.
               h.tags[1] = all (h.tags) as alike
          from leasehold.history h
         where h.finished_at >= since and h.finished_at < before
    ), flow as materialized (
        select at, queue, tag, subject, what, sum(n) as n from (
            select b.at, b.queue, b.tags[1] as tag, '' as subject, b.outcome as what,
                   cardinality(b.tags) as n
              from batch b where b.alike
            union all
            select b.at, b.queue, one.tag, '', b.outcome, count(*)
              from batch b cross join lateral unnest(b.tags) as one (tag)
             where not b.alike group by 1, 2, 3, 5
            union all
            select date_trunc('minute', t.at), t.queue, t.tag, t.subject, t.what, t.n
              from leasehold.tally t where t.at >= since and t.at < before) every
         group by at, queue, tag, subject, what
    ), ranked as (
        -- Tags are for people. Whoever makes one a job gets a single line for them all.
        select f.*, dense_rank() over (partition by f.at, f.queue, f.subject
                                       order by sums.n desc, f.tag) as place
          from flow f
          join (select at, queue, subject, tag, sum(n) as n from flow group by 1, 2, 3, 4) sums
         using (at, queue, subject, tag)
    )
    select at, 'queue', queue, what, true, sum(n) from flow where subject = '' group by 1, 3, 4
    union all
    select at, 'mirror', subject, what, true, sum(n) from flow where subject <> '' group by 1, 3, 4
    union all
    select at, case when subject = '' then 'tag' else 'mirror_tag' end,
           leasehold.tag_subject(case when subject = '' then queue else subject end,
                                 case when place <= 30 then tag else '(others)' end),
           what, true, sum(n)
      from ranked group by 1, 2, 3, 4
    on conflict (at, kind, subject, metric) do update set value = greatest(m.value, excluded.value);
end $$;

-- How the queues stand when a minute ends.

-- Whether a tag is one of these, where `reindex_*` is every tag that begins so.
create or replace function leasehold.is_bulk(tag text, patterns text[])
returns boolean
language sql immutable set search_path = leasehold, pg_temp as $$
    select exists (select from unnest(patterns) as p (pattern)
                    where tag = p.pattern
                       or (right(p.pattern, 1) = '*' and starts_with(tag, left(p.pattern, -1))))
$$;

-- Queues that have jobs. Hops from one to the next in the index; never reads the jobs between.
create or replace function leasehold.waiting_queues()
returns setof text
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    return query
    with recursive hop (queue) as (
        (select j.queue from leasehold.job j order by j.queue limit 1)
        union all
        select (select j.queue from leasehold.job j where j.queue > hop.queue order by j.queue limit 1)
          from hop where hop.queue is not null
    )
    select hop.queue from hop where hop.queue is not null limit 500;
end $$;

-- The same for queues that have expired jobs.
create or replace function leasehold.expired_queues()
returns setof text
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    return query
    with recursive hop (queue) as (
        (select d.queue from leasehold.dead_job d where d.cause = 'expired' order by d.queue limit 1)
        union all
        select (select d.queue from leasehold.dead_job d
                 where d.cause = 'expired' and d.queue > hop.queue order by d.queue limit 1)
          from hop where hop.queue is not null
    )
    select hop.queue from hop where hop.queue is not null limit 500;
end $$;

-- How the queues stand. Reads so many pages of the jobs, with whatever dead rows they hold: a table of more
-- is looked at in a share of its pages, and what they come to is written down. `recount_queues` mends what
-- that says of short queues and of watched ones.
create or replace function leasehold.measure_queues(minute timestamptz, most_pages bigint default 32768)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set jit = off as $$
declare
    -- Of the file, not of the statistics: those are gone after a crash, and know nothing of dead rows.
    pages bigint := pg_relation_size('leasehold.job') / current_setting('block_size')::bigint;
    share real := least(100.0, 100.0 * most_pages / greatest(pages, 1));
    scale double precision := 100.0 / share;
    standing jsonb;
begin
    with counted as materialized (
        select j.queue, j.tag,
               count(*) filter (where j.held) as running,
               count(*) filter (where not j.held and j.scheduled_at <= statement_timestamp()) as ready,
               count(*) filter (where not j.held and j.scheduled_at > statement_timestamp()
                                  and j.attempts = 0) as scheduled,
               count(*) filter (where not j.held and j.scheduled_at > statement_timestamp()
                                  and j.attempts > 0) as retrying,
               count(*) as length
          from leasehold.job j tablesample system (share)
         group by j.queue, j.tag
    ), known as materialized (
        select q.name as queue from leasehold.queue q
        union select w.queue from leasehold.watch w
        union (select c.queue from counted c group by c.queue order by sum(c.length) desc limit 500)
        union select e.queue from leasehold.expired_queues() as e (queue)
    ), tags as (
        select leasehold.tag_subject(t.queue, case when t.place <= 30 then t.tag else '(others)' end) as subject,
               sum(t.length) * scale as length
          from (select c.*, row_number() over (partition by c.queue order by c.length desc, c.tag) as place
                  from counted c join known k on k.queue = c.queue) t
         group by 1
    ), noted as (
        insert into leasehold.measure as m (at, kind, subject, metric, flow, value)
        select minute, 'tag', t.subject, 'length', false, t.length from tags t
        union all
        select minute, 'database', '', 'sampled', false, 1
        union all
        select minute, 'database', '', 'jobs_looked_at_percent', false, share
        on conflict (at, kind, subject, metric) do update set value = excluded.value
    )
    select jsonb_agg(to_jsonb(s)) into standing from (
        select k.queue,
               coalesce(sum(c.running), 0) * scale as running,
               coalesce(sum(c.ready), 0) * scale as ready,
               coalesce(sum(c.scheduled), 0) * scale as scheduled,
               coalesce(sum(c.retrying), 0) * scale as retrying,
               coalesce(sum(c.length), 0) * scale as length,
               coalesce(sum(c.length) filter (where not leasehold.is_bulk(c.tag, coalesce(w.bulk_tags, '{}'))), 0)
                   * scale as watched_length
          from known k
          left join counted c on c.queue = k.queue
          left join leasehold.watch w on w.queue = k.queue
         group by k.queue) s;
    perform leasehold.note_queues(minute, standing);
end $$;

-- Counts the jobs of a queue by the index, in pieces; it is stable, so that all of them are read as of the
-- statement that calls. Ends when there are no more (`whole`); when more than `most` were met and, where
-- `up_to` is given, more than that besides bulk work; or when the time is up. `give_up` null: it never is.
-- Only for the functions here.
create or replace function leasehold.count_queue(
    of_queue text, bulk text[], most bigint, up_to bigint, give_up timestamptz,
    out whole boolean, out running bigint, out ready bigint, out scheduled bigint, out retrying bigint,
    out length bigint, out watched_length bigint
)
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    met record;
    -- Before the first job: no name is empty.
    last_name text := '';
    last_priority int := 0;
    last_at timestamptz := '-infinity';
    last_id bigint := 0;
begin
    running := 0;
    ready := 0;
    scheduled := 0;
    retrying := 0;
    length := 0;
    watched_length := 0;
    loop
        with piece as materialized (
            select j.name, j.priority, j.scheduled_at, j.id, j.tag, j.held, j.attempts
              from leasehold.job j
             where j.queue = of_queue
               and (j.name, j.priority, j.scheduled_at, j.id)
                   > (last_name, last_priority, last_at, last_id)
             order by j.name, j.priority, j.scheduled_at, j.id
             limit most + 1
        ), tags as (
            select p.tag, count(*) as jobs, count(*) filter (where p.held) as running,
                   count(*) filter (where not p.held
                       and p.scheduled_at <= statement_timestamp()) as ready,
                   count(*) filter (where not p.held and p.scheduled_at > statement_timestamp()
                       and p.attempts = 0) as scheduled,
                   count(*) filter (where not p.held and p.scheduled_at > statement_timestamp()
                       and p.attempts > 0) as retrying
              from piece p group by p.tag
        ), sums as (
            select coalesce(sum(t.running), 0) as running, coalesce(sum(t.ready), 0) as ready,
                   coalesce(sum(t.scheduled), 0) as scheduled,
                   coalesce(sum(t.retrying), 0) as retrying, coalesce(sum(t.jobs), 0) as jobs,
                   coalesce(sum(t.jobs) filter (where not leasehold.is_bulk(t.tag, bulk)), 0) as watched
              from tags t
        )
        select s.*, l.name, l.priority, l.scheduled_at, l.id into met
          from sums s
          left join lateral (
            select p.name, p.priority, p.scheduled_at, p.id from piece p
             order by p.name desc, p.priority desc, p.scheduled_at desc, p.id desc limit 1) l on true;
        running := running + met.running;
        ready := ready + met.ready;
        scheduled := scheduled + met.scheduled;
        retrying := retrying + met.retrying;
        length := length + met.jobs;
        watched_length := watched_length + met.watched;
        whole := met.jobs <= most;
        exit when whole or (length > most and watched_length > coalesce(up_to, -1))
                  or clock_timestamp() > give_up;
        last_name := met.name;
        last_priority := met.priority;
        last_at := met.scheduled_at;
        last_id := met.id;
    end loop;
end $$;

-- Counts queues by the index where `measure_queues` looked at a share of the pages only: fifty jobs on one
-- page would be none, or five hundred. Short queues are counted whole. Those with a limit up to 100,000 are
-- counted past their bulk work until it is known whether they are above it: no guess raises an alarm about
-- their length. Answers how many were counted whole.
create or replace function leasehold.recount_queues(minute timestamptz, most bigint default 1000)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    share double precision := (select m.value from leasehold.measure m where m.at = minute
        and m.kind = 'database' and m.subject = '' and m.metric = 'jobs_looked_at_percent');
    -- The caller's limit would undo all of it, so it is not used up: queues without a limit have three tenths
    -- of it, the others the next three, and none of those more than two.
    patience interval := nullif(current_setting('statement_timeout')::interval, interval '0');
    give_up timestamptz;
    entry record;
    counted record;
    guess double precision;
    standing jsonb := '[]';
begin
    if coalesce(share, 100) >= 100 then
        return 0;
    end if;
    for entry in
        select k.queue, coalesce(w.bulk_tags, '{}') as bulk_tags,
               -- Of longer ones a share of the pages says enough.
               case when w.max_length <= 100000 and not w.off then w.max_length end as up_to
          from (select q.queue from leasehold.waiting_queues() as q (queue)
                union select q.name from leasehold.queue q
                union select w.queue from leasehold.watch w) k
          left join leasehold.watch w on w.queue = k.queue
         order by up_to nulls first, k.queue
    loop
        give_up := statement_timestamp() + patience * case when entry.up_to is null then 0.3 else 0.6 end;
        continue when entry.up_to is null and clock_timestamp() > give_up;
        select entry.queue as queue, c.* into counted
          from leasehold.count_queue(entry.queue, entry.bulk_tags, most, entry.up_to,
                                     least(give_up, clock_timestamp() + patience / 5)) c;
        guess := (select m.value from leasehold.measure m where m.at = minute
            and m.kind = 'queue' and m.subject = entry.queue and m.metric = 'watched_length');
        if counted.whole or guess is null then
            standing := standing || to_jsonb(counted);
            continue;
        end if;
        -- Those that were counted are there. How many more there are is what the pages say; where the time was
        -- up before the limit was met, they say nothing that raises an alarm.
        if counted.watched_length <= entry.up_to then
            guess := least(guess, entry.up_to);
        end if;
        update leasehold.measure m set value = greatest(guess, counted.watched_length)
         where m.at = minute and m.kind = 'queue' and m.subject = entry.queue
           and m.metric = 'watched_length';
    end loop;
    perform leasehold.note_queues(minute, standing);
    return jsonb_array_length(standing);
end $$;

-- Writes down how queues stand: what was counted, and what is known of each besides.
-- Only for the functions here.
create or replace function leasehold.note_queues(minute timestamptz, standing jsonb)
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp set jit = off as $$
begin
    insert into leasehold.measure as m (at, kind, subject, metric, flow, value)
    with living as materialized (
        select q.queue, count(*) as workers
          from leasehold.worker_state w cross join lateral unnest(w.queues) as q (queue)
         where w.state = 'alive' group by q.queue
    )
    select minute, 'queue', q.queue, v.metric, false, v.value
      from jsonb_to_recordset(standing) as q (queue text, running float8, ready float8, scheduled float8,
                                              retrying float8, length float8, watched_length float8)
      left join living l on l.queue = q.queue
      left join leasehold.queue s on s.name = q.queue
     cross join lateral (values
        ('running', q.running), ('ready', q.ready), ('scheduled', q.scheduled),
        ('retrying', q.retrying), ('length', q.length), ('watched_length', q.watched_length),
        ('oldest_ready_age', leasehold.oldest_ready_age(q.queue)),
        ('workers', coalesce(l.workers, 0)),
        ('paused', case when s.paused_at is null then 0 else 1 end),
        ('dead', (select count(*) from (
            select from leasehold.dead_job d
             where d.queue = q.queue and d.cause <> 'expired' limit 10000) kept)),
        ('expired_kept', (select count(*) from (
            select from leasehold.dead_job d
             where d.queue = q.queue and d.cause = 'expired' limit 10000) kept))
     ) as v (metric, value)
    on conflict (at, kind, subject, metric) do update set value = excluded.value;
end $$;

-- For how many seconds the oldest job that could run has waited; 0: none could. One look into the
-- index for each name and priority, past the jobs that run.
create or replace function leasehold.oldest_ready_age(of_queue text)
returns double precision
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    return coalesce((
        select greatest(extract(epoch from statement_timestamp() - min(first.scheduled_at)), 0)
          from (select l.name, l.priority from leasehold.lanes(of_queue) l
                 where l.first_at <= statement_timestamp() limit 200) lane
         cross join lateral (
            select j.scheduled_at from leasehold.job j
             where j.queue = of_queue and j.name = lane.name and j.priority = lane.priority
               and j.scheduled_at <= statement_timestamp() and j.expires_at > statement_timestamp()
               and not j.held
             order by j.scheduled_at, j.id limit 1) first), 0);
end $$;

-- How sweeps, mirrors and the database stand when a minute ends.

-- The sweeps to measure. Each is measured by a statement of its own: their tables are other people's, and
-- one of them must not keep the others, or the sample, waiting.
create or replace function leasehold.measured_sweeps()
returns setof text
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select s.name from leasehold.sweep s order by s.name limit 500
$$;

-- What a metric was before a minute, within the hour; null: nobody knows.
create or replace function leasehold.last_value(of_kind text, of_subject text, of_metric text, minute timestamptz)
returns double precision
language sql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    select m.value from leasehold.measure m
     where m.at < minute and m.at >= minute - interval '1 hour' and m.kind = of_kind
       and m.subject = of_subject and m.metric = of_metric
     order by m.at desc limit 1
$$;

-- What a sweep did since the last sample, what it has in hand, and what should not be there: rows that the
-- watchdog should have brought back. `look` false: without its table. False: the table was not read; what
-- it would have said is then missing in this minute, and no zero.
create or replace function leasehold.measure_sweep(of_name text, minute timestamptz, look boolean default true)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set jit = off as $$
declare
    entry leasehold.sweep;
    in_hand bigint;
    stuck bigint;
begin
    select * into entry from leasehold.sweep s where s.name = of_name;
    if not found then
        return false;
    end if;
    if look then
        begin
            execute format(
                'select count(*), count(*) filter (where late) from ('
                'select t.%1$I < statement_timestamp() - $1 and not exists ('
                'select from leasehold.sweep_failure f where f.sweep = $2 and f.key = t.%2$I::text'
                ' and f.claim = t.%3$I) as late from %4$s t where t.%5$I = %6$L'
                ' order by t.%1$I limit 10000) c',
                entry.claimed_at_column, entry.key_column, entry.claim_column,
                leasehold.quoted_table(entry.table_name), entry.status_column, entry.claimed)
              using entry.watchdog_after + 3 * entry.watchdog_every + interval '1 minute', entry.name
              into in_hand, stuck;
        exception
            -- Gone, locked, not ours to read, of other columns or words: its owner hears of it from the
            -- worker. Only running out of time ends this function; the caller comes again without the table.
            when others then
                in_hand := null;
                stuck := null;
        end;
    end if;
    insert into leasehold.measure as m (at, kind, subject, metric, flow, value)
    select minute, 'sweep', entry.name, v.metric, v.flow, v.value
      from (values
        ('claimed', false, in_hand), ('stuck', false, stuck),
        -- Counted by its watchdog; of one that is gone it says nothing about now.
        ('due', false, case when entry.due_counted_at > statement_timestamp()
                                 - 3 * entry.watchdog_every - interval '2 minutes' then entry.rows_due end),
        ('dead', false, (select count(*) from (
            select from leasehold.sweep_failure f
             where f.sweep = entry.name and f.dead_at is not null limit 10000) d)),
        ('failing', false, (select count(*) from (
            select from leasehold.sweep_failure f
             where f.sweep = entry.name and f.retry_at is not null limit 10000) d)),
        ('finished_total', false, entry.rows_finished), ('failed_total', false, entry.rows_failed),
        ('lost_total', false, entry.rows_lost), ('reset_total', false, entry.rows_reset),
        ('finished', true, greatest(entry.rows_finished
            - leasehold.last_value('sweep', entry.name, 'finished_total', minute), 0)),
        ('reset', true, greatest(entry.rows_reset
            - leasehold.last_value('sweep', entry.name, 'reset_total', minute), 0))
      ) as v (metric, flow, value)
     where v.value is not null
    on conflict (at, kind, subject, metric) do update set value = excluded.value;
    return in_hand is not null;
end $$;

-- A table's name as SQL wants it, with or without its schema.
create or replace function leasehold.quoted_table(name text)
returns text
language sql immutable set search_path = leasehold, pg_temp as $$
    select case when position('.' in name) > 0
                then quote_ident(split_part(name, '.', 1)) || '.'
                     || quote_ident(substr(name, position('.' in name) + 1))
                else 'public.' || quote_ident(name) end
$$;

-- What each mirror says of itself. What differs is read from the differences themselves: what the last
-- round of the check published may have been mended since. The ages are in seconds; null: it has not
-- been compared yet, or nothing differs.
create or replace function leasehold.mirror_numbers()
returns table (name text, phase text, rows_checked bigint, repaired bigint, differences bigint,
               oldest_difference_age double precision, equal_as_of timestamptz)
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select m.name, m.phase, m.rows_checked, m.repaired_total,
           (select count(*) from (select from leasehold.mirror_difference d
                                   where d.mirror = m.name limit 10000) kept),
           (select extract(epoch from statement_timestamp() - min(d.first_seen))
              from leasehold.mirror_difference d where d.mirror = m.name)::double precision,
           m.equal_as_of
      from leasehold.mirror m order by m.name limit 500
$$;

create or replace function leasehold.measure_mirrors(minute timestamptz)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold.measure as m (at, kind, subject, metric, flow, value)
    select minute, 'mirror', n.name, v.metric, false, v.value
      from leasehold.mirror_numbers() n
     cross join lateral (values
        ('rows_checked', n.rows_checked), ('repaired', n.repaired), ('differences', n.differences),
        ('oldest_difference_age', coalesce(n.oldest_difference_age, 0)),
        ('equal_age', extract(epoch from statement_timestamp() - n.equal_as_of))
     ) as v (metric, value)
     where v.value is not null
    on conflict (at, kind, subject, metric) do update set value = excluded.value
$$;

-- How long vacuum has been held back, how many ids were given out, and how much there is to clean.
create or replace function leasehold.measure_database(minute timestamptz)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold.measure as m (at, kind, subject, metric, flow, value)
    select minute, 'database', '', 'oldest_xact_age', false,
           coalesce((select max(h.age) from leasehold.vacuum_holders() h), 0)
    union all
    select minute, 'database', '', 'next_xid', false,
           pg_snapshot_xmax(pg_current_snapshot())::text::double precision
    union all
    select minute, 'database', s.relname, v.metric, false, v.value
      from pg_stat_all_tables s
     cross join lateral (values ('dead_tuples', s.n_dead_tup),
                                ('bytes', pg_total_relation_size(s.relid))) as v (metric, value)
     where s.schemaname = 'leasehold'
       and s.relname in ('job', 'lease', 'dead_job', 'idempotency_key', 'measure', 'tally')
    union all
    select minute, 'database', 'history', 'bytes', false,
           coalesce(sum(pg_total_relation_size(i.inhrelid)), 0)
      from pg_inherits i where i.inhparent = 'leasehold.history'::regclass
    on conflict (at, kind, subject, metric) do update set value = excluded.value
$$;

-- What becomes of the minutes: hours, the end, and whoever reads them.

-- Rolls up the hours that have ended since the last sample.
create or replace function leasehold.measure_hours(last_ran timestamptz, now_is timestamptz)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold.measure_hour as h (at, kind, subject, metric, flow, value, highest, minutes)
    select date_trunc('hour', m.at, 'UTC'), m.kind, m.subject, m.metric, bool_or(m.flow),
           case when bool_or(m.flow) then sum(m.value) else avg(m.value) end, max(m.value),
           count(*)
      from leasehold.measure m
     where m.at >= date_trunc('hour', greatest(last_ran - interval '1 minute',
                                               now_is - interval '23 hours'), 'UTC')
       and m.at < date_trunc('hour', now_is, 'UTC')
       and date_trunc('hour', last_ran, 'UTC') < date_trunc('hour', now_is, 'UTC')
     group by 1, 2, 3, 4
    on conflict (at, kind, subject, metric) do update
        set value = excluded.value, highest = excluded.highest, minutes = excluded.minutes
$$;

-- Throws old measures away, and alarms that ended long ago: piece by piece until none is left, or until five
-- seconds are over. The rest, after a long stop, is for the next minute.
create or replace function leasehold.prune_measures(up_to int default 50000)
returns bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    give_up timestamptz := clock_timestamp() + interval '5 seconds';
    removed bigint;
    largest bigint;
    total bigint := 0;
begin
    loop
        delete from leasehold.measure where ctid = any (array(
            select m.ctid from leasehold.measure m
             where m.at < statement_timestamp() - interval '24 hours' limit up_to));
        get diagnostics removed = row_count;
        total := total + removed;
        largest := removed;
        delete from leasehold.measure_hour where ctid = any (array(
            select m.ctid from leasehold.measure_hour m
             where m.at < statement_timestamp() - interval '90 days' limit up_to));
        get diagnostics removed = row_count;
        total := total + removed;
        largest := greatest(largest, removed);
        delete from leasehold.tally where ctid = any (array(
            select t.ctid from leasehold.tally t
             where t.at < statement_timestamp() - interval '2 hours' limit up_to));
        get diagnostics removed = row_count;
        total := total + removed;
        largest := greatest(largest, removed);
        delete from leasehold.alarm where ctid = any (array(
            select a.ctid from leasehold.alarm a
             where a.raised_at < statement_timestamp() - interval '90 days'
               and a.cleared_at < statement_timestamp() - interval '90 days' limit up_to));
        get diagnostics removed = row_count;
        total := total + removed;
        largest := greatest(largest, removed);
        exit when largest < up_to or clock_timestamp() > give_up;
    end loop;
    return total;
end $$;

-- When somebody last measured, null: never; and whether that still says how things are now. After three
-- minutes without a sample nobody knows, whatever the last one said.
create or replace function leasehold.measured()
returns table (at timestamptz, fresh boolean)
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select case when isfinite(d.ran_at) then d.ran_at end,
           d.ran_at between statement_timestamp() - interval '180 seconds'
                        -- Beyond that the clock went back.
                        and statement_timestamp() + interval '1 minute'
      from leasehold.duty d where d.name = 'measure'
$$;

-- The last sample, as long as it is not older than a quarter of an hour. Whether it still holds is said by
-- `measured`.
create or replace function leasehold.latest()
returns table (at timestamptz, kind text, subject text, metric text, flow boolean, value double precision)
language sql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    select m.at, m.kind, m.subject, m.metric, m.flow, m.value
      from leasehold.measure m
     where m.at = (select max(s.at) from leasehold.measure s
                    where s.at >= statement_timestamp() - interval '15 minutes'
                      and s.kind = 'database' and s.metric = 'sampled')
$$;

-- A series for a chart: one row a step, the oldest first. Flows are added up, other values are the
-- mean of the step. Null: nobody measured. `minutes` says how many minutes of the step were measured, so
-- that a step that has just begun can be shown by the minute. `of_subject` null: all of them together.
-- More than a day back it is made of hours, and of the minutes since the last of them.
create or replace function leasehold.series(
    of_kind text, of_metrics text[], of_subject text default null,
    back interval default interval '30 minutes', step interval default interval '1 minute'
)
returns table (at timestamptz, value double precision, minutes bigint)
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    origin timestamptz := timestamptz '2000-01-01Z';
    this_minute timestamptz := date_trunc('minute', statement_timestamp());
    last timestamptz := date_bin(step, this_minute, origin);
    first timestamptz := last - back;
    by_hours boolean := back > interval '24 hours';
    -- From here on there are only minutes. Of any hour: what happened while nobody measured is added to its
    -- minutes and its hour later, and that hour has no sample.
    rolled timestamptz := greatest(first, case when by_hours then (
        select h.at + interval '59 minutes' from leasehold.measure_hour h
         order by h.at desc limit 1) end);
begin
    return query
    with looked as (
        select m.at, 1 as minutes from leasehold.measure m
         where m.kind = 'database' and m.metric = 'sampled' and m.subject = ''
           and m.at > rolled and m.at < this_minute
        union all
        select h.at, h.minutes from leasehold.measure_hour h
         where by_hours and h.kind = 'database' and h.metric = 'sampled' and h.subject = ''
           and h.at > first
    ), piece as (
        select m.at, sum(m.value) as value, bool_or(m.flow) as flow, 1 as weight
          from leasehold.measure m
         where m.kind = of_kind and m.metric = any (of_metrics)
           and (of_subject is null or m.subject = of_subject)
           and m.at > rolled and m.at < this_minute
         group by m.at
        union all
        select h.at, sum(h.value), bool_or(h.flow), max(h.minutes)
          from leasehold.measure_hour h
         where by_hours and h.kind = of_kind and h.metric = any (of_metrics)
           and (of_subject is null or h.subject = of_subject) and h.at > first
         group by h.at
    ), seen as (
        select date_bin(step, l.at, origin) as at, sum(l.minutes) as minutes from looked l group by 1
    ), binned as (
        select date_bin(step, p.at, origin) as at,
               case when bool_or(p.flow) then sum(p.value)
                    else sum(p.value * p.weight) / sum(p.weight) end as value
          from piece p group by 1
    )
    select s.at, coalesce(b.value, case when n.minutes > 0 then 0 end), coalesce(n.minutes, 0)
      from generate_series(first + step, last, step) as s (at)
      left join binned b on b.at = s.at
      left join seen n on n.at = s.at
     where s.at < this_minute
     order by s.at;
end $$;

-- Alarms: what is known is read here, what is wrong is decided by the library (`alarm/rules.rs`), and
-- what came of it is written here.

-- What the rules look at, as of the last sample: one statement, one snapshot. Null: there is no sample
-- that is recent enough to judge by.
create or replace function leasehold.alarm_snapshot(of_sample timestamptz)
returns jsonb
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    quarter interval := interval '15 minutes';
    -- As far back as anybody looks.
    far interval := greatest(quarter, (select max(w.over) from leasehold.watch w where not w.off));
    -- A stop that was longer than a hand-over ends with this minute: before it nobody looked. The first
    -- minute that is left is one too, when there is no other.
    looked_since timestamptz := (
        select max(s.at) filter (where s.before is null or s.at - s.before > interval '3 minutes')
          from (select m.at, lag(m.at) over (order by m.at) as before
                  from leasehold.measure m
                 where m.kind = 'database' and m.subject = '' and m.metric = 'sampled'
                   and m.at > of_sample - far - interval '5 minutes' and m.at <= of_sample) s);
begin
    return (
    with latest as materialized (
        select m.kind, m.subject, m.metric, m.value
          from leasehold.measure m where m.at = of_sample and not m.flow
    ), gauge as materialized (
        select l.subject as queue, jsonb_object_agg(l.metric, l.value) as v
          from latest l where l.kind = 'queue' group by l.subject
    ), recent as materialized (
        select m.at, m.subject as queue, m.metric, m.value
          from leasehold.measure m
         where m.at > of_sample - far and m.at <= of_sample and m.kind = 'queue'
           and m.metric in ('completed', 'buried', 'lost', 'ready', 'workers', 'paused')
    ), sums as (
        select r.queue,
               sum(r.value) filter (where r.metric = 'completed'
                   and r.at > of_sample - coalesce(w.over, quarter)) as completed,
               sum(r.value) filter (where r.metric = 'buried' and r.at > of_sample - quarter) as died,
               sum(r.value) filter (where r.metric = 'lost' and r.at > of_sample - quarter) as lost,
               max(r.at) filter (where r.metric = 'paused' and r.value > 0) as paused
          from recent r left join leasehold.watch w on w.queue = r.queue and not w.off
         group by r.queue
    ), starved as (
        -- For how many of the last five minutes jobs could have run and nobody was there.
        select a.queue, count(*) as minutes
          from recent a join recent b on b.queue = a.queue and b.at = a.at
         where a.metric = 'ready' and a.value > 0 and b.metric = 'workers' and b.value = 0
           and a.at > of_sample - interval '5 minutes'
         group by a.queue
    )
    select jsonb_build_object(
        'sample', of_sample,
        'queues', coalesce((select jsonb_agg(jsonb_build_object(
            'queue', g.queue,
            'paused', (g.v ->> 'paused')::float8 > 0,
            'length', (g.v ->> 'watched_length')::float8,
            'oldest_ready_age', (g.v ->> 'oldest_ready_age')::float8,
            'expired_kept', (g.v ->> 'expired_kept')::float8,
            'completed', coalesce(s.completed, 0),
            'died', coalesce(s.died, 0),
            'lost', coalesce(s.lost, 0),
            'starved_minutes', coalesce(t.minutes, 0),
            'watch', case when w.queue is not null then jsonb_build_object(
                'off', w.off,
                'min_completed', w.min_completed,
                'over', extract(epoch from w.over),
                'max_length', w.max_length,
                'max_age', extract(epoch from w.max_age),
                'max_dead', w.max_dead,
                'max_lost', w.max_lost,
                -- Time in which nobody looked, or in which it was to stand still, says nothing.
                'watched_for', extract(epoch from of_sample + interval '1 minute'
                    - greatest(w.since, looked_since, s.paused + interval '1 minute'))) end
            ) order by g.queue)
            from gauge g
            left join sums s on s.queue = g.queue
            left join starved t on t.queue = g.queue
            left join leasehold.watch w on w.queue = g.queue), '[]'),
        'sweeps', coalesce((select jsonb_agg(jsonb_build_object(
            'sweep', l.subject, 'dead', coalesce(l.dead, 0),
            -- A table that could not be read for a moment is as it was.
            'stuck', coalesce((select m.value from leasehold.measure m
                where m.at <= of_sample and m.at > of_sample - quarter and m.kind = 'sweep'
                  and m.subject = l.subject and m.metric = 'stuck' order by m.at desc limit 1), 0)
            ) order by l.subject)
            from (select subject, max(value) filter (where metric = 'dead') as dead
                    from latest where kind = 'sweep' group by subject) l), '[]'),
        'mirrors', coalesce((select jsonb_agg(jsonb_build_object(
            'mirror', l.subject, 'differences', coalesce(l.differences, 0),
            'oldest_difference_age', coalesce(l.age, 0),
            -- Two rounds of its check are no reason to worry, however long they take. A mirror that
            -- was never equal may have no store at all.
            'unproven_age', coalesce(greatest(l.equal_age
                - 2 * (m.rows_checked / m.range_rows + 1) * extract(epoch from m.check_every), 0), 0)
            ) order by l.subject)
            from (select subject, max(value) filter (where metric = 'differences') as differences,
                         max(value) filter (where metric = 'oldest_difference_age') as age,
                         max(value) filter (where metric = 'equal_age') as equal_age
                    from latest where kind = 'mirror' group by subject) l
            left join leasehold.mirror m on m.name = l.subject), '[]'),
        'oldest_xact_age', coalesce((select value from latest
            where kind = 'database' and metric = 'oldest_xact_age'), 0),
        -- Those that alone would be reason enough to look, as of now.
        'vacuum_held_by', coalesce((select jsonb_agg(jsonb_build_object(
            'who', h.who, 'remedy', h.remedy, 'age', h.age) order by h.place)
            from (select v.*, row_number() over (order by v.xids desc nulls last, v.age desc) as place,
                         max(v.age) over () as oldest
                    from leasehold.vacuum_holders() v) h
           where h.place <= 3 and h.age >= h.oldest / 2), '[]'),
        'open', coalesce((select jsonb_agg(jsonb_build_object('rule', a.rule, 'subject', a.subject))
            from leasehold.alarm a where a.cleared_at is null), '[]'))
     where exists (select from latest));
end $$;

-- Writes down what the rules found: raises what is new, clears what is over, and tells whoever wants
-- to know, all or nothing. `up` is a list of {rule, subject, value, threshold, summary}.
-- Answers what changed. Nothing does when a later sample has been taken: the judge slept.
create or replace function leasehold.apply_alarms(of_sample timestamptz, up jsonb)
returns table (change text, rule text, subject text, summary text)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set jit = off as $$
#variable_conflict use_column
declare
    entry leasehold.alarm;
    found_now record;
begin
    -- One judge at a time, and the last sample's.
    perform from leasehold.duty d
      where d.name = 'measure' and d.ran_at = of_sample + interval '1 minute' for update;
    if not found then
        return;
    end if;
    -- Nothing wrong leaves no other trace; this one says that somebody looked.
    insert into leasehold.duty as d (name, ran_at) values ('judge', of_sample + interval '1 minute')
    on conflict (name) do update set ran_at = excluded.ran_at;
    for found_now in
        select u.rule, u.subject, u.value, u.threshold, u.summary
          from jsonb_to_recordset(up) as u (rule text, subject text, value float8, threshold float8, summary text)
         order by u.rule, u.subject
    loop
        update leasehold.alarm a
           set value = found_now.value, threshold = found_now.threshold, summary = found_now.summary,
               seen_at = statement_timestamp()
         where a.rule = found_now.rule and a.subject = found_now.subject and a.cleared_at is null
        returning * into entry;
        if not found then
            -- Somebody may have asked for quiet about this before it went away and came back.
            insert into leasehold.alarm as a
                (rule, subject, value, threshold, summary, silenced_until, silenced_by, silenced_why)
            select found_now.rule, found_now.subject, found_now.value, found_now.threshold,
                   found_now.summary, s.silenced_until, s.silenced_by, s.silenced_why
              from (select) one left join lateral (
                select o.silenced_until, o.silenced_by, o.silenced_why from leasehold.alarm o
                 where o.rule = found_now.rule and o.subject = found_now.subject
                   and o.silenced_until > statement_timestamp()
                 order by o.silenced_until desc limit 1) s on true
            returning * into entry;
            change := 'raised';
            rule := entry.rule; subject := entry.subject; summary := entry.summary;
            return next;
        end if;
        -- Also when a silence has ended and it still holds.
        if entry.notified_at is null and entry.acknowledged_at is null
           and coalesce(entry.silenced_until <= statement_timestamp(), true) then
            update leasehold.alarm a set notified_at = statement_timestamp() where a.id = entry.id;
            perform leasehold.tell_alarm(entry, 'raised');
        end if;
    end loop;
    for entry in
        update leasehold.alarm a set cleared_at = statement_timestamp()
         where a.cleared_at is null
           and not exists (select from jsonb_to_recordset(up) as u (rule text, subject text)
                            where u.rule = a.rule and u.subject = a.subject)
        returning *
    loop
        change := 'cleared';
        rule := entry.rule; subject := entry.subject; summary := entry.summary;
        return next;
        if entry.notified_at is not null then
            perform leasehold.tell_alarm(entry, 'cleared');
        end if;
    end loop;
end $$;

-- The word of an alarm: jobs for whoever carries it to people.

-- Enqueues the word to everyone who is there to carry it. Answers how many that are.
-- Only for the functions here.
create or replace function leasehold.tell_alarm(entry leasehold.alarm, event text)
returns int
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    with told as (
        insert into leasehold.job (name, queue, tag, kwargs, max_attempts, expires_at)
        select r.job_name, 'leasehold.alarms', 'leasehold.alarm', jsonb_strip_nulls(jsonb_build_object(
                   'event', event, 'alarm', entry.id, 'rule', entry.rule, 'subject', entry.subject,
                   'value', entry.value, 'threshold', entry.threshold, 'summary', entry.summary,
                   'raised_at', entry.raised_at, 'cleared_at', entry.cleared_at)),
               -- The week ends it: the longest wait between two attempts is about an hour.
               1000, statement_timestamp() + interval '7 days'
          from leasehold.alarm_receiver r
         where r.seen_at > statement_timestamp() - interval '7 days'
        returning 1)
    select count(*)::int from told
$$;

-- Whether an alarm is over, or was removed. Whoever carries the word of its raise asks first.
create or replace function leasehold.alarm_is_over(of_id bigint)
returns boolean
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select not exists (select from leasehold.alarm a where a.id = of_id and a.cleared_at is null)
$$;

-- A process says that it carries the word in jobs of this name.
create or replace function leasehold.declare_alarm_receiver(of_job_name text)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold.alarm_receiver as r (job_name) values (of_job_name)
    on conflict (job_name) do update set seen_at = statement_timestamp()
$$;

-- Sends a word that says that it is only a test. Answers how many carry it; 0: nobody would be told.
create or replace function leasehold.test_alarm(actor text)
returns int
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    entry leasehold.alarm;
begin
    entry.id := 0;
    entry.rule := 'test';
    entry.subject := actor;
    entry.value := 0;
    entry.threshold := 0;
    entry.summary := 'this is a test by ' || actor || '; nothing is wrong';
    entry.raised_at := statement_timestamp();
    insert into leasehold.audit (actor, action, subject) values (actor, 'test', 'alarms');
    return leasehold.tell_alarm(entry, 'test');
end $$;

-- What people say about alarms and expect of queues.

-- Refuses what nobody signed, or what has no reason: whoever finds an alarm quieted wants to know both.
-- Only for the functions here.
create or replace function leasehold.check_signed(actor text, why text)
returns void
language plpgsql immutable set search_path = leasehold, pg_temp as $$
begin
    if coalesce(btrim(actor), '') = '' then
        raise exception 'say who does this' using errcode = 'invalid_parameter_value';
    end if;
    if coalesce(btrim(why), '') = '' then
        raise exception 'say why' using errcode = 'invalid_parameter_value';
    end if;
end $$;

-- Somebody has seen an alarm and looks after it. False: there is no open alarm of that number.
create or replace function leasehold.acknowledge_alarm(of_id bigint, actor text, why text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    perform leasehold.check_signed(actor, why);
    update leasehold.alarm a
       set acknowledged_at = statement_timestamp(), acknowledged_by = actor, acknowledged_why = why
     where a.id = of_id and a.cleared_at is null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'acknowledge', 'alarm ' || of_id, why);
    return true;
end $$;

-- Nobody is told of this alarm for a while, even when it goes away and comes back; zero ends a
-- silence. False: there is no alarm of that number.
create or replace function leasehold.silence_alarm(of_id bigint, how_long interval, actor text, why text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    perform leasehold.check_signed(actor, why);
    update leasehold.alarm a
       set silenced_until = case when how_long > interval '0' then statement_timestamp() + how_long end,
           silenced_by = case when how_long > interval '0' then actor end,
           silenced_why = case when how_long > interval '0' then why end
      from leasehold.alarm named
     where named.id = of_id and a.rule = named.rule and a.subject = named.subject
       and (a.id = of_id or a.silenced_until > statement_timestamp());
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, case when how_long > interval '0' then 'silence' else 'end silence' end,
            'alarm ' || of_id, concat_ws(': ', how_long::text, why));
    return true;
end $$;

-- Sets what is expected of a queue; null leaves a setting as it is, a length of -1 and an age of 0 turn
-- theirs off. What a service declares gives way to
-- what a person has said before. True: something was set.
create or replace function leasehold.watch_queue(
    of_queue text, actor text, by_service boolean default false,
    of_min_completed bigint default null, of_over interval default null,
    of_max_length bigint default null, of_bulk_tags text[] default null,
    of_max_age interval default null, of_max_dead bigint default null, of_max_lost bigint default null
)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    insert into leasehold.watch as w
        (queue, changed_by, min_completed, over, max_length, bulk_tags, max_age, max_dead, max_lost)
    values (of_queue, actor, coalesce(of_min_completed, 1), coalesce(of_over, interval '10 minutes'),
            nullif(greatest(of_max_length, -1), -1), coalesce(of_bulk_tags, '{reindex_*}'),
            -- What holds where nobody watches holds here, too, until somebody says otherwise.
            nullif(greatest(coalesce(of_max_age, interval '1 hour'), interval '0'), interval '0'),
            coalesce(of_max_dead, 10), coalesce(of_max_lost, 10))
    on conflict (queue) do update
        set min_completed = coalesce(of_min_completed, w.min_completed),
            over = coalesce(of_over, w.over),
            max_length = nullif(greatest(coalesce(of_max_length, w.max_length), -1), -1),
            bulk_tags = coalesce(of_bulk_tags, w.bulk_tags),
            max_age = nullif(greatest(coalesce(of_max_age, w.max_age), interval '0'), interval '0'),
            max_dead = coalesce(of_max_dead, w.max_dead),
            max_lost = coalesce(of_max_lost, w.max_lost),
            off = false, changed_by = actor,
            since = case when w.off then statement_timestamp() else w.since end
      where not by_service;
    if not found then
        return false;
    end if;
    if not by_service then
        insert into leasehold.audit (actor, action, subject) values (actor, 'watch', 'queue ' || of_queue);
    end if;
    return true;
end $$;

-- Expects nothing of a queue any more. False: nothing was.
create or replace function leasehold.unwatch_queue(of_queue text, actor text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    -- The row stays: a service that declares its watch at every start must not undo this.
    update leasehold.watch w set off = true, changed_by = actor where w.queue = of_queue and not w.off;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject) values (actor, 'unwatch', 'queue ' || of_queue);
    return true;
end $$;

-- Alarms with their state in words.
create or replace view leasehold.alarm_state as
select a.id, a.rule, a.subject,
       case when a.cleared_at is not null then 'cleared'
            when a.silenced_until > statement_timestamp() then 'silenced'
            when a.acknowledged_at is not null then 'acknowledged'
            else 'open' end as state,
       a.raised_at, a.cleared_at, a.seen_at, a.value, a.threshold, a.summary, a.acknowledged_at,
       a.acknowledged_by, a.acknowledged_why, a.silenced_until, a.silenced_by, a.silenced_why,
       a.notified_at
  from leasehold.alarm a;

-- Finished jobs, one row each.
create or replace view leasehold.finished_job as
select one.id, h.outcome, h.queue, one.name, one.tag, one.attempts, one.enqueued_at, h.finished_at,
       h.claimed_by, h.lease_generation, one.kwargs, h.note
  from leasehold.history h
 cross join lateral unnest(h.job_ids, h.names, h.tags, h.attempts, h.enqueued_at, h.kwargs)
       as one (id, name, tag, attempts, enqueued_at, kwargs);

-- Every job there is, in the words of an inbox.
create or replace view leasehold.inbox as
select j.id,
       case when j.held then 'processing' else 'pending' end as status,
       j.queue, j.name as kind, j.enqueued_at as created_at, j.scheduled_at as available_at,
       l.claimed_by, l.lease_expires_at, j.lease_generation, j.attempts,
       coalesce(j.max_attempts, q.max_attempts, 25) as max_attempts, j.idempotency_key,
       j.priority, j.tag, j.expires_at, j.lost_count, j.cancel_requested, null::timestamptz as finished_at,
       j.kwargs as payload, j.last_error
  from leasehold.job j
  left join leasehold.lease l on j.held and l.lease_generation = j.lease_generation
  left join leasehold.queue q on q.name = j.queue
union all
select d.id, case d.cause when 'expired' then 'expired' else 'dead_letter' end,
       d.queue, d.name, d.enqueued_at, d.scheduled_at, null, null, d.lease_generation, d.attempts,
       coalesce(d.max_attempts, q.max_attempts, 25), d.idempotency_key, d.priority, d.tag,
       d.expires_at, d.lost_count, false, d.died_at, d.kwargs, d.last_error
  from leasehold.dead_job d
  left join leasehold.queue q on q.name = d.queue
union all
select f.id, case f.outcome when 'completed' then 'done' else f.outcome end,
       f.queue, f.name, f.enqueued_at, null, f.claimed_by, null, f.lease_generation, f.attempts,
       null, null, null, f.tag, null, null, false, f.finished_at, f.kwargs, f.note
  from leasehold.finished_job f;

-- Workers with their state in words. A worker that has not been seen for half a minute is dead.
create or replace view leasehold.worker_state as
select w.id, w.name, w.host, w.pid, w.version, w.queues, w.names, w.slots, w.busy, w.started_at,
       w.last_seen_at,
       case when w.stopped_at is not null then 'stopped'
            when w.last_seen_at < statement_timestamp() - interval '30 seconds' then 'dead'
            when w.draining_since is not null then 'draining'
            else 'alive' end as state
  from leasehold.worker w;

-- Each queue that has a row or a job, with what waits in it.
create or replace view leasehold.queue_state as
select names.queue, q.paused_at, q.paused_by, q.paused_why,
       coalesce(j.ready, 0) as ready, coalesce(j.running, 0) as running,
       coalesce(j.scheduled, 0) as scheduled, coalesce(d.dead, 0) as dead,
       coalesce(d.expired, 0) as expired, j.oldest_ready_at,
       (select count(*) from leasehold.worker_state w
         where w.state = 'alive' and names.queue = any (w.queues)) as workers
  from (select name as queue from leasehold.queue
        union select queue from leasehold.job
        union select queue from leasehold.dead_job) names
  left join leasehold.queue q on q.name = names.queue
  left join (
        select queue,
               count(*) filter (where not held and scheduled_at <= statement_timestamp()) as ready,
               count(*) filter (where held) as running,
               count(*) filter (where not held and scheduled_at > statement_timestamp()) as scheduled,
               min(scheduled_at) filter (where not held and scheduled_at <= statement_timestamp())
                   as oldest_ready_at
          from leasehold.job group by queue) j on j.queue = names.queue
  left join (
        select queue, count(*) filter (where cause <> 'expired') as dead,
               count(*) filter (where cause = 'expired') as expired
          from leasehold.dead_job group by queue) d on d.queue = names.queue;

-- Least privilege. Roles belong to the whole server and need CREATEROLE to make; where that is not
-- allowed the engine works as before and an administrator can make them later.
do $$
declare
    wanted text;
begin
    foreach wanted in array array['leasehold_producer', 'leasehold_worker', 'leasehold_housekeeper',
                                  'leasehold_viewer', 'leasehold_operator'] loop
        begin
            if not exists (select from pg_roles where rolname = wanted) then
                execute format('create role %I nologin', wanted);
            end if;
        exception
            when insufficient_privilege then
                raise notice 'role % was not created: CREATEROLE is missing', wanted;
            when duplicate_object or unique_violation then null; -- made by another migrator meanwhile
        end;
    end loop;

    revoke all on all functions in schema leasehold from public;
    if not exists (select from pg_roles where rolname = 'leasehold_operator') then
        return;
    end if;

    grant usage on schema leasehold
        to leasehold_producer, leasehold_worker, leasehold_housekeeper, leasehold_viewer,
           leasehold_operator;
    grant execute on function leasehold.contract()
        to leasehold_producer, leasehold_worker, leasehold_housekeeper, leasehold_viewer,
           leasehold_operator;

    -- A producer adds work and sees nothing.
    grant insert (name, kwargs, queue, priority, enqueued_at, scheduled_at, expires_at, tag,
                  max_attempts, trace_context)
        on leasehold.job to leasehold_producer;
    grant execute on function
        leasehold.enqueue(text, jsonb, text, int, timestamptz, timestamptz, text, int, text, interval, text),
        leasehold.enqueue_many(text[], jsonb[], text, int, timestamptz, timestamptz, text, int, text[], interval),
        leasehold.check_enqueue(text, jsonb, text),
        leasehold.check_options(text, int, timestamptz, text), leasehold.payload_hash(text, jsonb),
        leasehold.wake(text)
        to leasehold_producer, leasehold_worker;

    -- A worker claims and finishes under the fence; it cannot touch a row in any other way.
    grant execute on function
        leasehold.queue_settings(text), leasehold.lanes(text, text[]),
        leasehold.claim_lanes(text, text, int, interval, uuid, text[], int[], timestamptz[], bigint[]),
        leasehold.claim_lost(text, text, interval, uuid, text[], boolean),
        leasehold.last_chance_waits(text, text[]),
        leasehold.claim(text, text, int, interval, text[], uuid),
        leasehold.recover_claim(text, uuid), leasehold.renew(bigint[]),
        leasehold.cancel_requests(bigint[]), leasehold.check_lease(bigint, bigint),
        leasehold.complete_many(bigint[], bigint, boolean), leasehold.complete(bigint, bigint),
        leasehold.settle(bigint, bigint[]), leasehold.complete_waiting(bigint[]),
        leasehold.fail(bigint, bigint, text, interval), leasehold.bury(bigint, bigint, text, text),
        leasehold.snooze(bigint, bigint, interval), leasehold.release(bigint[], bigint),
        leasehold.finish_cancelled(bigint, bigint, text), leasehold.explain_finish(bigint[], bigint),
        leasehold.expire_leases(int), leasehold.rescue(int, boolean), leasehold.return_expired(bigint, int),
        leasehold.bury_expired(bigint, int), leasehold.once_start(text, text, bigint, bigint, interval),
        leasehold.once_finish(text, text, jsonb), leasehold.once_forget(text, text),
        leasehold.register_worker(text, text, text, int, text, text[], text[], int, int, boolean),
        leasehold.unregister_worker(text)
        to leasehold_worker;

    -- Its sweeps claim rows of other people's tables: that right comes from their owner.
    grant execute on function
        leasehold.next_claim(), leasehold.begin_sweep(text),
        leasehold.close_sweep(text, timestamptz, timestamptz, interval),
        leasehold.count_sweep(text, bigint, bigint, bigint, bigint),
        leasehold.fail_swept(text, text[], text[], boolean[], bigint, int, interval, interval)
        to leasehold_worker;
    grant execute on function
        leasehold.declare_sweep(text, text, text, text, text, text, text, text, text, text, text,
                                int, int, interval, interval, bigint, text, text, interval, timestamptz),
        leasehold.take_watch(text), leasehold.note_watch(text, bigint), leasehold.note_due(text, bigint),
        leasehold.run_sweep(text, text)
        to leasehold_worker, leasehold_housekeeper;
    grant select, update, delete on leasehold.sweep_failure to leasehold_worker, leasehold_housekeeper;

    -- Whoever carries the word of an alarm says that it does.
    grant execute on function leasehold.declare_alarm_receiver(text), leasehold.alarm_is_over(bigint)
        to leasehold_worker;

    -- Who changes a mirrored table makes jobs; who passes them on reads rows and asks the store.
    grant execute on function
        leasehold.mirror_changed(text, text[]), leasehold.mirror_removed(text, text[], bigint[]),
        leasehold.mirror_revived(text, text[]),
        leasehold.mirror_reindex(text, text[], text, int, boolean)
        to leasehold_producer, leasehold_worker;
    grant execute on function
        leasehold.fingerprint(text, bigint),
        leasehold.declare_mirror(text, text, text, text, text, text, text, text, interval, interval,
                                 interval, int, int),
        leasehold.mirror_entomb(text, text, bigint),
        leasehold.put_off(bigint[], bigint, float8[], text[], boolean[]),
        leasehold.mirror_recovered(text, int), leasehold.take_check(text),
        leasehold.end_check(text, bigint, text, bigint, bigint, interval),
        leasehold.publish_check(text, timestamptz, bigint, bigint),
        leasehold.mirror_differs(text, timestamptz, text[], text[], bigint[], bigint[]),
        leasehold.mirror_equal(text, text, text, text[]), leasehold.mirror_seen(text, text[]),
        leasehold.mirror_old_gone(text, int), leasehold.mirror_forgotten(text, text[], bigint[]),
        leasehold.mirror_tally(text, text, text[], text[], bigint[]),
        leasehold.mirror_prune(text, int), leasehold.mirror_serves(text, text),
        leasehold.mirror_adopts(text, text, text),
        leasehold.begin_rebuild(text, text),
        leasehold.note_rebuild(text, text, text, text, bigint), leasehold.note_swap(text, text),
        leasehold.drop_second(text)
        to leasehold_worker;
    grant select on leasehold.mirror, leasehold.mirror_gone, leasehold.mirror_difference
        to leasehold_worker;

    -- A housekeeper tidies and fires schedules; a worker process that does both has both roles.
    grant execute on function
        leasehold.expire_leases(int), leasehold.rescue(int, boolean),
        leasehold.return_expired(bigint, int), leasehold.bury_expired(bigint, int), leasehold.clamp_leases(), leasehold.expire_jobs(bigint, int),
        leasehold.return_strays(bigint, bigint), leasehold.walk_jobs(interval, int),
        leasehold.prune(int, interval, interval), leasehold.extend_history(int),
        leasehold.drop_history(interval),
        leasehold.fire_schedule(text, timestamptz, timestamptz, bigint, boolean),
        leasehold.sample_due(), leasehold.take_sample(),
        leasehold.recount_queues(timestamptz, bigint), leasehold.measured_sweeps(),
        leasehold.measure_sweep(text, timestamptz, boolean), leasehold.alarm_snapshot(timestamptz),
        leasehold.apply_alarms(timestamptz, jsonb)
        to leasehold_housekeeper;
    grant select, insert, update, delete on leasehold.schedule to leasehold_housekeeper;
    grant select on leasehold.schema_version to leasehold_worker, leasehold_housekeeper,
        leasehold_producer, leasehold_viewer, leasehold_operator;

    -- An operator cancels, redrives and pauses; what was done is written down.
    grant execute on function
        leasehold.cancel(bigint, text, text), leasehold.promote(bigint[], text),
        leasehold.redrive(bigint[], text), leasehold.pause(text, text, text),
        leasehold.resume(text, text), leasehold.wake(text),
        leasehold.run_sweep(text, text), leasehold.pause_sweep(text, text, text),
        leasehold.resume_sweep(text, text), leasehold.redrive_sweep(text, text[], text, int),
        leasehold.take_watch(text), leasehold.note_watch(text, bigint),
        leasehold.acknowledge_alarm(bigint, text, text), leasehold.test_alarm(text),
        leasehold.silence_alarm(bigint, interval, text, text),
        leasehold.watch_queue(text, text, boolean, bigint, interval, bigint, text[], interval, bigint, bigint),
        leasehold.unwatch_queue(text, text),
        leasehold.order_mirror(text, text, text),
        leasehold.mirror_reindex(text, text[], text, int, boolean)
        to leasehold_operator;
    if not pg_has_role('leasehold_operator', 'leasehold_viewer', 'member') then
        grant leasehold_viewer to leasehold_operator;
    end if;

    -- A viewer sees everything but arguments and error texts.
    grant select (id, status, queue, kind, created_at, available_at, claimed_by, lease_expires_at,
                  lease_generation, attempts, max_attempts, idempotency_key, priority, tag,
                  expires_at, lost_count, cancel_requested, finished_at)
        on leasehold.inbox to leasehold_viewer;
    grant select on leasehold.queue, leasehold.queue_state, leasehold.worker_state,
        leasehold.schedule, leasehold.audit, leasehold.sweep, leasehold.sweep_state,
        leasehold.mirror, leasehold.mirror_state, leasehold.mirror_gone, leasehold.mirror_difference
        to leasehold_viewer;
    grant select on leasehold.measure, leasehold.measure_hour, leasehold.watch, leasehold.alarm,
        leasehold.alarm_state, leasehold.alarm_receiver, leasehold.duty to leasehold_viewer;
    grant execute on function leasehold.latest(), leasehold.measured(), leasehold.mirror_numbers(),
        leasehold.tag_subject(text, text),
        leasehold.vacuum_holders(),
        leasehold.series(text, text[], text, interval, interval) to leasehold_viewer;
    grant select (sweep, key, claim, attempts, failed_at, retry_at, dead_at)
        on leasehold.sweep_failure to leasehold_viewer;
    grant select (id, queue, name, tag, priority, enqueued_at, scheduled_at, expires_at, attempts,
                  max_attempts, lost_count, held)
        on leasehold.job to leasehold_viewer;
end $$;


insert into leasehold.schema_version (version, name, checksum) values (0, 'functions', '\xbe45c41a85f1d89d8debfe6d395198ae36b96a04c09035581f803ed6370b8601') on conflict (version) do update set checksum = excluded.checksum, applied_at = statement_timestamp();
commit;
