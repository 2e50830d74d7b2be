begin;
set local lock_timeout = '2s';
set local statement_timeout = '10min';
select pg_advisory_xact_lock(7305, 1);
-- Which migrations ran here. Version 0 stands for the functions and views. It checks before it creates:
-- a role without the right to create succeeds if everything exists, and Postgres sends no notice about
-- that.
do $$ begin
    if to_regnamespace('leasehold') is null then
        create schema leasehold;
    end if;
    if to_regclass('leasehold.schema_version') is null then
        create table leasehold.schema_version (
            version int primary key,
            name text not null,
            checksum bytea not null,
            applied_at timestamptz not null default statement_timestamp()
        );
    end if;
    if not exists (select from pg_attribute a
                    where a.attrelid = 'leasehold.schema_version'::regclass
                      and a.attname = 'oldest_reader' and not a.attisdropped) then
        -- The number of the release that wrote the row, and of the oldest release whose programs can
        -- work with it. Null: a release from before these numbers.
        alter table leasehold.schema_version add column release int, add column oldest_reader int;
    end if;
end $$;

-- The tables of the queue.
--
-- Why: one hot table of waiting and running jobs (`leasehold.job`), one row per claim (`lease`), and
-- finished jobs in tables of their own (`dead_job`, `history`), so that a claim never reads a job that is
-- finished.
-- Locks: none that matter; every object here is new.
-- An older program sees: nothing of this; it refuses a schema newer than it knows.

-- Everything that is not for callers. What callers may use is in `leasehold`.
do $$ begin
    if to_regclass('leasehold_internal.queue') is not null then
        raise exception 'schema leasehold_internal belongs to a schema leasehold that was dropped'
            using hint = 'To start anew, drop it too: drop schema leasehold_internal cascade.';
    end if;
    if to_regnamespace('leasehold_internal') is null then
        create schema leasehold_internal;
    end if;
end $$;

create sequence leasehold_internal.generation;

-- Identifies the server, and this very sequence, that drew the last generation. A generation never
-- decreases, even after a failover or a restore that sets its sequence back: the next claim compares this
-- value and moves the generations forward. A sequence and not a table: every transaction sees its value at
-- once, and the value survives a rollback.
create sequence leasehold_internal.epoch;

-- The row that a claim locks while it moves the generations forward.
create table leasehold_internal.epoch_guard (
    only_row boolean primary key default true check (only_row)
);
insert into leasehold_internal.epoch_guard default values;

-- One row: since when this server has been up without a break. Unlogged on purpose: a crash and a
-- promotion empty the table, and the next reclaim records that the server is back. A lease that could
-- not be renewed because the server was down must not count as the death of its worker.
create unlogged table leasehold_internal.server_start (
    only_row boolean primary key default true constraint server_start_is_one_row check (only_row),
    since timestamptz not null default statement_timestamp(),
    -- The server start that the row belongs to: a clean restart keeps the row.
    started timestamptz not null default pg_postmaster_start_time()
);
insert into leasehold_internal.server_start default values;

-- Settings of a queue. Enqueueing needs no row here; the first claim of a queue inserts one with these
-- defaults.
create table leasehold_internal.queue (
    name text collate "C" primary key
        constraint queue_name_form check (name <> '' and octet_length(name) <= 64),
    -- How long a claim lasts without renewal.
    lease interval not null default interval '30 seconds'
        constraint lease_at_least_a_second check (lease >= interval '1 second'),
    -- How often a job may start before it is buried, unless the job has its own limit.
    max_attempts int not null default 25
        constraint max_attempts_positive check (max_attempts > 0),
    -- How many workers may die in a row while they run a job before it is buried.
    max_lost int not null default 3
        constraint max_lost_positive check (max_lost > 0),
    -- The most jobs that one claim takes.
    claim_size int not null default 1000
        constraint claim_size_positive check (claim_size > 0),
    -- The worker stops a handler that runs for longer than this, and the attempt fails.
    run_limit interval not null default interval '1 hour',
    -- Backoff between attempts: base * 2^(attempts - 1), never above the cap, with jitter.
    backoff_base interval not null default interval '1 second',
    backoff_cap interval not null default interval '1 hour',
    -- Whether finished jobs are recorded in `history`.
    keep_history boolean not null default true,
    -- A title and an owner, for dashboards and notifications.
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
-- A claim changes only `held`, `lease_generation` and `attempts`: no index mentions them and the pages
-- keep room, so a claim is a heap-only update and leaves no dead index entry behind.
create table leasehold.job (
    id bigint generated always as identity (cache 50) primary key,
    enqueued_at timestamptz not null default now(),
    scheduled_at timestamptz not null default now(),
    -- Null means: 30 days after the due time. The trigger `default_expiry` sets that, so no reader meets a
    -- null. The default counts from now; the trigger corrects it for a job that is due later.
    expires_at timestamptz default now() + interval '30 days',
    -- Lower runs first.
    priority int not null default 0,
    -- Null: the limit of the queue.
    max_attempts int constraint job_max_attempts_positive check (max_attempts > 0),
    -- How many workers died in a row while they ran this job.
    lost_count smallint not null default 0,
    cancel_requested boolean not null default false,
    -- The columns that a claim changes are together: the log holds the bytes from the first change to the
    -- last.
    -- True while the lease `lease_generation` owns the job.
    held boolean not null default false,
    -- The generation of the last claim; with `id` it is the fence. 0: never claimed.
    lease_generation bigint not null default 0,
    -- Charged when a job is claimed.
    attempts int not null default 0,
    -- True: the last attempt deferred the job. It runs after all jobs of its queue that are not deferred. A
    -- claim does not change it: `job_order_idx` has this column, and a claim must stay a heap-only update. The
    -- end of the attempt sets it.
    deferred boolean not null default false,
    -- True: the job counts as running for its limit key. A claim sets it with `held`. Whatever ends the
    -- attempt clears it in the same write, or keeps it for the first job of an ordered key. Always false
    -- without a limit key, so an index on it costs such a job nothing.
    permit boolean not null default false,
    queue text collate "C" not null default 'default'
        constraint job_queue_form check (queue <> '' and octet_length(queue) <= 64),
    name text collate "C" not null
        constraint job_name_form check (name <> '' and octet_length(name) <= 200),
    -- Where the job came from, for operators and for measurement.
    tag text not null default '' constraint job_tag_form check (octet_length(tag) <= 200),
    kwargs jsonb not null default '{}'::jsonb
        constraint job_kwargs_object check (jsonb_typeof(kwargs) = 'object')
        constraint job_kwargs_size check (pg_column_size(kwargs) <= 65536),
    idempotency_key text collate "C",
    last_error text,
    -- W3C traceparent of the producer.
    trace_context text,
    -- The last ten failures, oldest first: {"at", "attempt", "worker", "ms", "error"}. Null: none.
    -- `last_error` alone does not show how the earlier attempts failed.
    errors jsonb,
    -- Which limit holds the job back, such as tenant:7. Null: none. No CHECK: it would cost every enqueue
    -- of a single job 2 us, and an index entry bounds it anyway.
    limit_key text collate "C",
    -- The batch that waits for the end of this job.
    batch_id bigint
) with (
    fillfactor = 45,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

-- A queue in the order in which its jobs run: a claim reads and locks only what it takes. Names are
-- compared on the row: an index that begins with the name would make a claim visit every name, and lock in
-- each as many rows as it wants in all. Deferred jobs are behind all others, whatever their priority. For
-- seven of eight lengths of a queue name that column costs no space: it uses a byte that would be padding
-- before `priority`.
--
-- `+id`, not `id`: a search for ids must find no index but the primary key. Where vacuum saw an empty
-- table, as it often does in a queue that keeps up, the planner estimates that reading a whole index is
-- cheap, keeps that plan, and every finish reads every job once the queue has grown.
--
-- Jobs with a limit key are in `job_key_idx` alone: a key that is full must not be read by every claim.
create index job_order_idx on leasehold.job (queue, deferred, priority, scheduled_at, (+id))
    where limit_key is null;

-- The jobs of each limit key: those with a permit, which are counted, and those that wait, in order.
create index job_key_idx on leasehold.job
    (queue, limit_key, permit, deferred, priority, scheduled_at, (+id)) where limit_key is not null;

-- Jobs whose worker died, for `claim_alone` and `lost_priority`: a job on its last chance is claimed alone.
-- None of them is deferred: a reclaim ends that.
create index job_lost_idx on leasehold.job (queue, priority, scheduled_at, (+id)) where lost_count > 0;

-- Replaced by the text in functions/queue/wake.sql; a trigger cannot be created without its function.
create function leasehold_internal.wake_idle() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$ begin return null; end $$;

-- Wakes idle workers however the job was stored: by `enqueue` in a transaction of the caller, by INSERT, by
-- COPY. The event is deferred to the commit, so that the check for an idle worker runs as late as possible;
-- a worker that becomes idle after that check looks again for a while.
--
-- One event per transaction and queue, not one per row: a deferred event per row would double the cost
-- of COPY and keep 100,000 of them in memory. The setting is local to the transaction, and the rollback
-- of a savepoint undoes both the event and the setting. Idle workers look again within a second; a
-- wake-up is needed only for jobs that are due before.
create constraint trigger job_wakes_idle after insert on leasehold.job
    deferrable initially deferred for each row
    when (new.scheduled_at <= clock_timestamp() + interval '1 second'
          and case when current_setting('leasehold.woken_queue', true) = new.queue then false
                   else set_config('leasehold.woken_queue', new.queue, true) is not null end)
    execute function leasehold_internal.wake_idle();

-- One row per claim: which worker holds the jobs of one generation, and until when.
-- A row outlives its end by a minute or more, so that a worker whose COMMIT reply was lost can ask
-- what became of it.
create table leasehold_internal.lease (
    lease_generation bigint primary key,
    claimed_at timestamptz not null default statement_timestamp(),
    lease_expires_at timestamptz not null,
    lease interval not null,
    -- Null while any job is held. Set in the statement that ends the last one.
    ended_at timestamptz,
    keep_history boolean not null,
    -- Whether any job of the claim has a limit key or belongs to a batch: a completion of others does not
    -- look for these.
    has_extras boolean not null default false,
    queue text collate "C" not null,
    -- For operators, and to find the leases of a worker; never a fence.
    claimed_by text not null,
    -- The claimer creates it, so that a claim whose reply was lost can be found again.
    claim_id uuid,
    job_ids bigint[] not null,
    -- Jobs that were reclaimed from this lease.
    lost_ids bigint[] not null default '{}'
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

create index lease_expiry_idx on leasehold_internal.lease (lease_expires_at) where ended_at is null;

-- Jobs that do not run again unless an operator redrives them. They stay until an operator deletes them or
-- sets a retention.
create table leasehold_internal.dead_job (
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
        'exhausted',   -- every attempt failed, or the last one lost its worker
        'lost',        -- too many workers died in a row while they ran it
        'rejected',    -- the handler reported that another attempt is useless
        'undecodable', -- the kwargs do not fit what the handler expects
        'expired'      -- not started before `expires_at`
    )),
    claimed_by text,
    queue text collate "C" not null,
    name text collate "C" not null,
    tag text not null,
    kwargs jsonb not null,
    idempotency_key text collate "C",
    last_error text,
    trace_context text,
    errors jsonb,
    limit_key text collate "C",
    batch_id bigint
);
create index dead_job_queue_idx on leasehold_internal.dead_job (queue, died_at);
-- Expired jobs are few, and each of them is an alarm.
create index dead_job_expired_idx on leasehold_internal.dead_job (queue) where cause = 'expired';

-- Finished jobs, one row per batch, in partitions of one day that are dropped, never vacuumed.
create table leasehold_internal.history (
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
    note text,
    -- When the last attempt was claimed, by the one lease that all jobs of the row had.
    claimed_at timestamptz,
    -- One entry per job, as `job_ids`. Null as a whole where no job of the row differs from the default:
    -- priority 0, no key, the queue's attempts, due within a second of the enqueue, no failure.
    priorities int[],
    keys text[],
    max_attempts int[],
    scheduled_at timestamptz[],
    errors jsonb[]
) partition by range (finished_at);
-- A finish must not fail because the partition of its day does not exist yet.
create table leasehold_internal.history_rest partition of leasehold_internal.history default;

-- A sample of one minute must not read a day. Rows are stored in the order of their time, so a few bytes
-- per range of pages are enough, and the insert of a batch costs no more.
create index history_finished_idx on leasehold_internal.history using brin (finished_at)
    with (pages_per_range = 32, autosummarize = on);

-- Idempotency keys outlive the jobs that they created.
create table leasehold_internal.idempotency_key (
    queue text collate "C" not null,
    key text collate "C" not null
        constraint key_form check (key <> '' and octet_length(key) <= 200),
    job_id bigint not null,
    request_hash bytea not null,
    -- The key is taken until then, and for as long as its job waits or runs.
    holds_until timestamptz not null,
    created_at timestamptz not null default statement_timestamp(),
    -- An expired key stays while its job waits. Pruning looks at it again at this time, and not before.
    -- `holds_until` cannot express that: it decides whether an enqueue creates a job.
    recheck_at timestamptz,
    primary key (queue, key)
);
create index idempotency_key_prune_idx
    on leasehold_internal.idempotency_key (greatest(holds_until, recheck_at));

-- Marks that handlers set before and after an effect that must not repeat.
create table leasehold_internal.once_marker (
    scope text collate "C" not null constraint once_scope_form check (octet_length(scope) <= 300),
    step text collate "C" not null constraint once_step_form check (octet_length(step) <= 200),
    started_at timestamptz not null default statement_timestamp(),
    -- Null: started, and it is unknown whether the effect took place.
    finished_at timestamptz,
    result jsonb,
    job_id bigint,
    lease_generation bigint,
    -- Marks are kept at least until then.
    keep_until timestamptz not null,
    primary key (scope, step)
);
create index once_marker_age_idx on leasehold_internal.once_marker (keep_until);

-- Worker processes, for operators: no transition reads this table.
create table leasehold_internal.worker (
    -- The name from the configuration plus an id of this one process.
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
-- the job, so a slot fires once however many workers see that it is due. Queue, job name, kwargs and tag
-- have the constraints of `leasehold.job`: otherwise a schedule could be stored whose job cannot be
-- inserted, and every slot of it would fail.
create table leasehold_internal.schedule (
    name text collate "C" primary key
        constraint schedule_name_form check (name ~ '^[a-z0-9][a-z0-9_.-]{0,63}$'),
    cron text not null constraint schedule_cron_length check (octet_length(cron) <= 200),
    zone text not null default 'UTC',
    queue text collate "C" not null default 'default'
        constraint schedule_queue_form check (queue <> '' and octet_length(queue) <= 64),
    job_name text collate "C" not null
        constraint schedule_job_name_form check (job_name <> '' and octet_length(job_name) <= 200),
    kwargs jsonb not null default '{}'::jsonb
        constraint schedule_kwargs_object check (jsonb_typeof(kwargs) = 'object')
        constraint schedule_kwargs_size check (pg_column_size(kwargs) <= 65536),
    tag text not null default 'schedule' constraint schedule_tag_form check (octet_length(tag) <= 200),
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
    paused_why text,
    created_at timestamptz not null default now(),
    -- The name of the worker whose code declares it. Null: an operator added it.
    declared_by text
        constraint schedule_declared_by_form check (octet_length(declared_by) between 1 and 200),
    -- Workers that declare it repeat that every hour.
    last_declared_at timestamptz,
    -- When `next_slot` was last moved. Later than now: the clock was set back.
    moved_at timestamptz
);

-- What operators did.
create table leasehold.audit (
    at timestamptz not null default statement_timestamp(),
    actor text not null,
    action text not null,
    subject text collate "C" not null,
    detail text
);
create index audit_at_idx on leasehold.audit (at);

-- How far a shared duty is, for every housekeeper: one of them does the next piece, the others find that
-- it was just done. `ran_at` is when it ran; it runs again `cooldown` later. A time in the future then
-- always means that the clock was set back.
create table leasehold_internal.duty (
    name text collate "C" primary key,
    after_id bigint not null default 0,
    ran_at timestamptz not null default '-infinity',
    cooldown interval not null default interval '0'
);
insert into leasehold_internal.duty (name) values ('walk_jobs');

comment on table leasehold.job is
    'Jobs that wait or run. INSERT and COPY into it enqueue; every other change goes through the functions. To read jobs use leasehold.jobs.';
comment on column leasehold.job.id is 'The job. With lease_generation it is the fence.';
comment on column leasehold.job.enqueued_at is 'When it was enqueued.';
comment on column leasehold.job.scheduled_at is 'When it is due. Default: now.';
comment on column leasehold.job.expires_at is
    'A job that has not started by then is dead. Default: 30 days after the due time.';
comment on column leasehold.job.priority is 'Lower runs first. Default: 0.';
comment on column leasehold.job.deferred is 'Whether the job waits behind all jobs of its queue that are not deferred, because its last attempt deferred it.';
comment on column leasehold.job.max_attempts is
    'How often it may be claimed before it is dead. Null: the limit of its queue, 25 by default.';
comment on column leasehold.job.lost_count is 'How many workers died in a row while they ran it.';
comment on column leasehold.job.cancel_requested is 'True if an operator asked its worker to stop it.';
comment on column leasehold.job.held is 'True while a lease owns the job.';
comment on column leasehold.job.lease_generation is 'The generation of its last claim; 0: never claimed.';
comment on column leasehold.job.attempts is 'How often it was claimed.';
comment on column leasehold.job.queue is 'Its queue. Default: default.';
comment on column leasehold.job.name is 'Which handler runs it, such as email.send.';
comment on column leasehold.job.tag is 'Where the job came from.';
comment on column leasehold.job.kwargs is 'Its arguments, a JSON object of at most 64 KiB.';
comment on column leasehold.job.idempotency_key is 'The key it was enqueued with. Only the functions set it.';
comment on column leasehold.job.last_error is 'The error of its last failed attempt.';
comment on column leasehold.job.trace_context is 'W3C traceparent of the producer.';
comment on column leasehold.job.errors is 'Its last ten failures, oldest first: at, attempt, worker, ms, error.';
comment on column leasehold.job.limit_key is 'Which limit holds it back, such as tenant:7. Null: none.';
comment on column leasehold.job.permit is 'Whether it counts as running for its limit key.';
comment on column leasehold.job.batch_id is 'The batch it belongs to. Only the functions set it.';
comment on table leasehold.audit is 'What operators did, and why.';
comment on column leasehold.audit.at is 'When.';
comment on column leasehold.audit.actor is 'Who.';
comment on column leasehold.audit.action is 'What: cancel, redrive, pause and so on.';
comment on column leasehold.audit.subject is 'To which job, queue, schedule, sweep, mirror or alarm.';
comment on column leasehold.audit.detail is 'Why, and with which values.';
comment on table leasehold.schema_version is
    'Which migrations have run. Version 0 is the functions and views.';
comment on column leasehold.schema_version.version is 'The number of the migration; 0: functions and views.';
comment on column leasehold.schema_version.name is 'Its name.';
comment on column leasehold.schema_version.checksum is 'SHA-256 of its text.';
comment on column leasehold.schema_version.applied_at is 'When it ran.';
comment on column leasehold.schema_version.release is 'The release that ran it.';
comment on column leasehold.schema_version.oldest_reader is
    'The oldest release whose programs work with it.';

insert into leasehold.schema_version (version, name, checksum, release, oldest_reader) values (1, 'jobs', '\xa8c2671bd2ecaa39b2b63bdbc15cfd747599b3bcc448fb82559c003df3ef75b6', 999, 0) on conflict (version) do update set checksum = excluded.checksum, applied_at = statement_timestamp(), release = excluded.release, oldest_reader = excluded.oldest_reader;
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

insert into leasehold.schema_version (version, name, checksum, release, oldest_reader) values (2, 'sweep', '\xead35fefe135b7a947fe5752d6d38fa6042105db7cf419e24ebf8e209f29b75e', 999, 0) on conflict (version) do update set checksum = excluded.checksum, applied_at = statement_timestamp(), release = excluded.release, oldest_reader = excluded.oldest_reader;
-- The tables of the mirrors.
--
-- Why: a mirror keeps a second store equal to rows of a user's table. What it has to remember besides them
-- is here: one row per mirror (`mirror`: how far its check and its rebuild are, what they found), one per
-- row that was deleted (`mirror_gone`) and one per difference that was found (`mirror_difference`).
-- Locks: none that matter; every object here is new.
-- An older program sees: nothing of this; it refuses a schema newer than it knows.

-- One row per mirror, written by the worker that declares it.
create table leasehold_internal.mirror (
    name text collate "C" primary key
        constraint mirror_name_form check (name ~ '^[a-z0-9][a-z0-9_.-]{0,63}$'),
    -- The mirrored table and its columns.
    table_name text not null,
    key_column text not null,
    key_kind text not null
        constraint mirror_key_kind check (key_kind in ('text', 'uuid', 'integer')),
    version_column text not null,
    -- The queue, the name and the field of the jobs of its changes.
    queue text collate "C" not null,
    job_name text collate "C" not null,
    job_field text not null,
    -- A job checks a change this long after its commit.
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

    -- Where the check is: the last key that it has compared, and until when a worker has the next range.
    check_after text collate "C",
    check_token bigint not null default 0,
    check_due_at timestamptz not null default '-infinity',
    check_busy_until timestamptz,
    round_started_at timestamptz,
    round_rows bigint not null default 0,
    round_repaired bigint not null default 0,

    -- What the last whole round of the check found.
    compared_at timestamptz,
    rows_compared bigint not null default 0,
    repaired bigint not null default 0,
    repaired_total bigint not null default 0,
    rounds bigint not null default 0,
    differences bigint not null default 0,
    oldest_difference timestamptz,
    -- Every change that was committed before this is in the store.
    equal_as_of timestamptz,

    created_at timestamptz not null default now(),
    -- When the store was last found to search another set than the recorded one. A check must not publish
    -- a comparison with a set that the store has lost since.
    adopted_at timestamptz,
    constraint mirror_phase_has_a_second check ((phase = 'none') = (second is null))
) with (fillfactor = 50, autovacuum_vacuum_threshold = 1000);

-- Rows that were deleted, with a version above every one that they had. A document that comes late
-- finds its tombstone; a row that comes back starts above it.
create table leasehold_internal.mirror_gone (
    mirror text collate "C" not null,
    key text collate "C" not null,
    version bigint not null,
    gone_at timestamptz not null default statement_timestamp(),
    primary key (mirror, key)
);
create index mirror_gone_age_idx on leasehold_internal.mirror_gone (mirror, gone_at);

-- What a check found unequal, and no later comparison found equal.
create table leasehold_internal.mirror_difference (
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
    -- How many jobs were enqueued to repair it, and when the last one was.
    repairs int not null default 0,
    repaired_at timestamptz,
    primary key (mirror, key)
);
create index mirror_difference_age_idx on leasehold_internal.mirror_difference (mirror, first_seen);

insert into leasehold.schema_version (version, name, checksum, release, oldest_reader) values (3, 'mirror', '\x4be9c2ef8350eddd97df38ab9fd0274cacaa906b9076a5d3299b2ea1c6c52edc', 999, 0) on conflict (version) do update set checksum = excluded.checksum, applied_at = statement_timestamp(), release = excluded.release, oldest_reader = excluded.oldest_reader;
-- What the engine measures of itself, and the alarms that follow from it.
--
-- Why: a queue that no operator watches fails in silence. Once per minute one worker of the fleet records
-- a sample (`measure`), compares it with the thresholds of the operators (`watch`), and records what is
-- wrong (`alarm`).
-- Locks: none that matter; every object here is new.
-- An older program sees: nothing of this; it refuses a schema newer than it knows.

-- One value per minute, metric and subject; minutes are kept for a day.
create table leasehold_internal.measure (
    -- The minute, by its beginning.
    at timestamptz not null,
    kind text collate "C" not null constraint measure_kind check (kind in (
        'queue', 'tag', 'sweep', 'mirror', 'mirror_tag', 'database')),
    -- A queue, `queue/tag`, a sweep, a mirror, `mirror/tag`, a table, or empty: the database as a whole.
    subject text collate "C" not null,
    metric text collate "C" not null,
    -- True: a count over this minute. False: the value at its end.
    flow boolean not null,
    value double precision not null,
    primary key (at, kind, subject, metric)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05);

-- For a chart: one metric over a day, without the others of each minute.
create index measure_series_idx on leasehold_internal.measure (kind, metric, at);

-- The same per hour: flows are sums, the others means. Hours are kept for ninety days.
create table leasehold_internal.measure_hour (
    at timestamptz not null,
    kind text collate "C" not null,
    subject text collate "C" not null,
    metric text collate "C" not null,
    flow boolean not null,
    value double precision not null,
    highest double precision not null,
    -- How many minutes the row summarises.
    minutes int not null,
    primary key (at, kind, subject, metric)
);

create index measure_hour_series_idx on leasehold_internal.measure_hour (kind, metric, at);

-- Events that leave no other trace: retries, losses, burials, what a mirror did. The statement that does it
-- appends a row, the sampler reads it once, and it is deleted after two hours.
create table leasehold_internal.tally (
    at timestamptz not null default statement_timestamp(),
    queue text not null default '',
    tag text not null default '',
    what text not null,
    n bigint not null,
    -- The name of the mirror, when the event concerns no queue.
    subject text not null default ''
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
create index tally_at_idx on leasehold_internal.tally (at);

-- The thresholds of a queue.
create table leasehold_internal.watch (
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
    -- This number of jobs died, or lost their worker, within 15 minutes: an alarm. 0: off.
    max_dead bigint not null default 10 constraint watch_max_dead_counted check (max_dead >= 0),
    max_lost bigint not null default 10 constraint watch_max_lost_counted check (max_lost >= 0),
    -- An operator turned the watch of this queue off: services that declare a watch leave it off.
    off boolean not null default false,
    -- `min_completed` is compared only after the queue has been watched for `over`.
    since timestamptz not null default statement_timestamp(),
    changed_by text not null
);

-- Alarms, open and cleared. One open row per rule and subject.
create table leasehold_internal.alarm (
    id bigint generated always as identity primary key,
    rule text collate "C" not null,
    subject text collate "C" not null,
    raised_at timestamptz not null default statement_timestamp(),
    -- Null: it is still raised.
    cleared_at timestamptz,
    -- When a sample last kept it raised; `value` is of that sample.
    seen_at timestamptz not null default statement_timestamp(),
    value double precision not null,
    threshold double precision not null,
    summary text not null,
    acknowledged_at timestamptz,
    acknowledged_by text,
    acknowledged_why text,
    -- No notification is sent before then.
    silenced_until timestamptz,
    silenced_by text,
    silenced_why text,
    -- When its notifications were enqueued. Null: none was, so none is sent when it clears.
    notified_at timestamptz,
    -- When a receiver first delivered one, and the job name of that receiver. `notified_at` alone does not
    -- show an operator that a notification arrived.
    delivered_at timestamptz,
    delivered_by text,
    constraint alarm_acknowledgement_is_signed
        check ((acknowledged_at is null) = (acknowledged_by is null)
               and (acknowledged_at is null) = (acknowledged_why is null)),
    constraint alarm_silence_is_signed
        check (silenced_until is null or (silenced_by is not null and silenced_why is not null))
);
create unique index alarm_open_idx on leasehold_internal.alarm (rule, subject) where cleared_at is null;
create index alarm_raised_idx on leasehold_internal.alarm (raised_at);

-- The receivers of notifications: the names of the jobs that deliver them. A process that can deliver them
-- registers itself again from time to time.
create table leasehold_internal.alarm_receiver (
    job_name text collate "C" primary key
        constraint alarm_receiver_form check (job_name ~ '^leasehold\.alarm\.[a-z0-9_.-]{1,64}$'),
    seen_at timestamptz not null default statement_timestamp()
);

insert into leasehold_internal.duty (name) values ('measure');

insert into leasehold.schema_version (version, name, checksum, release, oldest_reader) values (4, 'measure', '\xf0631590f046117dc40cd2aa584c689b3f63c49eabfd9836fd5ca9795b2b677a', 999, 0) on conflict (version) do update set checksum = excluded.checksum, applied_at = statement_timestamp(), release = excluded.release, oldest_reader = excluded.oldest_reader;
do $guard$ begin if exists (select from leasehold.schema_version where version = 0 and release > 999) then raise exception 'the functions and views of schema leasehold are of a newer release' using errcode = 'LH010', hint = 'Use that release or a newer one; it works with this schema.'; end if; end $guard$;
-- Functions that read jobs or leases turn off the plans that read a whole table. A session keeps the
-- plan that it made when the table was empty, and would read all of it, for each job that fails, until
-- the next ANALYZE. The hot ones also keep one plan for all arguments: planning anew for each call
-- costs more than the call. And none is compiled: over a large table the estimate is high, but a claim
-- reads a few rows.

-- Returns the settings of a queue. The first call creates the row.
create or replace function leasehold_internal.queue_settings(queue text)
returns leasehold_internal.queue
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
declare
    settings leasehold_internal.queue;
begin
    select * into settings from leasehold_internal.queue where name = queue_settings.queue;
    if not found then
        insert into leasehold_internal.queue (name) values (queue_settings.queue) on conflict (name) do nothing;
        select * into settings from leasehold_internal.queue where name = queue_settings.queue;
    end if;
    return settings;
exception when check_violation then
    raise exception 'queue name % is not allowed', quote_literal(queue_settings.queue)
        using errcode = 'LH001', constraint = 'LH001',
              hint = 'A queue name has 1 to 64 bytes.';
end $$;

-- Returns a generation that no claim ever had, greater than every one before. The sequence makes it
-- grow; the random low bits keep a generation from being issued twice even if a sequence number
-- repeats.
--
-- A failover to a standby that lagged behind, or a restore, sets the sequence back. Both bring another
-- server process or another sequence, which `epoch` detects: the first claim there moves the sequence
-- forward.
create or replace function leasehold_internal.next_generation()
returns bigint
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    if (select e.last_value <> leasehold_internal.epoch_here(e.tableoid) from leasehold_internal.epoch e) then
        perform leasehold_internal.begin_epoch();
    end if;
    return (nextval('leasehold_internal.generation') << 20) | floor(random() * 1048576)::bigint;
end $$;

-- Returns a number for this server process and a relation in it. A promoted standby, a server started
-- on a copy or a backup, and a restored dump each have another one. It has no `search_path` setting,
-- which would keep the planner from inlining it.
create or replace function leasehold_internal.epoch_here(relation oid)
returns bigint
language sql stable as $$
    select greatest(1, 9223372036854775807 & hashint8extended(
        (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint, relation::bigint))
$$;

-- Moves the generations past everything that was drawn before: by 2^26 claims, more than a standby can
-- have lost, and at least to the milliseconds since 2025, for a restore that lost more than that or a
-- second standby that was promoted from the same state. The upper bound keeps a clock far in the future
-- from using the numbers up.
--
-- One claim does it and the others wait for it. The error that ends the block releases the lock: the
-- caller's transaction may be long, and no claim should wait for that. Sequences keep what was set.
create or replace function leasehold_internal.begin_epoch()
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    milliseconds bigint := extract(epoch from clock_timestamp() - timestamptz '2025-01-01 00:00Z') * 1000;
    here bigint;
begin
    perform from leasehold_internal.epoch_guard for update;
    select leasehold_internal.epoch_here(e.tableoid) into here from leasehold_internal.epoch e
     where e.last_value <> leasehold_internal.epoch_here(e.tableoid);
    if found then
        perform setval('leasehold_internal.generation', greatest(
            (select g.last_value from leasehold_internal.generation g) + 67108864,
            least(milliseconds, 4398046511104)));
        perform setval('leasehold_internal.epoch', here);
    end if;
    raise exception 'the lock has served its purpose' using errcode = 'LH900';
exception when sqlstate 'LH900' then
    null;
end $$;

-- Returns how long a job waits after its nth attempt failed: doubling, capped, with 20 % of jitter
-- either way so that jobs that failed together do not retry together.
create or replace function leasehold_internal.backoff(attempts int, base interval, cap interval)
returns interval
language sql volatile set search_path = leasehold, pg_temp as $$
    select least(base * power(2, least(greatest(attempts, 1) - 1, 30)), cap)
           * (0.8 + 0.4 * random())
$$;

-- Returns the version of the SQL contract. Functions of one contract keep their names, arguments and
-- results; an incompatible change gets a new name beside the old one.
create or replace function leasehold.contract()
returns int
language sql immutable as 'select 1';

-- Enqueues one job in the caller's transaction.
--
-- Without a key every call creates a job. With a key, the first call creates the job and later ones
-- return its id: the key is taken while the job waits or runs, and for `key_ttl` after the enqueue. The
-- same key with another name or other kwargs is refused.
--
-- An error carries its code as the name of a constraint too: some drivers do not pass on SQLSTATE.
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
    key_ttl interval default interval '24 hours',
    trace_context text default null,
    limit_key text default null,
    batch bigint default null,
    on_success jsonb default null,
    on_end jsonb default null,
    on_death jsonb default null
)
returns table (job_id bigint, inserted boolean)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_variable
declare
    due timestamptz := coalesce(scheduled_at, statement_timestamp());
    expiry timestamptz := coalesce(
        expires_at, greatest(due, statement_timestamp()) + interval '30 days');
    digest bytea;
    known leasehold_internal.idempotency_key;
begin
    perform leasehold_internal.check_enqueue(name, kwargs, queue);
    perform leasehold_internal.check_options(tag, max_attempts, due, key);
    perform leasehold_internal.check_expiry(due, expires_at);
    priority := coalesce(priority, 0);
    key_ttl := coalesce(key_ttl, interval '24 hours');
    if key_ttl > interval '10 years' then
        raise exception 'key_ttl is %; it must be at most 10 years', key_ttl
            using errcode = 'LH002', constraint = 'LH002', hint = 'Leave it out for 24 hours.';
    end if;
    if octet_length(trace_context) > 1024 then
        raise exception 'this trace context has % bytes', octet_length(trace_context)
            using errcode = 'LH002', constraint = 'LH002', hint = 'A trace context has at most 1,024 bytes.';
    end if;
    if key is null then
        insert into leasehold.job as j
            (name, kwargs, queue, priority, scheduled_at, expires_at, tag, max_attempts, trace_context)
        values (name, kwargs, queue, priority, due, expiry, tag, max_attempts, trace_context)
        returning j.id into job_id;
        inserted := true;
        return next;
        return;
    end if;

    digest := leasehold_internal.request_hash(name, kwargs);
    loop
        job_id := nextval('leasehold.job_id_seq');
        -- Waits for a transaction that is inserting the same key.
        insert into leasehold_internal.idempotency_key (queue, key, job_id, request_hash, holds_until)
        values (queue, key, job_id, digest, statement_timestamp() + key_ttl)
        on conflict on constraint idempotency_key_pkey do nothing;
        if not found then
            -- Lock first and look afterwards, in two statements: a statement that waits here does not
            -- see the job that the other transaction created, considers the key free and creates a
            -- second one.
            select * into known from leasehold_internal.idempotency_key k
             where k.queue = queue and k.key = key
               for update;
            if not found then
                continue; -- the key was pruned in between
            end if;
            if known.holds_until > statement_timestamp()
               or exists (select from leasehold.job j where j.id = known.job_id) then
                if known.request_hash <> digest then
                    raise exception 'key % of queue % belongs to job %, which has another name or other kwargs',
                        quote_literal(key), quote_literal(queue), known.job_id
                        using errcode = 'LH003', constraint = 'LH003',
                              hint = 'Use a new key for a new request; repeat a request with the same name and kwargs.';
                end if;
                job_id := known.job_id;
                inserted := false;
                return next;
                return;
            end if;
            -- The key has expired and its job has finished.
            update leasehold_internal.idempotency_key k
               set job_id = job_id, request_hash = digest,
                   holds_until = statement_timestamp() + key_ttl, created_at = statement_timestamp()
             where k.queue = queue and k.key = key;
        end if;
        insert into leasehold.job
            (id, name, kwargs, queue, priority, scheduled_at, expires_at, tag, max_attempts,
             idempotency_key, trace_context)
        overriding system value
        values (job_id, name, kwargs, queue, priority, due, expiry, tag, max_attempts,
                key, trace_context);
        inserted := true;
        return next;
        return;
    end loop;
end $$;

-- Enqueues many jobs of one queue in the caller's transaction; `keys` may hold nulls. The result is in
-- the order of the arguments.
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
    key_ttl interval default interval '24 hours',
    limit_key text default null,
    batch bigint default null
)
returns table (job_id bigint, inserted boolean)
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_variable
declare
    due timestamptz := coalesce(scheduled_at, statement_timestamp());
    expiry timestamptz := coalesce(
        expires_at, greatest(due, statement_timestamp()) + interval '30 days');
    job_ids bigint[] := array_fill(null::bigint, array[coalesce(cardinality(names), 0)]);
    new_ones boolean[] := array_fill(null::boolean, array[coalesce(cardinality(names), 0)]);
    i int;
begin
    if names is null or kwargs is null or cardinality(names) <> cardinality(kwargs)
       or (keys is not null and cardinality(keys) <> cardinality(names)) then
        raise exception 'names, kwargs and keys must have the same length'
            using errcode = 'LH002', constraint = 'LH002', hint = 'Pass one entry per job in each array.';
    end if;
    -- Anything else would give a job the key of another, or none.
    if array_ndims(names) > 1 or array_ndims(kwargs) > 1 or array_ndims(keys) > 1
       or array_lower(names, 1) <> 1 or array_lower(kwargs, 1) <> 1 or array_lower(keys, 1) <> 1 then
        raise exception 'names, kwargs and keys must be arrays of one dimension that begin at 1'
            using errcode = 'LH002', constraint = 'LH002', hint = 'Pass one entry per job in each array.';
    end if;
    perform leasehold_internal.check_options(tag, max_attempts, due, null);
    perform leasehold_internal.check_expiry(due, expires_at);
    priority := coalesce(priority, 0);
    for i in 1 .. cardinality(names) loop
        perform leasehold_internal.check_enqueue(names[i], kwargs[i], queue);
    end loop;
    if keys is null then
        return query
        insert into leasehold.job as j
            (name, kwargs, queue, priority, scheduled_at, expires_at, tag, max_attempts)
        select u.name, u.kwargs, queue, priority, due, expiry, tag, max_attempts
          from unnest(names, kwargs) as u (name, kwargs)
        returning j.id, true;
        return;
    end if;
    -- Every batch takes its keys in the same order, so that two batches cannot deadlock. The results
    -- are kept in arrays: a temporary table of the same name that the caller created before, with a
    -- trigger on it, would run the caller's code with the owner's rights.
    for i in select s.i from generate_subscripts(names, 1) as s (i)
             order by keys[s.i] collate "C" nulls last, s.i loop
        select e.job_id, e.inserted into job_id, inserted
          from leasehold.enqueue(names[i], kwargs[i], queue, priority, due, expiry, tag,
                                 max_attempts, keys[i], key_ttl) e;
        job_ids[i] := job_id;
        new_ones[i] := inserted;
    end loop;
    return query
    select u.job_id, u.inserted
      from unnest(job_ids, new_ones) with ordinality as u (job_id, inserted, place)
     order by u.place;
end $$;

-- Raises an error if the name, the kwargs or the queue of a job is invalid.
create or replace function leasehold_internal.check_enqueue(name text, kwargs jsonb, queue text)
returns void
language plpgsql immutable set search_path = leasehold, pg_temp as $$
begin
    if queue is null or queue !~ '^[a-z0-9][a-z0-9_.-]{0,63}$' then
        raise exception 'queue name % is not allowed', coalesce(quote_literal(queue), 'null')
            using errcode = 'LH001', constraint = 'LH001',
                  hint = 'Use 1 to 64 of a-z, 0-9, dot, dash and underscore, starting with a letter or digit.';
    end if;
    if name is null or name = '' or octet_length(name) > 200 then
        raise exception 'a job name has 1 to 200 bytes'
            using errcode = 'LH002', constraint = 'LH002',
                  hint = 'Name the job after what it does, such as email.send.';
    end if;
    if kwargs is null or jsonb_typeof(kwargs) <> 'object' then
        raise exception 'the arguments of a job are a JSON object'
            using errcode = 'LH002', constraint = 'LH002', hint = 'Wrap the value: {"value": ...}.';
    end if;
    perform leasehold_internal.check_kwargs_size(kwargs);
end $$;

-- Refuses kwargs of more than 64 KiB. The concatenation is a copy that is not compressed: a value that
-- comes from a table may be, and would then count a hundredth of its length.
create or replace function leasehold_internal.check_kwargs_size(kwargs jsonb)
returns void
language plpgsql immutable set search_path = leasehold, pg_temp as $$
begin
    if pg_column_size(kwargs || '{}') > 65536 then
        raise exception 'the arguments of a job take at most 64 KiB, these take % bytes',
            pg_column_size(kwargs || '{}')
            using errcode = 'LH002', constraint = 'LH002',
                  hint = 'Store the bulk elsewhere and enqueue a reference to it.';
    end if;
end $$;

-- The same for jobs stored by a plain INSERT or COPY. The table's own check counts compressed bytes, so
-- compressed kwargs come here.
create or replace function leasehold_internal.check_stored_kwargs()
returns trigger
language plpgsql set search_path = leasehold, pg_temp as $$
begin
    perform leasehold_internal.check_kwargs_size(new.kwargs);
    return null;
end $$;

-- After the row, as `default_expiry`.
do $$ begin
    if not exists (select from pg_trigger t
                    where t.tgrelid = 'leasehold.job'::regclass and t.tgname = 'job_stored_kwargs') then
        create trigger job_stored_kwargs after insert on leasehold.job
            for each row when (pg_column_compression(new.kwargs) is not null)
            execute function leasehold_internal.check_stored_kwargs();
    end if;
end $$;

-- The same for optional values. The table checks them too; this raises clearer errors.
create or replace function leasehold_internal.check_options(
    tag text, max_attempts int, scheduled_at timestamptz, key text
)
returns void
language plpgsql immutable set search_path = leasehold, pg_temp as $$
begin
    if key = '' or octet_length(key) > 200 then
        raise exception 'this idempotency key has % bytes', octet_length(key)
            using errcode = 'LH002', constraint = 'LH002',
                  hint = 'A key has 1 to 200 bytes; leave it out to enqueue without one, hash what is longer.';
    end if;
    if tag is null or octet_length(tag) > 200 then
        raise exception 'this tag has % bytes', coalesce(octet_length(tag)::text, 'no')
            using errcode = 'LH002', constraint = 'LH002', hint = 'A tag has at most 200 bytes; it may be empty.';
    end if;
    if max_attempts < 1 then
        raise exception 'a job cannot have % attempts', max_attempts
            using errcode = 'LH002', constraint = 'LH002',
                  hint = 'Give it at least one attempt, or null for what its queue says.';
    end if;
    if scheduled_at not between timestamptz '0001-01-01 00:00Z' and timestamptz '9999-01-01 00:00Z' then
        raise exception 'a job cannot be scheduled at %', scheduled_at
            using errcode = 'LH002', constraint = 'LH002', hint = 'Give it a date before the year 9999.';
    end if;
end $$;

-- Refuses an expiry that is not after the due time: the job could never start. Null is allowed: 30 days
-- after the due time.
create or replace function leasehold_internal.check_expiry(scheduled_at timestamptz, expires_at timestamptz)
returns void
language plpgsql stable set search_path = leasehold, pg_temp as $$
begin
    if expires_at <= scheduled_at then
        raise exception 'expires_at is %; it must be later than scheduled_at, which is %',
            expires_at, scheduled_at
            using errcode = 'LH002', constraint = 'LH002',
                  hint = 'Leave expires_at out and the job expires 30 days after its due time.';
    end if;
end $$;

-- The same for jobs stored by a plain INSERT or COPY. Called for rows whose `expires_at` is null or not
-- after the due time, and for later jobs with the column's own default, which counts from the insert: a
-- job that is due in 29 days would have one day to start.
create or replace function leasehold_internal.default_expiry()
returns trigger
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
begin
    if new.expires_at <> now() + interval '30 days' then
        perform leasehold_internal.check_expiry(new.scheduled_at, new.expires_at);
    end if;
    update leasehold.job j set expires_at = new.scheduled_at + interval '30 days' where j.id = new.id;
    return null;
end $$;

-- After the row, with a condition: COPY still writes whole pages, and a row with an expiry costs one
-- comparison. A trigger before the row would make COPY insert row by row. Created only once, because
-- CREATE TRIGGER waits for every writer. A new condition needs a migration that drops the trigger.
do $$ begin
    if not exists (select from pg_trigger t
                    where t.tgrelid = 'leasehold.job'::regclass and t.tgname = 'default_expiry') then
        create trigger default_expiry after insert on leasehold.job
            for each row when (new.expires_at is null or new.expires_at <= new.scheduled_at
                               or (new.scheduled_at > now()
                                   and new.expires_at = now() + interval '30 days'))
            execute function leasehold_internal.default_expiry();
    end if;
end $$;

-- Returns when a job expires whose due time moves to `due`: as long after it as before, and never sooner
-- than the old expiry. Otherwise a job that polls by snoozing would end 30 days after its enqueue.
create or replace function leasehold_internal.moved_expiry(
    expires_at timestamptz, scheduled_at timestamptz, due timestamptz
)
returns timestamptz
language sql stable as $$
    select case when isfinite(expires_at) and isfinite(scheduled_at)
                then greatest(expires_at, due + case
                         when expires_at <= scheduled_at then interval '30 days'
                         -- Compared before they are subtracted: the years between 4713 BC and 294276 AD
                         -- do not fit an interval.
                         when expires_at > greatest(scheduled_at, '0001-01-01 00:00Z') + interval '10 years'
                             then interval '10 years'
                         else expires_at - scheduled_at end)
                else expires_at end
$$;

-- Returns what two enqueues with one key must agree on. `jsonb` has one text for one value.
create or replace function leasehold_internal.request_hash(name text, kwargs jsonb)
returns bytea
language sql immutable set search_path = leasehold, pg_temp as $$
    select sha256(convert_to(name || E'\n' || kwargs::text, 'UTF8'))
$$;

-- Refuses a job whose name is reserved: an order to a mirror, or a job of the engine itself. Only a
-- role that may call the function that creates such a job may enqueue it.
--
-- The caller is the role that inserts. Inside a function that runs as the owner, such as `enqueue`, it
-- is the role of the session: the owner's own rights prove nothing about the caller. Producers enqueue
-- canaries, and no worker handles the self-test of `leasehold doctor`: the trigger leaves both out.
create or replace function leasehold_internal.check_reserved_name()
returns trigger
language plpgsql set search_path = leasehold, pg_temp as $$
declare
    owner name := (select pg_get_userbyid(c.relowner) from pg_class c where c.oid = tg_relid);
    caller name := current_user;
    -- A schedule has its own name, and enqueues jobs of another.
    wanted text := coalesce(to_jsonb(new) ->> 'job_name', new.name);
    is_order boolean := wanted like 'mirror.%.order';
begin
    if pg_has_role(current_user, owner, 'usage') then
        caller := case current_setting('role') when 'none' then session_user
                       else current_setting('role')::name end;
    end if;
    if exists (select from pg_proc p
                where p.pronamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace)
                  and p.proname = any (case when is_order then array['order_mirror']
                                            else array['apply_alarms', 'test_alarm'] end)
                  and has_function_privilege(caller, p.oid, 'execute')) then
        return null;
    end if;
    raise exception 'job name % is reserved, and role % may not enqueue it', quote_literal(wanted), caller
        using errcode = 'insufficient_privilege',
              hint = case when is_order
                  then 'Call leasehold_internal.order_mirror as a member of leasehold_operator.'
                  else 'Choose a name that does not begin with leasehold.' end;
end $$;

-- After the row and not before it: a trigger before would make COPY store its rows one by one. Created
-- only once: CREATE TRIGGER locks the table.
do $$ begin
    if not exists (select from pg_trigger t
                    where t.tgrelid = 'leasehold.job'::regclass and t.tgname = 'job_reserved_name') then
        create trigger job_reserved_name after insert on leasehold.job
            for each row
            when ((new.name like 'leasehold.%'
                   and new.name not in ('leasehold.canary', 'leasehold.self_test'))
                  or new.name like 'mirror.%.order')
            execute function leasehold_internal.check_reserved_name();
    end if;
    -- Check the writer too, of the name and of the kwargs: the role that fires the schedule may have more
    -- rights. That role is checked like every other one that enqueues.
    if not exists (select from pg_trigger t
                    where t.tgrelid = 'leasehold_internal.schedule'::regclass
                      and t.tgname = 'schedule_reserved_name') then
        create trigger schedule_reserved_name
            after insert or update of job_name, kwargs on leasehold_internal.schedule
            for each row
            when (new.job_name like 'leasehold.%' or new.job_name like 'mirror.%.order')
            execute function leasehold_internal.check_reserved_name();
    end if;
end $$;

-- Wake-ups: NOTIFY makes an idle worker look for jobs at once. It is a hint: a worker that misses it
-- polls.
--
-- NOTIFY takes a server-wide lock at commit, so producers that send one in every transaction wait for
-- each other's disk writes. They send it only while a worker is idle. An idle worker holds a shared
-- advisory lock per queue, on the session that listens: that writes no row, a transaction with an old
-- snapshot sees it, and it ends with the worker.

-- Sends the wake-up. Not when half of the server's notification queue is full: some listener does not
-- read, and a commit with NOTIFY fails once the queue is full. Not in PREPARE TRANSACTION, which
-- refuses a transaction with a NOTIFY.
create or replace function leasehold_internal.wake(queue text default 'default')
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select pg_notify('leasehold_wake', queue)
     where pg_notification_queue_usage() < 0.5
       -- Null at a commit that ends an extended query.
       and coalesce(current_query(), '') !~* 'prepare\s+transaction'
$$;

-- Runs at the commit of a transaction that stored jobs. Lock and unlock are one expression, because an
-- interrupt between two statements would leave the lock with the producer's session. Producers that run
-- this at the same moment mistake each other for an idle worker and send a needless wake-up. Runs as
-- owner: a producer needs no right on what it calls.
create or replace function leasehold_internal.wake_idle()
returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    key int := hashtext(new.queue collate "C");
begin
    if not (case when pg_try_advisory_lock(7306, key) then pg_advisory_unlock(7306, key)
                 else false end) then
        perform leasehold_internal.wake(new.queue);
    end if;
    return null;
end $$;

-- A worker calls this on the session that listens, before its last look: jobs of the queue that are
-- stored from now on wake it. It holds until `end_idle` or the end of the session. Returns false if a
-- producer checked at the same moment (call again), null if the queue is paused (`resume` wakes every
-- listening worker).
create or replace function leasehold_internal.begin_idle(queue text)
returns boolean
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
    select pg_try_advisory_lock_shared(7306, hashtext(begin_idle.queue collate "C"))
     where not exists (select from leasehold_internal.queue q
                        where q.name = begin_idle.queue and q.paused_at is not null)
$$;

-- Ends the announcement of `begin_idle`: producers need not wake a busy worker.
create or replace function leasehold_internal.end_idle(queue text)
returns boolean
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
    select pg_advisory_unlock_shared(7306, hashtext(queue collate "C"))
$$;

-- Returns the seconds until the next job of these names is due, at most `within` from now; null: none.
-- Infinity: the queue is paused. Reads up to 100 rows per priority: the given ones, `(at_deferred,
-- at_priority)` in the order of claims, and those between them. Where 100 jobs of other names come first, returns the time of the last of them: the
-- caller asks again then.
create or replace function leasehold_internal.next_due(
    queue text, names text[], at_deferred boolean[], at_priority int[], within interval
)
returns float8
language plpgsql stable security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_nestloop = on
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    found_at timestamptz;
begin
    if exists (select from leasehold_internal.queue q
                where q.name = next_due.queue and q.paused_at is not null) then
        return 'Infinity';
    end if;
    -- As in `claim_next`.
    with recursive hop (deferred, priority, next) as (
        select false, null::bigint, 1
        union all
        select h.deferred or (gap.priority is null and not cursor.here),
               case when gap.priority is not null then gap.priority
                    when cursor.here then next_due.at_priority[h.next] end,
               case when gap.priority is null and cursor.here then h.next + 1 else h.next end
          from hop h
         cross join lateral (
            select coalesce(next_due.at_deferred[h.next] = h.deferred, false) as here) cursor
          left join lateral (
            select j.priority from leasehold.job j
             where j.queue = next_due.queue and j.deferred = h.deferred
               and j.priority > coalesce(h.priority, -2147483649)
               and j.priority < case when cursor.here then next_due.at_priority[h.next]::bigint
                                     else 2147483648 end
             order by j.queue, j.deferred, j.priority, j.scheduled_at limit 1) gap on true
         where gap.priority is not null or cursor.here or not h.deferred
    )
    select min(due.scheduled_at) into found_at
      from hop h
     cross join lateral (
        select n.scheduled_at
          from (select j.scheduled_at, j.name, row_number() over () as position
                  from leasehold.job j
                 where j.queue = next_due.queue and j.deferred = h.deferred and j.priority = h.priority
                   and j.scheduled_at > statement_timestamp()
                   and j.scheduled_at <= statement_timestamp() + next_due.within
                   and not j.held
                 order by j.queue, j.deferred, j.priority, j.scheduled_at, +j.id limit 100) n
         where next_due.names is null or n.name = any (next_due.names) or n.position = 100
         limit 1) due;
    return extract(epoch from found_at - clock_timestamp());
end $$;

do $$ begin
    create type leasehold.claimed_job as (
        id bigint, name text, kwargs jsonb, priority int, scheduled_at timestamptz,
        attempts int, max_attempts int, lost_count smallint, lease_generation bigint,
        tag text, enqueued_at timestamptz, idempotency_key text, trace_context text,
        run_limit interval, lease interval, max_lost int, deferred boolean
    );
exception when duplicate_object then null;
end $$;

-- Returns the length of a lease, from a second to a week. By dates: an interval of months and days with
-- different signs has no length of its own.
create or replace function leasehold_internal.check_lease_length(lease interval)
returns interval
language plpgsql stable set search_path = leasehold, pg_temp as $$
begin
    if lease > interval '7 days'
       or statement_timestamp() + lease not between statement_timestamp() + interval '1 second'
                                                and statement_timestamp() + interval '7 days' then
        raise exception 'lease is %; it must be between 1 second and 7 days', lease
            using errcode = 'LH002', hint = 'Leave it out for the lease of the queue.';
    end if;
    return lease;
end $$;

-- Claims up to `up_to` jobs of one queue in the order in which they run: those that are not deferred first,
-- then by priority, due time, id.
--
-- `names` null: every name. `after_at` and `after_id` are cursors: where to read on in the priorities
-- `(at_deferred, at_priority)`, which ascend and lie between `(first_deferred, first_priority)` and
-- `(last_deferred, last_priority)`. With `gaps`, the priorities between them are found and read from their
-- start; without, they are left out.
-- Jobs that lost their worker `most_lost` times or more are left out; null: those on their last chance.
--
-- One statement does it. The recursive part hops from one priority to the next in the index, and the
-- outer LIMIT pulls rows one by one: nothing is hopped to, read or locked beyond what is taken. That
-- is how the executor works, not what SQL promises; tests look at the plan and at the order.
-- Rows that another claimer has locked are skipped, and the write checks again that they are free. It
-- goes by row address: a join on ids under a LIMIT tempts the planner into reading the whole table.
--
-- The generation is drawn after the rows are locked: drawn before, a claim that was held up could
-- give a job a lower one than a claim that overtook it, and a system that compares generations would
-- trust the former holder. Jobs that never lost a worker share one lease, the others a second one: a
-- fresh job is never under one lease with a job that may have killed its worker.
create or replace function leasehold_internal.claim_next(
    worker text, queue text, up_to int, lease interval, claim_id uuid, names text[],
    most_lost int, first_deferred boolean, first_priority int, last_deferred boolean, last_priority int,
    gaps boolean, at_deferred boolean[], at_priority int[], after_at timestamptz[], after_id bigint[]
)
returns setof leasehold.claimed_job
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_tidscan = on set enable_nestloop = on
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set enable_sort = off set enable_material = off set jit = off
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_variable
declare
    settings leasehold_internal.queue := leasehold_internal.queue_settings(queue);
    length interval := coalesce(leasehold_internal.check_lease_length(lease), settings.lease);
    chances int := coalesce(most_lost, greatest(settings.max_lost - 1, 1));
begin
    if settings.paused_at is not null or coalesce(up_to, 0) <= 0 then
        return;
    end if;
    return query
    with recursive hop (deferred, priority, next, known) as (
        select first_deferred, null::bigint, 1, 0
        union all
        -- To the next priority without a cursor, else to the next cursor, else to the deferred jobs.
        select h.deferred or (gap.priority is null and not cursor.here),
               case when gap.priority is not null then gap.priority
                    when cursor.here then at_priority[h.next] end,
               case when gap.priority is null and cursor.here then h.next + 1 else h.next end,
               case when gap.priority is null and cursor.here then h.next else 0 end
          from hop h
         cross join lateral (select coalesce(at_deferred[h.next] = h.deferred, false) as here) cursor
          left join lateral (
            -- Bounds on the priority alone: an index scan does not stop where the second column of a row
            -- comparison fails.
            select j.priority from leasehold.job j
             where j.queue = claim_next.queue and j.deferred = h.deferred
               and j.priority > coalesce(h.priority, case when h.deferred = first_deferred
                                                          then first_priority::bigint - 1
                                                          else -2147483649 end)
               and j.priority < case when not gaps then -2147483649
                                     when cursor.here then at_priority[h.next]::bigint
                                     when h.deferred = last_deferred then last_priority::bigint + 1
                                     else 2147483648 end
             order by j.queue, j.deferred, j.priority, j.scheduled_at
             limit 1) gap on true
         where gap.priority is not null or cursor.here or (last_deferred and not h.deferred)
    ), picked as materialized (
        select due.row_at, due.lost
          from hop h
         cross join lateral (
            select j.ctid as row_at, j.lost_count > 0 as lost
              from leasehold.job j
             where j.queue = claim_next.queue and j.deferred = h.deferred and j.priority = h.priority
               and (j.scheduled_at, +j.id)
                   > (coalesce(after_at[h.known], '-infinity'), coalesce(after_id[h.known], 0))
               and j.scheduled_at <= statement_timestamp()
               and j.expires_at > statement_timestamp()
               and not j.held and j.lost_count < chances
               -- The OR keeps this a hashed subplan; `= any (names)` compares with each name in turn.
               and (names is null or j.name in (select u.name from unnest(names) as u (name)))
             order by j.queue, j.deferred, j.priority, j.scheduled_at, +j.id
               for update skip locked) due
         limit least(up_to, 10000)
    ), fresh as materialized (
        select leasehold_internal.next_generation() as generation
          from (select count(*) as jobs from picked p where not p.lost) n where n.jobs > 0
    ), lost as materialized (
        select leasehold_internal.next_generation() as generation
          from (select count(*) as jobs from picked p where p.lost) n where n.jobs > 0
    ), claimed as (
        update leasehold.job j
           set held = true, attempts = j.attempts + 1,
               lease_generation = case when j.lost_count > 0 then (select l.generation from lost l)
                                       else (select f.generation from fresh f) end
         where j.ctid = any (array(select p.row_at from picked p)) and not j.held
        returning j.*
    ), leased as (
        insert into leasehold_internal.lease
            (lease_generation, lease_expires_at, lease, keep_history, queue, claimed_by, claim_id, job_ids)
        select c.lease_generation, statement_timestamp() + length, length, settings.keep_history,
               claim_next.queue, worker, claim_next.claim_id, array_agg(c.id)
          from claimed c group by c.lease_generation
    )
    select c.id, c.name, c.kwargs, c.priority, c.scheduled_at, c.attempts,
           coalesce(c.max_attempts, settings.max_attempts), c.lost_count, c.lease_generation,
           c.tag, c.enqueued_at, c.idempotency_key, c.trace_context, settings.run_limit, length,
           settings.max_lost, c.deferred
      from claimed c order by c.deferred, c.priority, c.scheduled_at, c.id;
end $$;

-- Claims one job whose worker died, alone under its own lease: one that `least_lost` workers or more
-- died under; null: one on its last chance, which one more loss would bury.
create or replace function leasehold_internal.claim_alone(
    worker text, queue text, lease interval, claim_id uuid, names text[], least_lost int
)
returns setof leasehold.claimed_job
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_tidscan = on set enable_nestloop = on
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set enable_sort = off set enable_material = off set jit = off
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_variable
declare
    settings leasehold_internal.queue := leasehold_internal.queue_settings(queue);
    length interval := coalesce(leasehold_internal.check_lease_length(lease), settings.lease);
    losses int := coalesce(least_lost, settings.max_lost - 1);
begin
    if settings.paused_at is not null then
        return;
    end if;
    return query
    with picked as materialized (
        select j.ctid as row_at
          from leasehold.job j
         where j.queue = claim_alone.queue and j.lost_count > 0 and j.lost_count >= losses
           and (names is null or j.name in (select u.name from unnest(names) as u (name)))
           and j.scheduled_at <= statement_timestamp()
           and j.expires_at > statement_timestamp()
           and not j.held
         order by j.queue, j.priority, j.scheduled_at, +j.id
         limit 1
           for update skip locked
    ), numbered as materialized (
        select p.row_at, leasehold_internal.next_generation() as generation from picked p
    ), claimed as (
        update leasehold.job j
           set held = true, lease_generation = n.generation, attempts = j.attempts + 1
          from numbered n
         where j.ctid = n.row_at and not j.held
        returning j.*
    ), leased as (
        insert into leasehold_internal.lease
            (lease_generation, lease_expires_at, lease, keep_history, queue, claimed_by, claim_id, job_ids)
        select c.lease_generation, statement_timestamp() + length, length, settings.keep_history,
               claim_alone.queue, worker, claim_alone.claim_id, array[c.id]
          from claimed c
    )
    select c.id, c.name, c.kwargs, c.priority, c.scheduled_at, c.attempts,
           coalesce(c.max_attempts, settings.max_attempts), c.lost_count, c.lease_generation,
           c.tag, c.enqueued_at, c.idempotency_key, c.trace_context, settings.run_limit, length,
           settings.max_lost, c.deferred
      from claimed c;
end $$;

-- Claims up to `up_to` jobs one by one, each under its own lease, in the order of `claim_next`. For a
-- queue in which a claim was refused: a job that a trigger or a constraint does not let be claimed is
-- left out, with a warning of the server, and does not block the jobs behind it. `first_deferred`: only
-- deferred jobs. Stops after 5 s.
create or replace function leasehold_internal.claim_around(
    worker text, queue text, up_to int, lease interval, claim_id uuid, names text[],
    first_deferred boolean default false
)
returns setof leasehold.claimed_job
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_variable
declare
    settings leasehold_internal.queue := leasehold_internal.queue_settings(queue);
    candidate record;
    taken int := 0;
    now_taken int;
begin
    if settings.paused_at is not null then
        return;
    end if;
    for candidate in
        select j.id, j.deferred, j.priority, j.scheduled_at
          from leasehold.job j
         where j.queue = claim_around.queue and j.deferred >= first_deferred
           and j.scheduled_at <= statement_timestamp()
           and j.expires_at > statement_timestamp()
           and not j.held and j.lost_count < greatest(settings.max_lost - 1, 1)
           and (names is null or j.name in (select u.name from unnest(names) as u (name)))
         order by j.queue, j.deferred, j.priority, j.scheduled_at, +j.id
    loop
        exit when taken >= up_to or clock_timestamp() > statement_timestamp() + interval '5 seconds';
        begin
            return query
            select * from leasehold_internal.claim_next(
                worker, queue, 1, lease, claim_id, names, null, candidate.deferred, candidate.priority,
                candidate.deferred, candidate.priority, false, array[candidate.deferred],
                array[candidate.priority], array[candidate.scheduled_at], array[candidate.id - 1]);
            get diagnostics now_taken = row_count;
            taken := taken + now_taken;
        exception when others then
            raise warning 'job % of queue % could not be claimed: %', candidate.id, queue, sqlerrm;
        end;
    end loop;
end $$;

-- Returns the priority of the first due job that lost its worker `least_lost` times or more;
-- `least_lost` null: that is on its last chance. Null: there is none. A worker calls it before it stops
-- claiming and waits for its running jobs to end: nothing else must run in the process that claims such
-- a job.
create or replace function leasehold_internal.lost_priority(queue text, names text[], least_lost int default null)
returns int
language plpgsql stable security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_variable
declare
    settings leasehold_internal.queue;
    losses int;
begin
    select * into settings from leasehold_internal.queue q where q.name = queue;
    if settings.paused_at is not null then
        return null;
    end if;
    -- A queue without a row has the defaults: three losses bury.
    losses := coalesce(least_lost, settings.max_lost - 1, 2);
    return (
        select j.priority from leasehold.job j
         where j.queue = lost_priority.queue and j.lost_count > 0 and j.lost_count >= losses
           and (names is null or j.name in (select u.name from unnest(names) as u (name)))
           and j.scheduled_at <= statement_timestamp()
           and j.expires_at > statement_timestamp()
           and not j.held
         order by j.queue, j.priority, j.scheduled_at, +j.id
         limit 1);
end $$;

-- Returns whether a queue has deferred jobs, due or not. A worker keeps a share of its slots for them.
create or replace function leasehold_internal.has_deferred(queue text)
returns boolean
language plpgsql stable security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_variable
begin
    return exists (select from leasehold.job j
                    where j.queue = has_deferred.queue and j.deferred
                    order by j.queue, j.deferred, j.priority limit 1);
end $$;

-- Claims jobs for consumers in any language: reclaims expired leases first, then claims from the start
-- of the order. `names` null: every name. One call returns one lease: a job whose worker died comes
-- alone, after every more urgent job and before the others of its priority.
create or replace function leasehold.claim(
    worker text,
    queue text default 'default',
    claim_size int default 25,
    lease interval default null,
    names text[] default null,
    claim_id uuid default null
)
returns setof leasehold.claimed_job
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_variable
declare
    lost_at int;
begin
    -- The most jobs that one claim takes, as the queue says: one lost worker loses them all.
    claim_size := least(coalesce(claim_size, 2147483647), (leasehold_internal.queue_settings(queue)).claim_size);
    perform leasehold_internal.reclaim_leases(100);
    begin
        lost_at := leasehold_internal.lost_priority(queue, names, 1);
        if lost_at is not null then
            if lost_at > -2147483648 then
                return query select * from leasehold_internal.claim_next(
                    worker, queue, claim_size, lease, claim_id, names, 1, false, -2147483648, false,
                    lost_at - 1, true, '{}', '{}', '{}', '{}');
                if found then
                    return;
                end if;
            end if;
            return query select * from leasehold_internal.claim_alone(worker, queue, lease, claim_id, names, 1);
            if found then
                return;
            end if;
        end if;
        return query select * from leasehold_internal.claim_next(
            worker, queue, claim_size, lease, claim_id, names, 1, false, -2147483648, true, 2147483647, true,
            '{}', '{}', '{}', '{}');
    exception when others then
        -- Bad arguments, conflicts and a server in need are the caller's to know. What is left is a job
        -- that a trigger or a constraint refuses: it must not block the jobs behind it.
        if sqlstate ~ '^(LH|08|25|40|42|53|54|55|57|58|XX)' then
            raise;
        end if;
        return query select * from leasehold_internal.claim_around(worker, queue, least(claim_size, 1), lease, claim_id, names);
    end;
end $$;

-- Returns the jobs of a claim whose reply was lost, if it took place: those of each lease together.
create or replace function leasehold.recover_claim(worker text, claim_id uuid)
returns setof leasehold.claimed_job
language sql stable security definer
set search_path = leasehold, pg_temp
set enable_nestloop = on set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off as $$
    select j.id, j.name, j.kwargs, j.priority, j.scheduled_at, j.attempts,
           coalesce(j.max_attempts, q.max_attempts), j.lost_count, j.lease_generation,
           j.tag, j.enqueued_at, j.idempotency_key, j.trace_context, q.run_limit, l.lease,
           q.max_lost, j.deferred
      from leasehold_internal.lease l
      join leasehold_internal.queue q on q.name = l.queue
     -- `offset 0` keeps this a look-up per lease.
     cross join lateral (
        select held.* from leasehold.job held
         where held.id = any (l.job_ids) and held.held and held.lease_generation = l.lease_generation
        offset 0) j
     where l.claimed_by = worker and l.claim_id = recover_claim.claim_id and l.ended_at is null
     order by l.lease_generation, j.deferred, j.priority, j.scheduled_at, j.id
$$;

-- Renews the leases of one worker. Returns one state per given generation:
--   renewed   held for another lease length
--   busy      another transaction has locked the lease; ask again soon
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
        select l.lease_generation from leasehold_internal.lease l
         -- `coalesce`: see `settle_after`.
         where l.lease_generation = any (generations) and coalesce(l.ended_at, 'infinity') = 'infinity'
         order by l.lease_generation
           for update skip locked
    ), renewed as (
        update leasehold_internal.lease l
           set lease_expires_at = statement_timestamp() + l.lease
         where l.lease_generation = any (array(select m.lease_generation from mine m))
           and coalesce(l.ended_at, 'infinity') = 'infinity'
        returning l.lease_generation
    )
    select asked.generation,
           case when r.lease_generation is not null then 'renewed'
                when l.lease_generation is null or l.lost_ids <> '{}' then 'lost'
                when l.ended_at is not null then 'ended'
                else 'busy' end
      from unnest(generations) as asked (generation)
      left join renewed r on r.lease_generation = asked.generation
      left join leasehold_internal.lease l on l.lease_generation = asked.generation;
end $$;

-- Returns which of these running jobs have a cancel request.
create or replace function leasehold_internal.cancel_requests(ids bigint[])
returns setof bigint
language sql stable security definer set search_path = leasehold, pg_temp set enable_seqscan = off as $$
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

-- Ends a lease when none of its jobs is held any more. Skips a lease that another transaction has
-- locked: that transaction ends it, or the next expiry does. `completed`: how many of its jobs the caller
-- has just completed. When those are all of them, nothing is looked up. Internal: a caller's word must
-- not end a lease whose jobs run.
create or replace function leasehold_internal.settle_after(generation bigint, completed bigint)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
begin
    update leasehold_internal.lease
       set ended_at = statement_timestamp()
     where lease_generation = (
        select l.lease_generation from leasehold_internal.lease l
         where l.lease_generation = generation
           -- Not `is null`: that would offer the index of all open leases, in place of the primary key.
           and coalesce(l.ended_at, 'infinity') = 'infinity'
           and (cardinality(l.job_ids) = completed
                or not exists (select from leasehold.job j
                                where j.id = any (l.job_ids)
                                  and j.lease_generation = generation and j.held))
           for update skip locked);
end $$;

-- The same for callers that have completed none. `just_finished` is not read; it stays because functions
-- of one contract keep their arguments.
create or replace function leasehold_internal.settle(generation bigint, just_finished bigint[] default null)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select leasehold_internal.settle_after(generation, 0)
$$;

-- Completes jobs of one lease. The generation is the fence: once a lease has expired, the old
-- worker matches no row and cannot touch the newer attempt. Returns the ids it completed; an id
-- that is missing was lost, or completed before.
-- It leaves the lease row alone: the transaction of a handler stays open, and a lock on the row would
-- keep the worker from renewing.
-- Rows are read by the primary key and by nothing else, so they are locked in the order of the ids:
-- a batch that is sent again while the first try still runs waits for it instead of deadlocking.
create or replace function leasehold_internal.complete_rows(ids bigint[], generation bigint)
returns setof bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_bitmapscan = off set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    keeping boolean;
    holder text;
    since timestamptz;
begin
    select l.keep_history, l.claimed_by, l.claimed_at into keeping, holder, since
      from leasehold_internal.lease l where l.lease_generation = generation;
    if keeping then
        return query
        with finished as (
            delete from leasehold.job j
             where j.id = any (ids) and j.lease_generation = generation and j.held
            returning j.id, j.queue, j.name, j.tag, j.attempts, j.enqueued_at, j.kwargs, j.priority,
                      j.idempotency_key, j.max_attempts, j.scheduled_at, j.errors
        ), filed as (
            insert into leasehold_internal.history
                (outcome, queue, lease_generation, claimed_by, claimed_at, job_ids, names, tags,
                 attempts, enqueued_at, kwargs, priorities, keys, max_attempts, scheduled_at, errors)
            select 'completed', min(f.queue), generation, holder, since, array_agg(f.id),
                   array_agg(f.name), array_agg(f.tag), array_agg(f.attempts),
                   array_agg(f.enqueued_at), array_agg(f.kwargs),
                   -- An array in which every job has the default is not worth its bytes. The inner
                   -- queries run only when their condition is true: most jobs do not pay for them.
                   case when bool_or(f.priority <> 0)
                        then (select array_agg(g.priority) from finished g) end,
                   case when count(f.idempotency_key) > 0
                        then (select array_agg(g.idempotency_key) from finished g) end,
                   case when count(f.max_attempts) > 0
                        then (select array_agg(g.max_attempts) from finished g) end,
                   case when bool_or(greatest(f.scheduled_at, '0001-01-01 00:00Z') - interval '1 second' > f.enqueued_at)
                        then (select array_agg(g.scheduled_at) from finished g) end,
                   case when count(f.errors) > 0
                        then (select array_agg(g.errors) from finished g) end
              from finished f having count(*) > 0
        )
        select f.id from finished f;
    else
        -- Without history, only this count shows that the queue is alive.
        return query
        with finished as (
            delete from leasehold.job j
             where j.id = any (ids) and j.lease_generation = generation and j.held
            returning j.id, j.queue, j.tag
        ), counted as (
            insert into leasehold_internal.tally (queue, tag, what, n)
            select f.queue, f.tag, 'completed', count(*) from finished f group by f.queue, f.tag
        )
        select f.id from finished f;
    end if;
end $$;

-- Completes jobs of one lease, and ends the lease when it has none left. Returns the ids it completed.
create or replace function leasehold.complete_many(ids bigint[], generation bigint)
returns setof bigint
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    completed bigint;
begin
    return query select leasehold_internal.complete_rows(ids, generation);
    get diagnostics completed = row_count;
    perform leasehold_internal.settle_after(generation, completed);
end $$;

-- Completes one job; false: the lease was lost, nothing changed.
create or replace function leasehold.complete(job_id bigint, generation bigint, result jsonb default null)
returns boolean
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select exists (select from leasehold.complete_many(array[job_id], generation))
$$;

-- Moves cancelled jobs to the history.
create or replace function leasehold_internal.cancel_rows(ids bigint[], only_held boolean, generation bigint, why text)
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
    insert into leasehold_internal.history
        (outcome, queue, lease_generation, claimed_by, claimed_at, job_ids, names, tags, attempts,
         enqueued_at, kwargs, note, priorities, keys, max_attempts, scheduled_at, errors)
    select 'cancelled', g.queue, g.lease_generation, l.claimed_by, l.claimed_at, array[g.id],
           array[g.name], array[g.tag], array[g.attempts], array[g.enqueued_at], array[g.kwargs],
           left(why, 4096), array[g.priority],
           case when g.idempotency_key is not null then array[g.idempotency_key] end,
           case when g.max_attempts is not null then array[g.max_attempts] end,
           array[g.scheduled_at], case when g.errors is not null then array[g.errors] end
      from gone g
      left join leasehold_internal.lease l on only_held and l.lease_generation = g.lease_generation;
    get diagnostics cancelled = row_count;
    return cancelled;
end $$;

-- Returns a wait that a due time can hold: from none to ten years. With a date beyond the calendar the
-- statement would fail each time, and the job could never be let go.
create or replace function leasehold_internal.clamp_wait(wait interval)
returns interval
language sql immutable as $$
    select least(greatest(wait, interval '0'), interval '10 years')
$$;

-- Snoozes a job. Not a failure: the attempt does not count. Returns false if the lease was lost.
create or replace function leasehold.snooze(job_id bigint, generation bigint, wait interval)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    unwanted boolean;
    due timestamptz := statement_timestamp() + leasehold_internal.clamp_wait(wait);
begin
    -- Lock first: a job with a fresh cancel request must not be snoozed.
    select j.cancel_requested into unwanted from leasehold.job j
     where j.id = job_id and j.lease_generation = generation and j.held
       for update;
    if not found then
        return false;
    end if;
    if unwanted then
        perform leasehold_internal.cancel_rows(array[job_id], true, generation, 'cancelled while it snoozed');
    else
        update leasehold.job j
           set held = false, lost_count = 0, attempts = j.attempts - 1, deferred = false, scheduled_at = due,
               expires_at = leasehold_internal.moved_expiry(j.expires_at, j.scheduled_at, due)
         where j.id = job_id and j.lease_generation = generation and j.held;
    end if;
    perform leasehold_internal.settle(generation);
    return true;
end $$;

-- Defers jobs of one lease, many at once. They return behind all jobs of their queue that are not deferred:
-- however many of them are due, a claim has room for the others. Priority and limits stay as they are.
-- `counted`: the attempt was a failure; it stays counted, and the last one buries the job. Otherwise it does
-- not count, and such jobs end when an attempt succeeds, or when they expire. Returns each job that the lease
-- still held, with 'deferred', 'buried' or 'cancelled'. Internal.
create or replace function leasehold_internal.defer_many(
    ids bigint[], generation bigint, waits float8[], reasons text[], counted boolean[]
)
returns table (job_id bigint, outcome text)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_nestloop = on set enable_bitmapscan = off set enable_seqscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    unwanted bigint[];
    spent bigint[];
    holder text;
    since timestamptz;
    most int;
begin
    select l.claimed_by, l.claimed_at, (leasehold_internal.queue_settings(l.queue)).max_attempts
      into holder, since, most
      from leasehold_internal.lease l where l.lease_generation = generation;
    -- Lock first, in the order of the ids: see `snooze`.
    select coalesce(array_agg(mine.id) filter (where mine.cancel_requested), '{}'),
           coalesce(array_agg(mine.id) filter (where not mine.cancel_requested
                                                 and mine.attempts >= coalesce(mine.max_attempts, most)), '{}')
      into unwanted, spent
      from (select j.id, j.cancel_requested, j.attempts, j.max_attempts from leasehold.job j
             where j.id = any (ids) and j.lease_generation = generation and j.held
             order by j.id for update) mine;
    if unwanted <> '{}' then
        perform leasehold_internal.cancel_rows(unwanted, true, generation, 'cancelled while it was deferred');
        return query select u.id, 'cancelled' from unnest(unwanted) as u (id);
    end if;
    if spent <> '{}' then
        for job_id, outcome in
            select o.id, o.why from unnest(ids, reasons, counted) as o (id, why, counted)
             where o.counted and o.id = any (spent)
        loop
            perform leasehold_internal.bury_rows(array[job_id], generation, 'exhausted', outcome, holder);
            outcome := 'buried';
            return next;
        end loop;
    end if;
    return query
    update leasehold.job j
       set held = false, lost_count = 0, deferred = true,
           attempts = j.attempts - (case when o.counted then 0 else 1 end),
           scheduled_at = statement_timestamp()
               + make_interval(secs => least(greatest(o.wait, 0), 315360000)),
           last_error = coalesce(left(o.why, 4096), j.last_error),
           errors = case when o.counted
                         then leasehold_internal.add_error(j.errors, j.attempts, holder, since, o.why)
                         else j.errors end
      from unnest(ids, waits, reasons, counted) as o (id, wait, why, counted)
     -- An array of one, not `=`: for a plain join the planner may read every job in the order of ids.
     where j.id = any (array[o.id]) and j.lease_generation = generation and j.held
    returning j.id, 'deferred';
    perform leasehold_internal.settle(generation);
end $$;

-- Defers one job. Not a failure: the attempt does not count. Returns false if the lease was lost.
create or replace function leasehold.defer(job_id bigint, generation bigint, wait interval, why text default null)
returns boolean
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select exists (select from leasehold_internal.defer_many(
        array[job_id], generation,
        array[extract(epoch from leasehold_internal.clamp_wait(wait))::float8], array[why], array[false]))
$$;

-- Releases jobs that were not run: the attempt does not count, and the time that they were held does
-- not count towards their expiry. A deferred job stays deferred: nothing was learned about it. Returns the
-- ids it released.
create or replace function leasehold.release(ids bigint[], generation bigint)
returns setof bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    unwanted bigint[];
    since timestamptz;
begin
    -- Lock first, in the order of the ids: see `snooze`.
    select coalesce(array_agg(mine.id) filter (where mine.cancel_requested), '{}') into unwanted
      from (select j.id, j.cancel_requested from leasehold.job j
             where j.id = any (ids) and j.lease_generation = generation and j.held
             order by j.id for update) mine;
    perform leasehold_internal.cancel_rows(unwanted, true, generation, 'cancelled before it ran');
    select l.claimed_at into since from leasehold_internal.lease l where l.lease_generation = generation;
    return query
    update leasehold.job j
       set held = false, attempts = j.attempts - 1,
           expires_at = case when j.expires_at < timestamptz '9999-01-01 00:00Z'
                             -- `greatest` ignores a null.
                             then greatest(j.expires_at, j.expires_at + (statement_timestamp() - since))
                             else j.expires_at end
     where j.id = any (ids) and j.lease_generation = generation and j.held
    returning j.id;
    -- The jobs are ready, and this worker is stopping.
    perform leasehold_internal.wake(l.queue) from leasehold_internal.lease l where l.lease_generation = generation;
    perform leasehold_internal.settle(generation);
end $$;

-- Ends a job of the caller's lease as cancelled. Returns false if the lease was lost.
create or replace function leasehold.finish_cancelled(job_id bigint, generation bigint, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    cancelled int := leasehold_internal.cancel_rows(array[job_id], true, generation, why);
begin
    perform leasehold_internal.settle(generation);
    return cancelled > 0;
end $$;

-- Returns what became of jobs whose finish had no reply:
--   held       not written; finish again
--   finished   written by this generation
--   lost       an expiry took the job away before, or the lease is too old to know
create or replace function leasehold_internal.explain_finish(ids bigint[], generation bigint)
returns table (job_id bigint, state text)
language sql stable security definer
set search_path = leasehold, pg_temp set enable_nestloop = on set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set enable_material = off as $$
    select asked.id,
           case when j.held and j.lease_generation = generation then 'held'
                when asked.id = any (l.job_ids) and not asked.id = any (l.lost_ids) then 'finished'
                else 'lost' end
      from unnest(ids) as asked (id)
      left join leasehold.job j on j.id = asked.id
      left join leasehold_internal.lease l on l.lease_generation = generation
$$;

-- Returns how this generation ended a job, for a worker whose finish had no reply and for which
-- `explain_finish` returned 'finished': 'completed', 'cancelled', 'buried', or 'waiting' for a job that
-- was put back.
create or replace function leasehold_internal.ended_as(job_id bigint, generation bigint)
returns text
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    since timestamptz;
    keeping boolean;
    filed text;
begin
    select l.claimed_at, l.keep_history into since, keeping
      from leasehold_internal.lease l where l.lease_generation = generation;
    select h.outcome into filed from leasehold_internal.history h
     where h.finished_at >= since and h.lease_generation = generation and h.job_ids @> array[job_id]
     limit 1;
    if filed is not null then
        return filed;
    end if;
    if exists (select from leasehold_internal.dead_job d where d.id = job_id and d.lease_generation = generation) then
        return 'buried';
    end if;
    -- Without history a completion leaves no trace; a job that was put back and has finished since
    -- looks the same.
    if keeping or exists (select from leasehold.job j where j.id = job_id) then
        return 'waiting';
    end if;
    return 'completed';
end $$;

-- Completes jobs that are not claimed yet: their work was done elsewhere, in the caller's transaction.
-- A job that a worker holds is left to it; its handler finds nothing to do. Returns how many were
-- completed.
create or replace function leasehold.complete_waiting(ids bigint[])
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_bitmapscan = off set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    completed int;
begin
    -- Never wait for a lock here: a locked row belongs to the transaction that locked it.
    with picked as materialized (
        select j.id from leasehold.job j
         where j.id = any (ids) and not j.held order by j.id for update skip locked
    ), finished as (
        delete from leasehold.job j
         where j.id = any (array(select p.id from picked p)) and not j.held
        returning j.id, j.queue, j.name, j.tag, j.attempts, j.enqueued_at, j.kwargs, j.priority,
                  j.idempotency_key, j.max_attempts, j.scheduled_at, j.errors
    ), filed as (
        insert into leasehold_internal.history
            (outcome, queue, lease_generation, job_ids, names, tags, attempts, enqueued_at, kwargs,
             priorities, keys, max_attempts, scheduled_at, errors)
        select 'completed', f.queue, 0, array_agg(f.id), array_agg(f.name), array_agg(f.tag),
               array_agg(f.attempts), array_agg(f.enqueued_at), array_agg(f.kwargs),
               case when bool_or(f.priority <> 0) then array_agg(f.priority) end,
               case when count(f.idempotency_key) > 0 then array_agg(f.idempotency_key) end,
               case when count(f.max_attempts) > 0 then array_agg(f.max_attempts) end,
               case when bool_or(greatest(f.scheduled_at, '0001-01-01 00:00Z') - interval '1 second' > f.enqueued_at)
                    then array_agg(f.scheduled_at) end,
               case when count(f.errors) > 0 then array_agg(f.errors) end
          from finished f group by f.queue
        having coalesce((select q.keep_history from leasehold_internal.queue q where q.name = f.queue), true)
    ), counted as (
        insert into leasehold_internal.tally (queue, tag, what, n)
        select f.queue, f.tag, 'completed', count(*) from finished f group by f.queue, f.tag
        having not coalesce((select q.keep_history from leasehold_internal.queue q where q.name = f.queue), true)
    )
    select count(*) into completed from finished;
    return completed;
end $$;

-- Adds the failure of one attempt to those of earlier ones and keeps the last ten. Each text is cut to
-- 1,000 characters; `last_error` holds up to 4,096 of the last one.
create or replace function leasehold_internal.add_error(
    errors jsonb, attempt int, worker text, claimed_at timestamptz, error text
)
returns jsonb
language sql stable set search_path = leasehold, pg_temp as $$
    select case when jsonb_array_length(earlier.list) >= 10 then earlier.list - 0 else earlier.list end
           || jsonb_build_array(jsonb_build_object(
                'at', statement_timestamp(), 'attempt', attempt, 'worker', worker,
                'ms', round(extract(epoch from statement_timestamp() - claimed_at) * 1000),
                'error', left(error, 1000)))
      -- A list that was damaged by hand must not keep a job from being let go.
      from (select case when jsonb_typeof(errors) = 'array' then errors else '[]' end) as earlier (list)
$$;

-- Moves jobs out of the hot table for good. `why` is one of `dead_job.cause`. Internal: the caller
-- has checked the fence and holds the row lock. Columns move by name: those that only one of the two
-- tables has are named here.
create or replace function leasehold_internal.bury_rows(ids bigint[], generation bigint, why text, error text, worker text)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    buried int;
    since timestamptz;
begin
    select l.claimed_at into since from leasehold_internal.lease l where l.lease_generation = generation;
    with dead as (
        delete from leasehold.job j
         where j.id = any (ids) and j.lease_generation = generation and j.held
        returning j.*
    ), counted as (
        insert into leasehold_internal.tally (queue, tag, what, n)
        select d.queue, d.tag, w.what, count(*)
          from dead d cross join unnest(case when why = 'lost' then '{buried,lost}'::text[]
                                             else '{buried}' end) as w (what)
         group by d.queue, d.tag, w.what
    )
    insert into leasehold_internal.dead_job
    select x.* from dead d cross join lateral jsonb_populate_record(
        null::leasehold_internal.dead_job, to_jsonb(d) || jsonb_build_object(
            'died_at', statement_timestamp(), 'cause', why, 'claimed_by', worker,
            'lost_count', d.lost_count + (case when why = 'lost' then 1 else 0 end),
            'last_error', left(coalesce(error, d.last_error), 4096),
            'errors', case when error is null then d.errors
                else leasehold_internal.add_error(d.errors, d.attempts, worker, since, error) end)) x;
    get diagnostics buried = row_count;
    return buried;
end $$;

-- Records that an attempt failed. The job is retried after `after` (default: the queue's backoff), or
-- buried when it has no attempt left. Returns 'retry' with the wait, 'buried', 'cancelled' or 'lost'.
-- `blocking` false: a job that another transaction has locked is left alone, and the outcome is 'busy'.
create or replace function leasehold_internal.record_failure(
    job_id bigint, generation bigint, error text, after interval default null,
    blocking boolean default true
)
returns table (outcome text, next_in interval)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    mine leasehold.job;
    settings leasehold_internal.queue;
    holder text;
    since timestamptz;
    due timestamptz;
    expiry timestamptz;
begin
    if blocking then
        select * into mine from leasehold.job j
         where j.id = job_id and j.lease_generation = generation and j.held
           for update;
    else
        select * into mine from leasehold.job j
         where j.id = job_id and j.lease_generation = generation and j.held
           for update skip locked;
    end if;
    if not found then
        outcome := case when not blocking and exists (
                            select from leasehold.job j
                             where j.id = job_id and j.lease_generation = generation and j.held)
                        then 'busy' else 'lost' end;
        return next;
        return;
    end if;
    settings := leasehold_internal.queue_settings(mine.queue);
    select l.claimed_by, l.claimed_at into holder, since
      from leasehold_internal.lease l where l.lease_generation = generation;
    if mine.cancel_requested then
        perform leasehold_internal.cancel_rows(array[job_id], true, generation, error);
        outcome := 'cancelled';
    elsif mine.attempts >= coalesce(mine.max_attempts, settings.max_attempts) then
        perform leasehold_internal.bury_rows(array[job_id], generation, 'exhausted', error, holder);
        outcome := 'buried';
    else
        next_in := leasehold_internal.clamp_wait(coalesce(
            after, leasehold_internal.backoff(mine.attempts, settings.backoff_base, settings.backoff_cap)));
        due := statement_timestamp() + next_in;
        expiry := mine.expires_at;
        -- A job that fails again and again ends at its expiry. But a wait longer than the whole time
        -- from its enqueue to its expiry is deliberate: without moving the expiry the job would never
        -- run.
        if after is not null and isfinite(expiry) and isfinite(mine.enqueued_at) then
            if mine.enqueued_at + next_in >= expiry then
                expiry := leasehold_internal.moved_expiry(expiry, mine.scheduled_at, due);
            end if;
        end if;
        update leasehold.job j
           -- Its worker is alive: only consecutive losses count.
           set held = false, lost_count = 0, deferred = false, last_error = left(error, 4096),
               scheduled_at = due, expires_at = expiry,
               errors = leasehold_internal.add_error(j.errors, j.attempts, holder, since, error)
         where j.id = job_id and j.lease_generation = generation and j.held;
        insert into leasehold_internal.tally (queue, tag, what, n) values (mine.queue, mine.tag, 'retried', 1);
        outcome := 'retry';
    end if;
    perform leasehold_internal.settle(generation);
    return next;
end $$;

-- The same for callers that do not need the wait. Returns 'retry', 'buried', 'cancelled' or 'lost'.
create or replace function leasehold.fail(
    job_id bigint, generation bigint, error text, after interval default null
)
returns text
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select f.outcome from leasehold_internal.record_failure(job_id, generation, error, after) f
$$;

-- Buries a job: another attempt would not help. Returns false if the lease was lost.
create or replace function leasehold.bury(
    job_id bigint, generation bigint, error text, cause text default 'rejected'
)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    holder text;
    buried int;
begin
    select l.claimed_by into holder from leasehold_internal.lease l where l.lease_generation = generation;
    buried := leasehold_internal.bury_rows(array[job_id], generation, cause, error, holder);
    perform leasehold_internal.settle(generation);
    return buried > 0;
end $$;

-- Returns since when the server has been up without a break: since its start, or since it recovered
-- from a crash or was promoted. Those two empty `server_start`; the first call after either, or after a
-- start, records the time.
create or replace function leasehold_internal.server_up_since()
returns timestamptz
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    noted timestamptz;
begin
    select s.since into noted from leasehold_internal.server_start s where s.started = pg_postmaster_start_time();
    if noted > statement_timestamp() + interval '1 minute' then
        -- The clock was set back. Without this no loss would count until it catches up.
        update leasehold_internal.server_start s set since = statement_timestamp()
         where s.since > statement_timestamp();
        noted := statement_timestamp();
    elsif noted is null then
        insert into leasehold_internal.server_start as s default values
        on conflict (only_row) do update set since = excluded.since, started = excluded.started
         where s.started <> excluded.started;
        noted := statement_timestamp();
    end if;
    return noted;
end $$;

-- Reclaims the jobs of one expired lease, or of them only `only_jobs`. `burying`: jobs that have no
-- attempt left, or under which too many workers died, are buried; those with a cancel request are
-- cancelled. `returning_jobs`: the others go back to the queue at once, with their loss counted. A job
-- that was lost before waits longer each time. Returns one row if any job could be taken or none is
-- left. Internal.
create or replace function leasehold_internal.reclaim_lease(
    overdue bigint, answering timestamptz, only_jobs bigint[], burying boolean, returning_jobs boolean
)
returns table (queue text, returned int, buried int)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    gone record;
    cancelling bigint[];
    losing bigint[];
    failing bigint[];
    going_back bigint[];
begin
    -- A lease that another transaction renews, settles or expires is skipped.
    select l.lease_generation, l.job_ids, l.claimed_by, l.claimed_at, l.queue,
           -- A queue without a row has the defaults.
           coalesce(q.max_attempts, 25) as max_attempts, coalesce(q.max_lost, 3) as max_lost,
           -- A lease that was last renewed before the server came back proves nothing about its
           -- worker.
           lost.n as loss,
           case when lost.n = 0 then 'the server was away: its lease could not be renewed'
                else 'the worker was lost: its lease ran out' end as why
      into gone
      from leasehold_internal.lease l left join leasehold_internal.queue q on q.name = l.queue
     cross join lateral (select case when answering > greatest(l.claimed_at, l.lease_expires_at - l.lease)
                                     then 0 else 1 end as n) lost
     where l.lease_generation = overdue
       and l.ended_at is null and l.lease_expires_at < statement_timestamp()
       for update of l skip locked;
    if not found then
        return;
    end if;
    -- A row that another transaction has locked is left for the next round: never wait here.
    select coalesce(array_agg(f.id) filter (where f.cancel_requested), '{}'),
           coalesce(array_agg(f.id) filter (where not f.cancel_requested and f.worn), '{}'),
           coalesce(array_agg(f.id) filter (where not f.cancel_requested and not f.worn
                                              and f.spent), '{}'),
           coalesce(array_agg(f.id) filter (where not f.cancel_requested and not f.worn
                                              and not f.spent), '{}')
      into cancelling, losing, failing, going_back
      from (
        select j.id, j.cancel_requested,
               gone.loss > 0 and j.lost_count + gone.loss >= gone.max_lost as worn,
               j.attempts >= coalesce(j.max_attempts, gone.max_attempts) as spent
          from leasehold.job j
         where j.id = any (coalesce(only_jobs, gone.job_ids)) and j.id = any (gone.job_ids)
           and j.lease_generation = gone.lease_generation and j.held
         order by j.id for update skip locked) f;
    if not burying then
        cancelling := '{}';
        losing := '{}';
        failing := '{}';
    end if;
    if not returning_jobs then
        going_back := '{}';
    end if;
    if cardinality(cancelling || losing || failing || going_back) = 0
       and exists (select from leasehold.job j
                    where j.id = any (gone.job_ids) and j.lease_generation = gone.lease_generation
                      and j.held) then
        return;
    end if;
    queue := gone.queue;
    if cancelling <> '{}' then
        perform leasehold_internal.cancel_rows(cancelling, true, gone.lease_generation,
                                      'cancelled; ' || gone.why);
    end if;
    buried := 0;
    if losing <> '{}' then
        buried := leasehold_internal.bury_rows(losing, gone.lease_generation, 'lost',
                                      'workers kept dying under this job', gone.claimed_by);
    end if;
    if failing <> '{}' then
        buried := buried + leasehold_internal.bury_rows(failing, gone.lease_generation, 'exhausted',
                                               'at the last attempt ' || gone.why, gone.claimed_by);
    end if;
    with back as (
        update leasehold.job j
           set held = false, deferred = false, lost_count = j.lost_count + gone.loss,
               scheduled_at = statement_timestamp()
                   + case when gone.loss = 0 or j.lost_count = 0 then interval '0'
                          else interval '5 seconds' * power(2, least(j.lost_count, 10)) end,
               last_error = gone.why,
               errors = leasehold_internal.add_error(j.errors, j.attempts, gone.claimed_by, gone.claimed_at, gone.why)
         where j.id = any (going_back)
           and j.lease_generation = gone.lease_generation and j.held
        returning j.queue, j.tag
    ), counted as (
        -- An outage of the server is not a loss of the worker, here and for the alarm about losses.
        insert into leasehold_internal.tally (queue, tag, what, n)
        select b.queue, b.tag, 'lost', count(*) from back b where gone.loss > 0 group by b.queue, b.tag
    )
    select count(*) into returned from back;
    if returned > 0 then
        perform leasehold_internal.wake(gone.queue);
    end if;
    perform leasehold_internal.end_lease(gone.lease_generation, cancelling || losing || failing || going_back);
    return next;
end $$;

-- Lease cleanup: reclaims the jobs of expired leases, the oldest lease first. `one_lease`: that one;
-- null: up to `up_to` leases of which some job could be taken. Leases whose jobs are all locked do not
-- count, or a few hundred of them would block all others. Returns one row per lease, or per job of a
-- lease with a job that a trigger or a constraint refuses. Internal.
create or replace function leasehold_internal.reclaim_jobs(
    one_lease bigint, up_to int, burying boolean, returning_jobs boolean
)
returns table (queue text, returned int, buried int)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    answering timestamptz := leasehold_internal.server_up_since();
    latest timestamptz := statement_timestamp() + interval '10 seconds';
    overdue bigint;
    each bigint;
    leases int := 0;
begin
    for overdue in
        select l.lease_generation from leasehold_internal.lease l
         where l.ended_at is null and l.lease_expires_at < statement_timestamp()
           and (one_lease is null or l.lease_generation = one_lease)
         order by l.lease_expires_at
    loop
        -- The time limit bounds the scan when very many leases are locked.
        exit when leases >= up_to or clock_timestamp() > latest;
        -- One block per lease: a job that is refused must not block other leases.
        begin
            return query
            select * from leasehold_internal.reclaim_lease(overdue, answering, null, burying, returning_jobs);
            if found then
                leases := leases + 1;
            end if;
        exception when others then
            -- One block per job: it must not block the other jobs of its lease either.
            leases := leases + 1;
            for each in
                select j.id from leasehold_internal.lease l
                  join leasehold.job j on j.id = any (l.job_ids)
                   and j.lease_generation = l.lease_generation and j.held
                 where l.lease_generation = overdue
            loop
                exit when clock_timestamp() > latest;
                begin
                    return query
                    select * from leasehold_internal.reclaim_lease(overdue, answering, array[each], burying,
                                                               returning_jobs);
                exception when others then
                    raise warning 'job % of lease % could not be reclaimed: %', each, overdue, sqlerrm;
                end;
            end loop;
        end;
    end loop;
end $$;

-- Lease cleanup, first step: jobs of expired leases that have an attempt left go back to the queue.
-- Returns the number of jobs.
create or replace function leasehold_internal.reclaim_waiting(one_lease bigint default null, up_to int default 100)
returns int
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select coalesce(sum(t.returned), 0)::int from leasehold_internal.reclaim_jobs(one_lease, up_to, false, true) t
$$;

-- Lease cleanup, second step: buries the others, or cancels those with a cancel request. Returns the
-- number of jobs that it buried.
create or replace function leasehold_internal.reclaim_dead(one_lease bigint default null, up_to int default 100)
returns int
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select coalesce(sum(t.buried), 0)::int from leasehold_internal.reclaim_jobs(one_lease, up_to, true, false) t
$$;

-- Records which jobs an expiry took, and ends the lease when none is left. Internal: the caller holds
-- the lock on the lease.
create or replace function leasehold_internal.end_lease(generation bigint, taken bigint[])
returns void
language sql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
    update leasehold_internal.lease l
       set lost_ids = l.lost_ids || taken,
           ended_at = case when not exists (
               select from leasehold.job j
                where j.id = any (l.job_ids) and j.lease_generation = l.lease_generation and j.held)
               then statement_timestamp() end
     where l.lease_generation = generation and l.ended_at is null
$$;

-- Runs both steps of lease cleanup.
create or replace function leasehold_internal.reclaim_leases(up_to int default 100)
returns table (returned int, buried int)
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select coalesce(sum(t.returned), 0)::int, coalesce(sum(t.buried), 0)::int
      from leasehold_internal.reclaim_jobs(null, up_to, true, true) t
$$;

-- Runs lease cleanup unless another housekeeper does. The lock ends with the statement, so it cannot be
-- left in a pooled session; it saves work, and correctness does not depend on it. `anyway`: without the
-- election, in case the elected session hangs. Returns one row per queue whose jobs were returned or
-- buried, or a single row without a queue.
create or replace function leasehold_internal.reclaim(up_to int default 100, anyway boolean default false)
returns table (elected boolean, queue text, returned int, buried int)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
begin
    elected := anyway or pg_try_advisory_xact_lock(7305, 2);
    if elected then
        return query
        select true, t.queue, sum(t.returned)::int, sum(t.buried)::int
          from leasehold_internal.reclaim_jobs(null, up_to, true, true) t
         group by t.queue having sum(t.returned) + sum(t.buried) > 0;
        if found then
            return;
        end if;
    end if;
    returned := 0;
    buried := 0;
    return next;
end $$;

-- Shortens leases that end later than their length allows: a clock that has been set back since wrote
-- them. Otherwise a dead worker's jobs would wait for the clock to catch up.
create or replace function leasehold_internal.clamp_leases()
returns int
language sql volatile security definer set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    with shortened as (
        update leasehold_internal.lease l set lease_expires_at = statement_timestamp() + l.lease
         where l.ended_at is null
           and l.lease_expires_at > statement_timestamp() + l.lease + interval '60 seconds'
        returning 1)
    select count(*)::int from shortened
$$;

-- Jobs that were not started in time, and jobs that are held by no lease: a walk over all jobs finds them.

-- Buries those of `late` that wait and have expired. Returns how many. Internal.
create or replace function leasehold_internal.bury_late(late bigint[])
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    expired int;
begin
    with gone as (
        delete from leasehold.job j
         where j.id = any (array(
                select f.id from leasehold.job f
                 where f.id = any (late) and not f.held and f.expires_at <= statement_timestamp()
                 order by f.id for update skip locked))
           and not j.held and j.expires_at <= statement_timestamp()
        returning j.*
    ), counted as (
        insert into leasehold_internal.tally (queue, tag, what, n)
        select g.queue, g.tag, 'expired', count(*) from gone g group by g.queue, g.tag
    )
    -- By name, as in `bury_rows`.
    insert into leasehold_internal.dead_job
    select x.* from gone g cross join lateral jsonb_populate_record(
        null::leasehold_internal.dead_job, to_jsonb(g) || jsonb_build_object(
            'died_at', statement_timestamp(), 'cause', 'expired',
            'last_error', coalesce(g.last_error, 'not started before it expired'))) x;
    get diagnostics expired = row_count;
    return expired;
end $$;

-- Reads up to `up_to` jobs after the id `after_id` and buries waiting ones that have expired. Returns
-- how many, and the id to read on from (null: the end was reached).
create or replace function leasehold_internal.expire_jobs(after_id bigint default 0, up_to int default 5000)
returns table (expired int, next_id bigint)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    late bigint[];
    each bigint;
    seen int;
begin
    select count(*), max(j.id),
           coalesce(array_agg(j.id) filter (where not j.held and j.expires_at <= statement_timestamp()), '{}')
      into seen, next_id, late
      from (select id, held, expires_at from leasehold.job
             where id > after_id order by id limit up_to) j;
    begin
        expired := leasehold_internal.bury_late(late);
    exception when others then
        -- One block per job: a job that a trigger or a constraint refuses must not stop the walk.
        expired := 0;
        foreach each in array late loop
            begin
                expired := expired + leasehold_internal.bury_late(array[each]);
            exception when others then
                raise warning 'job % has expired and could not be buried: %', each, sqlerrm;
            end;
        end loop;
    end;
    if seen < up_to then
        next_id := null;
    end if;
    return next;
end $$;

-- Reclaims those of `strays` that are held by a lease that does not exist. Returns how many. Internal.
create or replace function leasehold_internal.return_stray_rows(strays bigint[])
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_nestloop = on set enable_seqscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    returned int;
begin
    update leasehold.job j
       set held = false, deferred = false, lost_count = j.lost_count + 1, scheduled_at = statement_timestamp(),
           last_error = 'it was held by a lease that does not exist'
     where j.id = any (strays) and j.held
       and coalesce((select false from leasehold_internal.lease l
                      where l.lease_generation = j.lease_generation
                        and coalesce(l.ended_at, 'infinity') = 'infinity'), true);
    get diagnostics returned = row_count;
    return returned;
end $$;

-- Reclaims jobs that are held by a lease that does not exist, among those after `after_id` and up to
-- `last_id`. No transition creates such a job, but a manual change can, and nothing else would free it.
create or replace function leasehold_internal.return_strays(after_id bigint, last_id bigint)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_nestloop = on set enable_seqscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    strays bigint[];
    each bigint;
    returned int := 0;
begin
    -- Lock first and check again, in two statements: a job that was claimed meanwhile has a lease that
    -- the first one may not see. A look-up per job, not a join: a session that planned it while there
    -- was no lease would compare every job with every lease. Inner `coalesce`: see `settle_after`.
    select coalesce(array_agg(s.id), '{}') into strays
      from (select j.id from leasehold.job j
             where j.id > after_id and j.id <= last_id and j.held
               and coalesce((select false from leasehold_internal.lease l
                              where l.lease_generation = j.lease_generation
                                and coalesce(l.ended_at, 'infinity') = 'infinity'), true)
             order by j.id for update of j skip locked) s;
    if strays = '{}' then
        return 0;
    end if;
    begin
        returned := leasehold_internal.return_stray_rows(strays);
    exception when others then
        -- One block per job, as in `expire_jobs`.
        foreach each in array strays loop
            begin
                returned := returned + leasehold_internal.return_stray_rows(array[each]);
            exception when others then
                raise warning 'job % is held by no lease and could not be reclaimed: %', each, sqlerrm;
            end;
        end loop;
    end;
    return returned;
end $$;

-- Walks the next piece of all jobs: buries expired ones and reclaims strays. All housekeepers share the
-- pieces, one per `every`.
create or replace function leasehold_internal.walk_jobs(every interval default interval '1 second', up_to int default 5000)
returns table (expired int, strays int)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    place bigint;
    following bigint;
begin
    expired := 0;
    strays := 0;
    select d.after_id into place from leasehold_internal.duty d
     where d.name = 'walk_jobs'
       and (d.ran_at + d.cooldown <= statement_timestamp() - every
            -- The clock was set back.
            or d.ran_at > statement_timestamp() + interval '1 minute')
       for update skip locked;
    if found then
        select e.expired, e.next_id into expired, following from leasehold_internal.expire_jobs(place, up_to) e;
        strays := leasehold_internal.return_strays(place, coalesce(following, 9223372036854775807));
        -- A walk past the dead tuples of many finished jobs is slow: the next one waits 50 times as
        -- long as this one took.
        update leasehold_internal.duty d
           set after_id = coalesce(following, 0), ran_at = clock_timestamp(),
               cooldown = least(50 * (clock_timestamp() - statement_timestamp()), interval '30 minutes')
         where d.name = 'walk_jobs';
    end if;
    return next;
end $$;

-- Durable once-markers for handlers.

-- Begins a step. Returns 'started' to the first caller; 'unfinished' when an earlier attempt began and
-- it is unknown whether its effect took place; 'finished' with the stored result.
create or replace function leasehold.once_start(
    scope text, step text, job_id bigint, generation bigint, keep interval default interval '30 days'
)
returns table (state text, result jsonb)
language plpgsql volatile security definer set search_path = leasehold, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
begin
    insert into leasehold_internal.once_marker as m (scope, step, job_id, lease_generation, keep_until)
    values (once_start.scope, once_start.step, once_start.job_id, generation, statement_timestamp() + keep)
    on conflict (scope, step) do nothing;
    if found then
        state := 'started';
        return next;
        return;
    end if;
    select case when m.finished_at is null then 'unfinished' else 'finished' end, m.result
      into state, result
      from leasehold_internal.once_marker m where m.scope = once_start.scope and m.step = once_start.step;
    return next;
end $$;

-- Finishes a step with its result; the first result stays. Returns false if it was finished before.
create or replace function leasehold.once_finish(scope text, step text, result jsonb)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
begin
    update leasehold_internal.once_marker m set finished_at = statement_timestamp(), result = once_finish.result
     where m.scope = once_finish.scope and m.step = once_finish.step and m.finished_at is null;
    return found;
end $$;

-- Forgets a step whose effect is known not to have taken place. Finished steps stay.
create or replace function leasehold.once_forget(scope text, step text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
begin
    delete from leasehold_internal.once_marker m
     where m.scope = once_forget.scope and m.step = once_forget.step and m.finished_at is null;
    return found;
end $$;

-- Actions of operators. Each one records its actor.

-- Cancels a job: a waiting one at once; a running one gets a cancel request and ends as cancelled when
-- its handler stops. Returns 'cancelled', 'requested' or 'gone'.
create or replace function leasehold.cancel(job_id bigint, actor text, why text default null)
returns text
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    answer text;
begin
    loop
        if leasehold_internal.cancel_rows(array[job_id], false, null, coalesce(why, 'cancelled by ' || actor)) > 0 then
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

-- Makes waiting jobs due now, whatever their backoff; a deferred one runs by its priority again. Returns the
-- ids it moved.
create or replace function leasehold.promote(ids bigint[], actor text, why text default null)
returns setof bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    moved bigint[];
begin
    with due as (
        update leasehold.job j set scheduled_at = statement_timestamp(), deferred = false
         where j.id = any (array(
                select w.id from leasehold.job w
                 where w.id = any (ids) and not w.held
                   -- `is true` keeps the planner from reading the whole index of due times.
                   and (w.scheduled_at > statement_timestamp()) is true
                 order by w.id for update))
           and not j.held and (j.scheduled_at > statement_timestamp()) is true
        returning j.id)
    select coalesce(array_agg(id), '{}') into moved from due;
    if moved <> '{}' then
        perform leasehold_internal.wake(q.queue)
           from (select distinct j.queue from leasehold.job j where j.id = any (moved)) q;
        insert into leasehold.audit (actor, action, subject, detail)
        values (actor, 'promote', cardinality(moved) || ' jobs', concat_ws(': ', left(moved::text, 1000), why));
    end if;
    return query select unnest(moved);
end $$;

-- Redrives dead jobs: attempts and losses start again, the generation keeps growing. A job takes its
-- idempotency key again, and stays dead while the key belongs to a newer job. Returns the ids it moved.
create or replace function leasehold.redrive(ids bigint[], actor text, why text default null)
returns setof bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    moved bigint[];
begin
    perform from leasehold_internal.dead_job d where d.id = any (ids) order by d.id for update;
    -- Take their keys in the same order as every enqueue: insert the pruned ones and lock the others,
    -- so that no enqueue takes a key while its old job comes back.
    insert into leasehold_internal.idempotency_key as k (queue, key, job_id, request_hash, holds_until)
    select distinct on (d.queue, d.idempotency_key) d.queue, d.idempotency_key, d.id,
           leasehold_internal.request_hash(d.name, d.kwargs), statement_timestamp()
      from leasehold_internal.dead_job d
     where d.id = any (ids) and d.idempotency_key is not null
     order by d.queue, d.idempotency_key, d.id desc
    on conflict on constraint idempotency_key_pkey do update set job_id = k.job_id;
    -- Only a later statement sees the jobs of these keys. An expired key whose job has finished goes
    -- back to the last of its dead jobs.
    update leasehold_internal.idempotency_key k
       set job_id = d.id, request_hash = leasehold_internal.request_hash(d.name, d.kwargs)
      from (select distinct on (e.queue, e.idempotency_key) e.*
              from leasehold_internal.dead_job e
             where e.id = any (ids) and e.idempotency_key is not null
             order by e.queue, e.idempotency_key, e.id desc) d
     where k.queue = d.queue and k.key = d.idempotency_key and k.job_id <> d.id
       and k.holds_until <= statement_timestamp()
       and not exists (select from leasehold.job j where j.id = k.job_id);
    with back as (
        delete from leasehold_internal.dead_job d
         where d.id = any (ids)
           and (d.idempotency_key is null
                or exists (select from leasehold_internal.idempotency_key k
                            where k.queue = d.queue and k.key = d.idempotency_key and k.job_id = d.id))
        returning d.*
    ), alive as (
        -- By name, as in `bury_rows`.
        insert into leasehold.job overriding system value
        select x.* from back b cross join lateral jsonb_populate_record(
            null::leasehold.job, to_jsonb(b) || jsonb_build_object(
                'scheduled_at', statement_timestamp(),
                'expires_at', greatest(b.expires_at, statement_timestamp() + interval '30 days'),
                'attempts', 0, 'lost_count', 0, 'held', false, 'cancel_requested', false,
                'deferred', false)) x
        returning id
    )
    select coalesce(array_agg(id), '{}') into moved from alive;
    if moved <> '{}' then
        insert into leasehold.audit (actor, action, subject, detail)
        values (actor, 'redrive', cardinality(moved) || ' jobs', concat_ws(': ', left(moved::text, 1000), why));
    end if;
    return query select unnest(moved);
end $$;

-- Deletes waiting and dead jobs without running them; no history is kept of them. A running job stays. An
-- idempotency key stays taken for its own time. Returns the ids it deleted.
create or replace function leasehold.delete_jobs(ids bigint[], actor text, why text default null)
returns setof bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    deleted bigint[];
begin
    with waiting as (
        delete from leasehold.job j
         where j.id = any (array(
                select w.id from leasehold.job w
                 where w.id = any (ids) and not w.held order by w.id for update))
           and not j.held
        returning j.id
    ), dead as (
        delete from leasehold_internal.dead_job d
         where d.id = any (array(
                select e.id from leasehold_internal.dead_job e where e.id = any (ids) order by e.id for update))
        returning d.id
    )
    select coalesce(array_agg(g.id), '{}') into deleted
      from (select w.id from waiting w union all select d.id from dead d) g;
    if deleted <> '{}' then
        insert into leasehold.audit (actor, action, subject, detail)
        values (actor, 'delete', cardinality(deleted) || ' jobs', concat_ws(': ', left(deleted::text, 1000), why));
    end if;
    return query select unnest(deleted);
end $$;

-- Changes a waiting job. Null leaves a value as it is. A new due time moves the expiry along, unless a new
-- expiry is given too. With a new priority or due time, a deferred job runs by its priority again. Returns
-- false if the job does not wait.
create or replace function leasehold.update_job(
    job_id bigint, actor text, why text default null, priority int default null,
    scheduled_at timestamptz default null, expires_at timestamptz default null, tag text default null,
    max_attempts int default null
)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_variable
declare
    mine leasehold.job;
    due timestamptz;
    expiry timestamptz;
begin
    perform leasehold_internal.check_options(coalesce(tag, ''), max_attempts, scheduled_at, null);
    select j.* into mine from leasehold.job j where j.id = job_id and not j.held for update;
    if not found then
        return false;
    end if;
    due := coalesce(scheduled_at, mine.scheduled_at);
    expiry := coalesce(expires_at, leasehold_internal.moved_expiry(mine.expires_at, mine.scheduled_at, due));
    perform leasehold_internal.check_expiry(due, expiry);
    update leasehold.job j
       set priority = coalesce(priority, j.priority), scheduled_at = due, expires_at = expiry,
           deferred = j.deferred and priority is null and scheduled_at is null,
           tag = coalesce(tag, j.tag), max_attempts = coalesce(max_attempts, j.max_attempts)
     where j.id = job_id and not j.held;
    if due <= statement_timestamp() then
        perform leasehold_internal.wake(mine.queue);
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'update', 'job ' || job_id, concat_ws(', ',
        'priority ' || priority, 'scheduled_at ' || scheduled_at, 'expires_at ' || expires_at, 'tag ' || tag,
        'max_attempts ' || max_attempts, why));
    return true;
end $$;

-- Actions of operators on queues. Each one records its actor.

-- Stops claims from a queue; running jobs continue. Returns false if it was paused already.
create or replace function leasehold.pause(queue text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_variable
begin
    perform leasehold_internal.queue_settings(queue);
    update leasehold_internal.queue q set paused_at = statement_timestamp(), paused_by = actor, paused_why = why
     where q.name = queue and q.paused_at is null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'pause', 'queue ' || queue, why);
    return true;
end $$;

-- Resumes claims. Returns false if the queue was not paused.
create or replace function leasehold.resume(queue text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_variable
begin
    update leasehold_internal.queue q set paused_at = null, paused_by = null, paused_why = null
     where q.name = queue and q.paused_at is not null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'resume', 'queue ' || queue, why);
    perform leasehold_internal.wake(queue);
    return true;
end $$;

-- Changes the settings of a queue and inserts its row if there is none. Null leaves a setting as it is; an
-- empty text removes a name. Returns whether a setting changed.
create or replace function leasehold.set_queue(
    queue text, actor text, why text default null, lease interval default null,
    max_attempts int default null, max_lost int default null, claim_size int default null,
    run_limit interval default null, backoff_base interval default null,
    backoff_cap interval default null, keep_history boolean default null,
    display_name text default null, owner text default null
)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_variable
declare
    former leasehold_internal.queue := leasehold_internal.queue_settings(queue);
    settings leasehold_internal.queue;
begin
    update leasehold_internal.queue q
       set lease = coalesce(lease, q.lease),
           max_attempts = coalesce(max_attempts, q.max_attempts),
           max_lost = coalesce(max_lost, q.max_lost),
           claim_size = coalesce(set_queue.claim_size, q.claim_size),
           run_limit = coalesce(run_limit, q.run_limit),
           backoff_base = coalesce(backoff_base, q.backoff_base),
           backoff_cap = coalesce(backoff_cap, q.backoff_cap),
           keep_history = coalesce(keep_history, q.keep_history),
           display_name = nullif(coalesce(display_name, q.display_name), ''),
           owner = nullif(coalesce(owner, q.owner), '')
     where q.name = queue
    returning q.* into settings;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'set', 'queue ' || queue, concat_ws(', ',
        'lease ' || lease, 'max_attempts ' || max_attempts, 'max_lost ' || max_lost,
        'claim_size ' || claim_size, 'run_limit ' || run_limit, 'backoff_base ' || backoff_base,
        'backoff_cap ' || backoff_cap, 'keep_history ' || keep_history, 'display_name ' || display_name,
        'owner ' || owner, why));
    return settings is distinct from former;
end $$;

-- Actions of operators on schedules. Each one records its actor.

-- Adds a schedule; replaces one of the same name only if `replace` is true. A paused schedule stays paused.
-- Returns false if there is one already.
create or replace function leasehold.add_schedule(
    name text, cron text, zone text, queue text, job_name text, kwargs jsonb, priority int, missed text,
    next_slot timestamptz, actor text, why text default null, replace boolean default false
)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
begin
    insert into leasehold_internal.schedule as s
        (name, cron, zone, queue, job_name, kwargs, priority, missed, next_slot)
    values (name, cron, zone, queue, job_name, kwargs, priority, missed, next_slot)
    on conflict on constraint schedule_pkey do update
        set cron = excluded.cron, zone = excluded.zone, queue = excluded.queue,
            job_name = excluded.job_name, kwargs = excluded.kwargs, priority = excluded.priority,
            missed = excluded.missed, next_slot = excluded.next_slot,
            -- It belongs to the operator until a worker that declares it starts again.
            declared_by = null, last_declared_at = null
        where replace;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'add', 'schedule ' || name, concat_ws(' ', cron, zone, job_name, why));
    return true;
end $$;

-- Pauses a schedule. Returns false if there is none, or it is paused already.
create or replace function leasehold.pause_schedule(name text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
begin
    update leasehold_internal.schedule s set paused_at = statement_timestamp(), paused_by = actor, paused_why = why
     where s.name = name and s.paused_at is null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'pause', 'schedule ' || name, why);
    return true;
end $$;

-- Resumes a schedule. Returns false if there is none, or it is not paused.
create or replace function leasehold.resume_schedule(name text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
begin
    update leasehold_internal.schedule s set paused_at = null, paused_by = null, paused_why = null
     where s.name = name and s.paused_at is not null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'resume', 'schedule ' || name, why);
    return true;
end $$;

-- Removes a schedule; jobs that it made stay. Returns false if there is none.
create or replace function leasehold.remove_schedule(name text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
declare
    removed leasehold_internal.schedule;
begin
    delete from leasehold_internal.schedule s where s.name = name returning s.* into removed;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'remove', 'schedule ' || name,
            concat_ws(' ', removed.cron, removed.zone, removed.job_name, why));
    return true;
end $$;

-- Enqueues the job of a schedule now, paused or not; its slots stay as they are. Returns the id of the job,
-- or null if there is no such schedule.
create or replace function leasehold.run_schedule(name text, actor text, why text default null)
returns bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
declare
    entry leasehold_internal.schedule;
    made bigint;
begin
    select s.* into entry from leasehold_internal.schedule s where s.name = name for update;
    if not found then
        return null;
    end if;
    insert into leasehold.job as j (name, kwargs, queue, priority, tag)
    values (entry.job_name, entry.kwargs, entry.queue, entry.priority, entry.tag)
    returning j.id into made;
    update leasehold_internal.schedule s set last_job_id = made where s.name = entry.name;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'run', 'schedule ' || name, concat_ws(': ', 'job ' || made, why));
    return made;
end $$;

-- Creates the history partitions of the coming days. Returns the number created.
--
-- ATTACH takes a lock that does not block finishes, except on the default partition. It waits one
-- second at most, and leaves the work for next time: every finish queues behind it.
create or replace function leasehold_internal.extend_history(days int default 7)
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
        continue when to_regclass('leasehold_internal.' || part) is not null;
        begin
            execute format('create table leasehold_internal.%I (like leasehold_internal.history including all)', part);
            execute format(
                'alter table leasehold_internal.history attach partition leasehold_internal.%I for values from (%L) to (%L)',
                part, day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
            made := made + 1;
        exception
            -- The clock was ahead once and rows of that day are in the default partition, which keeps
            -- taking them.
            when check_violation then null;
            when duplicate_table or unique_violation then null; -- made by another housekeeper meanwhile
            when lock_not_available then return made;
        end;
    end loop;
    return made;
end $$;

-- Refuses a negative time. By dates: an interval of months and days with different signs has no length
-- of its own.
create or replace function leasehold_internal.check_time(what text, given interval)
returns void
language plpgsql stable set search_path = leasehold, pg_temp as $$
begin
    if statement_timestamp() - given > statement_timestamp() then
        raise exception '% is %, which is negative', what, given
            using errcode = 'LH002', hint = 'Give a time such as interval ''7 days''.';
    end if;
end $$;

-- Drops history partitions whose last day is older than `keep`. Returns the number dropped. Every
-- finish queues behind a drop, so it waits one second at most: see `extend_history`.
create or replace function leasehold_internal.drop_history(keep interval)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
declare
    part record;
    dropped int := 0;
begin
    perform leasehold_internal.check_time('keep', keep);
    -- The default partition takes what no other does. Its rows must not keep the partitions from being
    -- dropped.
    begin
        delete from leasehold_internal.history_rest where ctid = any (array(
            select h.ctid from leasehold_internal.history_rest h
             where h.finished_at < statement_timestamp() - keep limit 20000));
    exception when lock_not_available then null;
    end;
    for part in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
         where i.inhparent = 'leasehold_internal.history'::regclass and c.relname ~ '^history_\d{8}$'
           and (to_date(substr(c.relname, 9), 'YYYYMMDD') + 1)::timestamp at time zone 'UTC'
               < statement_timestamp() - keep
         order by c.relname
    loop
        begin
            execute format('drop table if exists leasehold_internal.%I', part.relname);
            dropped := dropped + 1;
        exception when lock_not_available then return dropped;
        end;
    end loop;
    return dropped;
end $$;

-- Fires one slot of a schedule: moves `next_slot` from the value the caller saw and inserts the job,
-- both or neither. Returns null if another worker fired it, or the schedule was paused or removed. A
-- schedule that a transaction has locked is left for the next look: the others must not wait for it.
create or replace function leasehold_internal.fire_schedule(
    name text, slot timestamptz, following timestamptz, passed bigint default 0, enqueues boolean default true
)
returns bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_column
declare
    entry leasehold_internal.schedule;
    made bigint;
begin
    update leasehold_internal.schedule s
       set next_slot = following, moved_at = statement_timestamp(),
           missed_slots = s.missed_slots + passed,
           last_slot = case when enqueues then slot else s.last_slot end
     where s.name = fire_schedule.name and s.next_slot = slot and s.paused_at is null
    returning * into entry;
    if not found then
        return null;
    end if;
    if not enqueues then
        return 0;
    end if;
    insert into leasehold.job as j (name, kwargs, queue, priority, tag)
    values (entry.job_name, entry.kwargs, entry.queue, entry.priority, entry.tag)
    returning j.id into made;
    update leasehold_internal.schedule s set last_job_id = made where s.name = fire_schedule.name;
    return made;
end $$;

-- Returns schedules that code declared and no running worker declares any more. They still fire.
create or replace function leasehold_internal.undeclared_schedules()
returns table (name text, declared_by text, last_declared_at timestamptz)
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select s.name, s.declared_by, s.last_declared_at from leasehold_internal.schedule s
     where s.declared_by is not null and s.paused_at is null
       and s.last_declared_at < statement_timestamp() - interval '1 day'
     order by s.name limit 1000
$$;

-- Removes a schedule that code declared and declares no longer. Returns false if there is none, or an
-- operator added it.
create or replace function leasehold_internal.retire_schedule(name text, actor text)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
declare
    gone leasehold_internal.schedule;
begin
    delete from leasehold_internal.schedule s where s.name = name and s.declared_by is not null
    returning * into gone;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'retire', 'schedule ' || gone.name, concat_ws(' ', gone.cron, gone.zone, gone.job_name));
    return true;
end $$;

-- Records that a worker is alive.
create or replace function leasehold_internal.register_worker(
    id text, name text, host text, pid int, version text, queues text[],
    names text[], slots int, busy int, draining boolean
)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold_internal.worker as w
        (id, name, host, pid, version, queues, names, slots, busy, draining_since)
    values (left(register_worker.id, 200), left(register_worker.name, 200), left(register_worker.host, 200), register_worker.pid, left(register_worker.version, 200),
            -- Readers expect names: a null among them would break every list of workers.
            array_remove(register_worker.queues, null), array_remove(register_worker.names, null), greatest(register_worker.slots, 0),
            greatest(register_worker.busy, 0),
            case when register_worker.draining then statement_timestamp() end)
    on conflict (id) do update
        set last_seen_at = statement_timestamp(), busy = excluded.busy,
            draining_since = coalesce(w.draining_since, excluded.draining_since),
            stopped_at = null
$$;

create or replace function leasehold_internal.unregister_worker(id text)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold_internal.worker set stopped_at = statement_timestamp(), busy = 0,
           last_seen_at = statement_timestamp()
     where id = unregister_worker.id
$$;

-- Prunes what is past its retention, a bounded number of rows per call and one kind per call: a kind
-- that fails, or that has millions of rows to remove, does not delay the other kinds.
--
-- Each kind has a function that returns how many rows it removed, whether it may have left some
-- (`more`), and where to read on (`reached`): while an old snapshot is open, the index entries of
-- removed rows stay, and a read from the start would pass all of them with every call.

-- Prunes ended leases. Only for `prune_kind`.
create or replace function leasehold_internal.prune_leases(
    up_to int, keep interval, after text, out removed int, out more boolean, out reached text
)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    -- In the order of their generations, which is roughly the order of their ends.
    with old as materialized (
        select l.lease_generation from leasehold_internal.lease l
         where l.lease_generation > coalesce(after::bigint, 0)
           and l.ended_at < statement_timestamp() - coalesce(keep, interval '2 minutes')
         order by l.lease_generation limit up_to for update skip locked
    ), gone as (
        delete from leasehold_internal.lease l
         where l.lease_generation = any (array(select o.lease_generation from old o))
        returning l.lease_generation
    )
    select count(*), max(g.lease_generation)::text into removed, reached from gone g;
    more := removed = up_to;
end $$;

-- Prunes expired keys whose job has finished. Only for `prune_kind`.
create or replace function leasehold_internal.prune_keys(
    up_to int, keep interval, after text, out removed int, out more boolean, out reached text
)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
declare
    queues text[];
    keys text[];
begin
    -- A key stays while its job waits or runs. Look for its job after the key is locked, in another
    -- statement: one that looked before would miss a job that was created meanwhile.
    select array_agg(e.queue), array_agg(e.key), to_json(max(e.due)) #>> '{}' into queues, keys, reached
      from (select k.queue, k.key, greatest(k.holds_until, k.recheck_at) as due
              from leasehold_internal.idempotency_key k
             where greatest(k.holds_until, k.recheck_at) < statement_timestamp()
               and greatest(k.holds_until, k.recheck_at)
                   >= coalesce(after::timestamptz, timestamptz '-infinity')
             order by greatest(k.holds_until, k.recheck_at)
             limit up_to for update skip locked) e;
    delete from leasehold_internal.idempotency_key k
     using unnest(queues, keys) as old (queue, key)
     where k.queue = old.queue and k.key = old.key
       and not exists (select from leasehold.job j where j.id = k.job_id);
    get diagnostics removed = row_count;
    more := coalesce(cardinality(keys), 0) = up_to;
    -- Look at the others again when their job may have finished, later each time. Otherwise every call
    -- would read a million keyed jobs that wait for next week.
    if removed < coalesce(cardinality(keys), 0) then
        update leasehold_internal.idempotency_key k
           set recheck_at = least(
                greatest(j.scheduled_at, statement_timestamp() + least(greatest(
                    (statement_timestamp() - k.created_at) / 2, interval '1 minute'), interval '6 hours')),
                statement_timestamp() + interval '1 day')
          from unnest(queues, keys) as old (queue, key), leasehold.job j
         where k.queue = old.queue and k.key = old.key and j.id = k.job_id;
    end if;
end $$;

-- Prunes expired once-markers whose job cannot run again. Only for `prune_kind`.
create or replace function leasehold_internal.prune_marks(
    up_to int, keep interval, after text, out removed int, out more boolean, out reached text
)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
declare
    scopes text[];
    steps text[];
begin
    -- As for keys: lock, then look.
    select array_agg(e.scope), array_agg(e.step), to_json(max(e.keep_until)) #>> '{}' into scopes, steps, reached
      from (select m.scope, m.step, m.keep_until from leasehold_internal.once_marker m
             where m.keep_until < statement_timestamp()
               and m.keep_until >= coalesce(after::timestamptz, timestamptz '-infinity')
             order by m.keep_until limit up_to for update skip locked) e;
    delete from leasehold_internal.once_marker m
     using unnest(scopes, steps) as old (scope, step)
     where m.scope = old.scope and m.step = old.step
       and not exists (select from leasehold.job j where j.id = m.job_id)
       and not exists (select from leasehold_internal.dead_job d where d.id = m.job_id);
    get diagnostics removed = row_count;
    more := coalesce(cardinality(steps), 0) = up_to;
    -- The job of the others waits, runs or may be redriven. They are kept, longer each time.
    if removed < coalesce(cardinality(steps), 0) then
        update leasehold_internal.once_marker m
           set keep_until = statement_timestamp() + least(greatest(
                (statement_timestamp() - m.started_at) / 2, interval '1 minute'), interval '1 day')
          from unnest(scopes, steps) as old (scope, step)
         where m.scope = old.scope and m.step = old.step;
    end if;
end $$;

-- Prunes workers that were last seen a day ago. Only for `prune_kind`.
create or replace function leasehold_internal.prune_workers(
    up_to int, keep interval, after text, out removed int, out more boolean, out reached text
)
language plpgsql volatile security definer set search_path = leasehold, pg_temp set jit = off as $$
begin
    delete from leasehold_internal.worker w where w.id = any (array(
        select e.id from leasehold_internal.worker e
         where e.last_seen_at < statement_timestamp() - coalesce(keep, interval '1 day')
         limit up_to for update skip locked));
    get diagnostics removed = row_count;
    more := removed = up_to;
end $$;

-- Prunes dead jobs, where a retention was set. By queue, because the index begins with it: otherwise
-- every call would read all of them. Only for `prune_kind`.
create or replace function leasehold_internal.prune_dead(
    up_to int, keep interval, after text, out removed int, out more boolean, out reached text
)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    one_queue text := (select d.queue from leasehold_internal.dead_job d order by d.queue limit 1);
    gone int;
begin
    removed := 0;
    while keep is not null and one_queue is not null and removed < up_to loop
        delete from leasehold_internal.dead_job d where d.id = any (array(
            select e.id from leasehold_internal.dead_job e
             where e.queue = one_queue and e.died_at < statement_timestamp() - keep
             order by e.died_at limit up_to - removed for update skip locked));
        get diagnostics gone = row_count;
        removed := removed + gone;
        one_queue := (select d.queue from leasehold_internal.dead_job d where d.queue > one_queue
                       order by d.queue limit 1);
    end loop;
    more := removed >= up_to;
end $$;

-- Prunes default settings: rows that a claim created, of queues without jobs, schedules, a watch or a
-- living worker. The next claim creates the row again. Only for `prune_kind`.
create or replace function leasehold_internal.prune_queues(
    up_to int, keep interval, after text, out removed int, out more boolean, out reached text
)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    -- Every column but these two has its default, whatever columns there are.
    untouched text := (
        select string_agg(format('q.%I is not distinct from %s', a.attname,
                                 coalesce(pg_get_expr(d.adbin, d.adrelid), 'null')), ' and ')
          from pg_attribute a
          left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
         where a.attrelid = 'leasehold_internal.queue'::regclass and a.attnum > 0 and not a.attisdropped
           and a.attgenerated = '' and a.attname not in ('name', 'created_at'));
begin
    execute 'delete from leasehold_internal.queue g where g.name = any (array('
        'select q.name from leasehold_internal.queue q'
        ' where q.created_at < statement_timestamp() - $1 and ' || untouched ||
        ' and not exists (select from leasehold.job j where j.queue = q.name)'
        ' and not exists (select from leasehold_internal.dead_job d where d.queue = q.name)'
        ' and not exists (select from leasehold_internal.watch w where w.queue = q.name)'
        ' and not exists (select from leasehold_internal.schedule s where s.queue = q.name)'
        ' and not exists (select from leasehold.workers w'
        '                  where w.state in (''alive'', ''draining'') and q.name = any (w.queues))'
        -- Expiry reads the settings of the queues of open leases.
        ' and q.name <> all (array(select l.queue from leasehold_internal.lease l where l.ended_at is null))'
        ' order by q.name limit $2 for update of q skip locked))'
      using coalesce(keep, interval '1 day'), up_to;
    get diagnostics removed = row_count;
    more := removed = up_to;
end $$;

-- Prunes one kind: leases, keys, marks, workers, dead or queues. `keep` null: the default retention;
-- dead jobs then stay. One housekeeper is elected per kind, for the statement; `anyway`: without the
-- election, in case the elected one hangs. `after`: what the last call reached.
create or replace function leasehold_internal.prune_kind(
    kind text, up_to int default 5000, keep interval default null, anyway boolean default false,
    after text default null
)
returns table (elected boolean, removed int, more boolean, reached text)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
declare
    kinds text[] := array['leases', 'keys', 'marks', 'workers', 'dead', 'queues'];
begin
    if coalesce(kind <> all (kinds), true) then
        raise exception 'there is no kind % to prune', coalesce(quote_literal(kind), 'null')
            using errcode = 'LH002', hint = 'Use one of ' || array_to_string(kinds, ', ') || '.';
    end if;
    perform leasehold_internal.check_time('keep', keep);
    elected := anyway or pg_try_advisory_xact_lock(7305, 10 + array_position(kinds, kind));
    removed := 0;
    more := false;
    if elected then
        case kind
            when 'leases' then select p.* into removed, more, reached from leasehold_internal.prune_leases(up_to, keep, after) p;
            when 'keys' then select p.* into removed, more, reached from leasehold_internal.prune_keys(up_to, keep, after) p;
            when 'marks' then select p.* into removed, more, reached from leasehold_internal.prune_marks(up_to, keep, after) p;
            when 'workers' then select p.* into removed, more, reached from leasehold_internal.prune_workers(up_to, keep, after) p;
            when 'dead' then select p.* into removed, more, reached from leasehold_internal.prune_dead(up_to, keep, after) p;
            when 'queues' then select p.* into removed, more, reached from leasehold_internal.prune_queues(up_to, keep, after) p;
        end case;
    end if;
    return next;
end $$;

-- Prunes every kind but queues, once each and in one transaction. `prune_kind` keeps them apart.
-- Finished jobs are removed by dropping partitions: see `drop_history`.
create or replace function leasehold_internal.prune(
    up_to int default 5000,
    dead_for interval default null,
    ended_leases_for interval default interval '2 minutes'
)
returns table (leases int, keys int, markers int, workers int, dead int)
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    leases := (select p.removed from leasehold_internal.prune_kind('leases', up_to, ended_leases_for, true) p);
    keys := (select p.removed from leasehold_internal.prune_kind('keys', up_to, null, true) p);
    markers := (select p.removed from leasehold_internal.prune_kind('marks', up_to, null, true) p);
    workers := (select p.removed from leasehold_internal.prune_kind('workers', up_to, null, true) p);
    dead := (select p.removed from leasehold_internal.prune_kind('dead', up_to, dead_for, true) p);
    return next;
end $$;

-- Runs one bounded round of housekeeping in plain SQL, for consumers in other languages that run no
-- worker of the library. Call it every minute, from cron or pg_cron, as a member of
-- leasehold_housekeeper; several callers at once share the work.
--
-- Returns one row per duty: how much it did, and the error if it failed. A duty that fails stops no
-- other. `budget`: no duty begins another piece after that time. Schedules, samples and alarms need a
-- worker of the library or `leasehold console`: cron patterns and alarm rules are not SQL.
create or replace function leasehold.housekeep(
    budget interval default interval '5 seconds',
    keep_history interval default interval '7 days',
    keep_dead interval default null
)
returns table (duty text, done bigint, error text)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
declare
    began timestamptz := clock_timestamp();
    deadline timestamptz := began + budget;
    piece bigint;
    more boolean;
    place text;
begin
    perform leasehold_internal.check_time('budget', budget), leasehold_internal.check_time('keep_history', keep_history),
            leasehold_internal.check_time('keep_dead', keep_dead);
    foreach duty in array array['reclaim', 'clamp_leases', 'walk_jobs', 'prune_leases', 'prune_keys',
                                'prune_marks', 'prune_workers', 'prune_dead', 'prune_queues',
                                'prune_measures', 'extend_history', 'drop_history'] loop
        done := 0;
        error := null;
        place := null;
        begin
            loop
                more := false;
                case
                    when duty = 'reclaim' then
                        select e.returned + e.buried, e.returned + e.buried > 0 into piece, more
                          from leasehold_internal.reclaim_leases(200) e;
                    when duty = 'clamp_leases' then
                        piece := leasehold_internal.clamp_leases();
                    when duty = 'walk_jobs' then
                        -- Walk the next piece at once, whenever the last one was: here the budget
                        -- limits the pace.
                        select w.expired + w.strays into piece
                          from leasehold_internal.walk_jobs(interval '-1 day') w;
                        more := clock_timestamp() < began + budget / 4
                                and (select d.after_id > 0 from leasehold_internal.duty d where d.name = 'walk_jobs');
                    when duty = 'prune_measures' then
                        piece := leasehold_internal.prune_measures();
                    when duty = 'extend_history' then
                        piece := leasehold_internal.extend_history();
                    when duty = 'drop_history' then
                        piece := leasehold_internal.drop_history(keep_history);
                    else
                        select p.removed, p.more, p.reached into piece, more, place
                          from leasehold_internal.prune_kind(
                            substr(duty, 7), keep => case when duty = 'prune_dead' then keep_dead end,
                            after => place) p;
                end case;
                done := done + piece;
                exit when not more or clock_timestamp() > deadline;
            end loop;
        exception when others then
            error := sqlerrm;
        end;
        return next;
    end loop;
end $$;

-- What the engine stores about a sweep besides the rows of its table. The library generates the
-- statements on those rows for each table; these functions keep the run, the failures and the counts.

-- Returns the number of a claim. Workers have the right to draw one here, but no other access to
-- generations.
create or replace function leasehold_internal.next_claim()
returns bigint
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select leasehold_internal.next_generation()
$$;

-- Returns the role that calls a function that runs with the owner's rights.
create or replace function leasehold_internal.calling_role()
returns text
language sql stable set search_path = leasehold, pg_temp as $$
    select case current_setting('role') when 'none' then session_user else current_setting('role') end
$$;

-- Returns the table that `name` names as schema.table, without quotes. Null: there is none.
create or replace function leasehold_internal.sweep_table(name text)
returns oid
language sql stable set search_path = leasehold, pg_temp as $$
    select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = split_part(name, '.', 1) and c.relname = substr(name, strpos(name, '.') + 1)
$$;

-- Declares a sweep. Repeating the same declaration changes nothing of its run: a deploy neither repeats
-- nor drops a night. A sweep that is due stays due, whatever its new schedule is.
--
-- Refuses a table without its schema, which would be another table to a session with another
-- `search_path`; a sweep of another role with a change of its table, columns or states; and a second
-- sweep whose claims the first one's watchdog would take for its own.
create or replace function leasehold_internal.declare_sweep(
    name text, table_name text, key_column text, key_type text, order_column text, status_column text,
    waiting text, claimed text, done text, claimed_at_column text, claim_column text,
    claim_size int, max_attempts int, after interval, check_every interval, most bigint,
    cron text, zone text, every interval, first_run timestamptz
)
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
declare
    caller text := leasehold_internal.calling_role();
    owner text;
    other text;
begin
    if position('.' in declare_sweep.table_name) = 0 then
        raise exception 'the table of sweep %, %, has no schema', declare_sweep.name, quote_literal(declare_sweep.table_name)
            using errcode = 'LH002', hint = 'Write it as schema.table.';
    end if;
    -- Otherwise a role without rights on the table could keep its owner from declaring a sweep of it.
    if not has_any_column_privilege(caller, leasehold_internal.sweep_table(declare_sweep.table_name), 'update') then
        raise exception 'role % may not update table % of sweep %', caller, declare_sweep.table_name, declare_sweep.name
            using errcode = 'insufficient_privilege',
                  hint = format('grant select, update on %s to %I', declare_sweep.table_name, caller);
    end if;
    perform from leasehold_internal.sweep s
      where s.name = declare_sweep.name and s.declared_by is not null
        and (s.table_name, s.key_column, s.order_column, s.status_column, s.waiting, s.claimed, s.done,
             s.claimed_at_column, s.claim_column)
            is not distinct from
            (declare_sweep.table_name, declare_sweep.key_column, declare_sweep.order_column, declare_sweep.status_column, declare_sweep.waiting, declare_sweep.claimed, declare_sweep.done,
             declare_sweep.claimed_at_column, declare_sweep.claim_column);
    if not found then
        -- Two concurrent declarations must see each other.
        lock table leasehold_internal.sweep in share row exclusive mode;
        -- A role that was dropped owns nothing; a role that the caller is a member of counts as the
        -- caller.
        select s.declared_by into owner from leasehold_internal.sweep s
          join pg_roles r on r.rolname = s.declared_by
         where s.name = declare_sweep.name and not pg_has_role(caller, r.oid, 'member');
        if found then
            raise exception 'sweep % belongs to role %; role % cannot change its table, columns or states',
                declare_sweep.name, owner, caller
                using errcode = 'LH002', hint = format(
                    'Choose another name for the sweep, or grant %I to %I.', owner, caller);
        end if;
        select s.name into other from leasehold_internal.sweep s
         where s.name <> declare_sweep.name and s.table_name = declare_sweep.table_name
           -- One that was declared before the table was there, by a role without a right on it, does not
           -- count.
           and coalesce((select has_any_column_privilege(r.oid, leasehold_internal.sweep_table(declare_sweep.table_name), 'update')
                           from pg_roles r where r.rolname = s.declared_by), true)
           and ((s.status_column = declare_sweep.status_column and s.claimed = declare_sweep.claimed)
                or (s.status_column <> declare_sweep.status_column
                    and (s.claim_column = declare_sweep.claim_column or s.claimed_at_column = declare_sweep.claimed_at_column)))
         order by s.name limit 1;
        if found then
            raise exception 'sweeps % and % of table % would take each other''s claims for their own',
                declare_sweep.name, other, declare_sweep.table_name
                using errcode = 'LH002', hint = format(
                    'Give each its own claimed state, or its own claim and claimed_at columns. If no '
                    'worker has sweep %1$s any more: select leasehold_internal.forget_sweep(%2$L, ''your name'')',
                    other, other);
        end if;
    end if;
    insert into leasehold_internal.sweep as s
        (name, table_name, key_column, key_type, order_column, status_column, waiting, claimed, done,
         claimed_at_column, claim_column, claim_size, max_attempts, watchdog_after, watchdog_every,
         watchdog_most, cron, zone, every, next_run_at, declared_by)
    values (declare_sweep.name, declare_sweep.table_name, declare_sweep.key_column, declare_sweep.key_type, declare_sweep.order_column, declare_sweep.status_column, declare_sweep.waiting, declare_sweep.claimed,
            declare_sweep.done, declare_sweep.claimed_at_column, declare_sweep.claim_column, declare_sweep.claim_size, declare_sweep.max_attempts, after, check_every, most,
            declare_sweep.cron, declare_sweep.zone, declare_sweep.every, coalesce(first_run, statement_timestamp()), caller)
    on conflict (name) do update
        set table_name = excluded.table_name, key_column = excluded.key_column,
            key_type = excluded.key_type, order_column = excluded.order_column,
            status_column = excluded.status_column, waiting = excluded.waiting,
            claimed = excluded.claimed, done = excluded.done,
            claimed_at_column = excluded.claimed_at_column, claim_column = excluded.claim_column,
            claim_size = excluded.claim_size, max_attempts = excluded.max_attempts,
            watchdog_after = excluded.watchdog_after, watchdog_every = excluded.watchdog_every,
            watchdog_most = excluded.watchdog_most,
            next_run_at = case
                when s.next_run_at <= statement_timestamp() then s.next_run_at
                when (s.cron, s.zone, s.every) is not distinct from
                     (excluded.cron, excluded.zone, excluded.every) then s.next_run_at
                else excluded.next_run_at end,
            cron = excluded.cron, zone = excluded.zone, every = excluded.every,
            -- The first role keeps it: workers under several roles run the same sweep.
            declared_by = case when exists (select from pg_roles r where r.rolname = s.declared_by)
                               then s.declared_by else excluded.declared_by end;
end $$;

-- Returns whether a sweep is due, and for which slot. The first worker that asks opens the run; later
-- ones join it. Writes nothing while there is nothing to do.
create or replace function leasehold_internal.begin_sweep(name text)
returns table (due boolean, slot timestamptz)
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
declare
    entry leasehold_internal.sweep;
begin
    select * into entry from leasehold_internal.sweep s where s.name = begin_sweep.name;
    due := found and entry.paused_at is null
           and (entry.next_run_at <= statement_timestamp()
                -- The clock was set back: the last run ended in what is now the future, and so its next
                -- time may be far away.
                or coalesce(entry.run_ended_at > statement_timestamp() + interval '1 minute', false));
    slot := entry.next_run_at;
    if due and (entry.run_started_at is null or entry.run_ended_at is not null) then
        update leasehold_internal.sweep s set run_started_at = statement_timestamp(), run_ended_at = null
         where s.name = begin_sweep.name and s.next_run_at = entry.next_run_at
           and (s.run_started_at is null or s.run_ended_at is not null);
    end if;
    return next;
end $$;

-- Ends the run that was due at `slot`; the next one is at `following`, or after a pause. Returns false
-- if it was ended already, another run was requested meanwhile, or the sweep is paused; look again.
create or replace function leasehold_internal.close_sweep(
    name text, slot timestamptz, following timestamptz, pause interval default null
)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    update leasehold_internal.sweep s
       set run_ended_at = statement_timestamp(),
           next_run_at = coalesce(following, statement_timestamp() + pause)
     where s.name = close_sweep.name and s.next_run_at = slot and s.paused_at is null;
    return found;
end $$;

-- Adds to the counts of a sweep. Returns whether its loops may continue: false while it is paused.
create or replace function leasehold_internal.count_sweep(
    name text, claimed bigint, finished bigint, failed bigint, lost bigint
)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
declare
    may_continue boolean;
begin
    if count_sweep.claimed = 0 and count_sweep.finished = 0 and count_sweep.failed = 0 and count_sweep.lost = 0 then
        return exists (select from leasehold_internal.sweep s where s.name = count_sweep.name and s.paused_at is null);
    end if;
    update leasehold_internal.sweep s
       set rows_claimed = s.rows_claimed + count_sweep.claimed,
           rows_finished = s.rows_finished + count_sweep.finished,
           rows_failed = s.rows_failed + count_sweep.failed, rows_lost = s.rows_lost + count_sweep.lost
     where s.name = count_sweep.name
    returning s.paused_at is null into may_continue;
    return coalesce(may_continue, false);
end $$;

-- Takes the next turn of a sweep's watchdog. Returns false if another worker took it less than an
-- interval ago. No lock is held: if the worker dies, another one takes the next turn.
create or replace function leasehold_internal.begin_watchdog(name text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    update leasehold_internal.sweep s set watchdog_ran_at = statement_timestamp()
     where s.name = begin_watchdog.name
       and (s.watchdog_ran_at is null
            or s.watchdog_ran_at <= statement_timestamp() - s.watchdog_every
            -- The clock was set back.
            or s.watchdog_ran_at > statement_timestamp() + s.watchdog_every);
    return found;
end $$;

-- Records how many rows the watchdog reset, and makes the sweep due: reset rows must not wait for the
-- next night.
create or replace function leasehold_internal.note_watchdog(name text, reset bigint)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold_internal.sweep s
       set rows_reset = s.rows_reset + note_watchdog.reset, watchdog_ran_at = statement_timestamp(),
           next_run_at = case when note_watchdog.reset > 0 then statement_timestamp() else s.next_run_at end
     where s.name = note_watchdog.name
$$;

-- Records how many rows are due, as a worker counted them with its own rights.
create or replace function leasehold_internal.note_due(name text, due bigint)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold_internal.sweep s set rows_due = due, due_counted_at = statement_timestamp()
     where s.name = note_due.name
$$;

-- Records how many rows are claimed, how many of them have no failure and how many should have been
-- reset, as a worker counted them with its own rights. Functions that run as the owner never read a
-- swept table: it may be a view, or have a policy, whose code would run as the owner too.
create or replace function leasehold_internal.note_claimed(
    sweep text, claimed bigint, unfailed bigint, stuck bigint, oldest timestamptz
)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold_internal.sweep s
       set claimed_now = note_claimed.claimed, unfailed_now = note_claimed.unfailed,
           stuck_now = note_claimed.stuck, oldest_claim_at = note_claimed.oldest,
           claims_counted_at = statement_timestamp()
     where s.name = note_claimed.sweep
$$;

-- Records that rows failed under a claim. The caller has made sure that the claim still holds them. A
-- row is dead if it has no attempt left, or if its handler reported a final failure. Returns for each
-- row how often it failed and whether it is dead.
create or replace function leasehold_internal.fail_swept(
    sweep text, keys text[], reasons text[], permanent boolean[], claim bigint, max_attempts int,
    base interval, cap interval
)
returns table (key text, attempts int, dead boolean)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
begin
    return query
    insert into leasehold_internal.sweep_failure as f
        (sweep, key, claim, attempts, last_error, retry_at, dead_at)
    select fail_swept.sweep, g.key, fail_swept.claim, 1, g.why,
           case when not g.final and max_attempts > 1
                then statement_timestamp() + leasehold_internal.backoff(1, base, cap) end,
           case when g.final or max_attempts <= 1 then statement_timestamp() end
      from unnest(keys, reasons, permanent) as g (key, why, final)
     order by g.key
    on conflict on constraint sweep_failure_pkey do update
        set attempts = f.attempts + 1, claim = excluded.claim, last_error = excluded.last_error,
            failed_at = statement_timestamp(),
            retry_at = case when excluded.dead_at is null and f.attempts + 1 < max_attempts
                            then statement_timestamp()
                                 + leasehold_internal.backoff(f.attempts + 1, base, cap) end,
            dead_at = case when excluded.dead_at is not null or f.attempts + 1 >= max_attempts
                           then statement_timestamp() end
      -- A failure that is reported twice counts once.
      where f.claim <> excluded.claim
    returning f.key, f.attempts, f.dead_at is not null;
end $$;

-- Makes a sweep due now. Returns false if there is no such sweep.
create or replace function leasehold.run_sweep(name text, actor text default null, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    -- Also when it is due already: a run that is about to end must notice, and look again.
    update leasehold_internal.sweep s set next_run_at = statement_timestamp() where s.name = run_sweep.name;
    if found and actor is not null then
        insert into leasehold.audit (actor, action, subject, detail)
        values (actor, 'run', 'sweep ' || run_sweep.name, why);
        return true;
    end if;
    return found;
end $$;

-- Stops a sweep's claims; loops finish their current batches. Returns false if it is paused already, or
-- there is no such sweep.
create or replace function leasehold.pause_sweep(name text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    update leasehold_internal.sweep s set paused_at = statement_timestamp(), paused_by = actor, paused_why = why
     where s.name = pause_sweep.name and s.paused_at is null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'pause', 'sweep ' || pause_sweep.name, why);
    return true;
end $$;

-- Resumes a sweep. Returns false if it was not paused.
create or replace function leasehold.resume_sweep(name text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    update leasehold_internal.sweep s set paused_at = null, paused_by = null, paused_why = null
     where s.name = resume_sweep.name and s.paused_at is not null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'resume', 'sweep ' || resume_sweep.name, why);
    return true;
end $$;

-- Makes the workers of a sweep run its watchdog now, with their own rights. Returns false if there is
-- no such sweep.
create or replace function leasehold_internal.run_watchdog(name text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    update leasehold_internal.sweep s set watchdog_ran_at = null where s.name = run_watchdog.name;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (run_watchdog.actor, 'run watchdog', 'sweep ' || run_watchdog.name, why);
    return true;
end $$;

-- Removes a sweep that no worker has any more, with the failures of its rows. Its table is left alone.
-- A worker that still has the sweep continues and counts nothing; its next start declares it anew.
-- Returns false if there is no such sweep.
create or replace function leasehold_internal.forget_sweep(name text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp set enable_seqscan = off as $$
begin
    delete from leasehold_internal.sweep s where s.name = forget_sweep.name;
    if not found then
        return false;
    end if;
    delete from leasehold_internal.sweep_failure f where f.sweep = forget_sweep.name;
    insert into leasehold.audit (actor, action, subject, detail)
    values (forget_sweep.actor, 'forget', 'sweep ' || forget_sweep.name, why);
    return true;
end $$;

-- Redrives dead rows: the watchdog, which alone may do that, resets them at its next turn, which is
-- now. Their failures are counted from the start. Null keys: all dead rows of the sweep. Returns the
-- keys.
create or replace function leasehold_internal.redrive_sweep(
    name text, keys text[], actor text, up_to int default 10000, why text default null
)
returns setof text
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
declare
    moved text[];
begin
    with picked as materialized (
        select f.key from leasehold_internal.sweep_failure f
         where f.sweep = redrive_sweep.name and f.dead_at is not null and (keys is null or f.key = any (keys))
         order by f.key limit up_to for update skip locked
    ), back as (
        update leasehold_internal.sweep_failure f
           set dead_at = null, attempts = 0, retry_at = statement_timestamp()
         where f.sweep = redrive_sweep.name and f.key = any (array(select p.key from picked p))
           and f.dead_at is not null
        returning f.key)
    select coalesce(array_agg(b.key order by b.key), '{}') into moved from back b;
    if moved <> '{}' then
        update leasehold_internal.sweep s set watchdog_ran_at = null where s.name = redrive_sweep.name;
        insert into leasehold.audit (actor, action, subject, detail)
        values (actor, 'redrive', cardinality(moved) || ' rows of sweep ' || redrive_sweep.name,
                concat_ws(': ', why, left(moved::text, 1000)));
    end if;
    return query select unnest(moved);
end $$;

-- Sweeps with their state by name and the rows that failed, each count up to ten thousand.
create or replace view leasehold.sweeps as
select s.name, s.table_name,
       case when s.paused_at is not null then 'paused'
            when s.run_started_at is not null and s.run_ended_at is null then 'running'
            when s.next_run_at <= statement_timestamp() then 'due'
            else 'idle' end as state,
       s.cron, s.zone, s.every, s.next_run_at, s.run_started_at, s.run_ended_at, s.watchdog_ran_at,
       s.paused_at, s.paused_by, s.paused_why, s.rows_claimed, s.rows_finished, s.rows_failed,
       s.rows_lost, s.rows_reset, 
       (select count(*) from (select from leasehold_internal.sweep_failure f
         where f.sweep = s.name and f.retry_at is not null limit 10000) c) as failing,
       (select count(*) from (select from leasehold_internal.sweep_failure f
         where f.sweep = s.name and f.dead_at is not null limit 10000) c) as dead
  from leasehold_internal.sweep s;

-- What a mirror does in the database. The library generates the statements on the mirrored table for
-- each table; these functions keep the changes, the deletions, the check and the rebuild.

-- Returns the fingerprint of a key in a version: 52 bits, the same as the library's `fingerprint`.
create or replace function leasehold_internal.fingerprint(key text, version bigint)
returns bigint
language sql immutable strict parallel safe as $$
    select ('x' || encode(substring(sha256(convert_to(key || ':' || version, 'UTF8')) from 1 for 7),
                          'hex'))::bit(56)::bigint >> 4
$$;

-- Declares a mirror. Repeating the same declaration changes nothing of its check or its rebuild. A new
-- queue gets the claim size of the mirror; an existing queue keeps its own.
create or replace function leasehold_internal.declare_mirror(
    name text, table_name text, key_column text, key_kind text, version_column text, queue text,
    job_name text, job_field text, after interval, keep interval, every interval, range_rows int,
    claim_size int
)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold_internal.queue (name, claim_size) values (declare_mirror.queue, declare_mirror.claim_size)
    on conflict (name) do nothing;
    insert into leasehold_internal.mirror as m
        (name, table_name, key_column, key_kind, version_column, queue, job_name, job_field,
         verify_after, tombstones, check_every, range_rows)
    values (declare_mirror.name, declare_mirror.table_name, declare_mirror.key_column, declare_mirror.key_kind, declare_mirror.version_column, declare_mirror.queue, declare_mirror.job_name, declare_mirror.job_field, after, keep,
            every, declare_mirror.range_rows)
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

-- Returns the idempotency key under which the changes of one row become one job. A key that looks like
-- a hash is hashed too: otherwise it would be the mark of the row whose key has that hash.
create or replace function leasehold_internal.mirror_mark(mirror text, key text)
returns text
language sql immutable set search_path = leasehold, pg_temp as $$
    select case when octet_length(mirror_mark.mirror) + octet_length(key) <= 180 and key not like 'sha256:%'
                then 'mirror:' || mirror_mark.mirror || ':' || key
                else 'mirror:' || mirror_mark.mirror || ':sha256:'
                     || encode(sha256(convert_to(key, 'UTF8')), 'hex') end
$$;

-- Returns the kwargs of a job for one row. Stores see integers with leading zeros; kwargs hold plain
-- numbers.
create or replace function leasehold_internal.mirror_kwargs(kind text, field text, key text)
returns jsonb
language sql immutable set search_path = leasehold, pg_temp as $$
    select jsonb_build_object(
        field, case kind when 'integer' then to_jsonb(key::bigint) else to_jsonb(key) end)
$$;

-- Records deletions, in the transaction that makes them.
create or replace function leasehold_internal.mirror_bury(mirror text, keys text[], versions bigint[])
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    insert into leasehold_internal.mirror_gone as g (mirror, key, version)
    select mirror_bury.mirror, r.key, max(r.version)
      from unnest(keys, versions) as r (key, version) group by r.key order by r.key collate "C"
    on conflict on constraint mirror_gone_pkey do update
        set version = greatest(g.version, excluded.version), gone_at = statement_timestamp();
end $$;

-- Enqueues jobs for rows that changed, in the transaction that changed them: one per row. `former_versions` are
-- the versions that the rows had; null for a row that did not exist. `deletions` are given for rows
-- that are deleted: versions above those that the rows had.
--
-- A change joins the job of an earlier one while that job waits: the lock on it keeps every claim away
-- until this transaction ends, so that the next claim sees the change. A job that is running, or that
-- another transaction has locked, may have read the row before this change: a new one is enqueued.
-- Nothing here waits for a lock that another transaction may hold for long. A statement that changes
-- many rows enqueues jobs without keys; a pass handles each row once, however many jobs name it.
--
-- Above READ COMMITTED no change joins a job either. A claim that has touched the job since the
-- snapshot would fail the save with a conflict in a table that the caller does not know.
--
-- A job keeps the version that its row had before the first of its changes, and whether that was a
-- deletion: the check excuses a row with a fresh job only if the store holds at least that.
create or replace function leasehold_internal.mirror_saved(
    mirror text, keys text[], former_versions bigint[], deletions bigint[] default null
)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    m leasehold_internal.mirror;
    joins constant boolean := current_setting('transaction_isolation') = 'read committed';
    due timestamptz;
    late timestamptz;
    with_tag text;
    with_priority int;
    one text;
    stored jsonb;
    mark text;
    arguments jsonb;
    made bigint;
    known bigint;
    keyed boolean;
begin
    if coalesce(cardinality(keys), 0) = 0 then
        return;
    end if;
    select * into m from leasehold_internal.mirror w where w.name = mirror_saved.mirror;
    if not found then
        return; -- The mirror was removed. One that is declared again compares every row.
    end if;
    perform from unnest(keys) as k (key) where k.key = '' or octet_length(k.key) > 400;
    if found then
        raise exception 'a row of % has a key that mirror % cannot use', m.table_name, m.name
            using errcode = 'LH002', hint = 'A key has 1 to 400 bytes.';
    end if;
    if deletions is not null then
        if joins then
            perform leasehold_internal.mirror_bury(m.name, keys, deletions);
        else
            perform leasehold_internal.mirror_bury_apart(m.name, keys, deletions);
        end if;
    end if;
    due := statement_timestamp() + m.verify_after;
    late := due + interval '30 days';
    with_tag := coalesce(nullif(current_setting('leasehold.tag', true), ''), 'mirror.' || m.name);
    if octet_length(with_tag) > 200 then
        with_tag := left(with_tag, 50);
    end if;
    with_priority := coalesce(nullif(current_setting('leasehold.priority', true), '')::int, 1);
    if cardinality(keys) > 100 or not joins then
        insert into leasehold.job
            (name, kwargs, queue, priority, scheduled_at, expires_at, tag, max_attempts)
        select m.job_name,
               -- These have no mark, and the check must tell them from jobs that change nothing.
               '{"changed": true}'::jsonb || k.stored
                   || leasehold_internal.mirror_kwargs(m.key_kind, m.job_field, k.key),
               m.queue, with_priority,
               -- The direct path writes no more than this: there is nothing to wait for.
               case when cardinality(keys) > 100 then statement_timestamp() else due end,
               late, with_tag, 2147483647
          from leasehold_internal.mirror_former_versions(m.name, keys, former_versions) k;
        return;
    end if;
    for one, stored in
        select k.key, k.stored from leasehold_internal.mirror_former_versions(m.name, keys, former_versions) k order by 1
    loop
        mark := leasehold_internal.mirror_mark(m.name, one);
        arguments := leasehold_internal.mirror_kwargs(m.key_kind, m.job_field, one);
        made := nextval('leasehold.job_id_seq');
        -- The transaction that changes a row has locked it, so no other one inserts the same key now.
        insert into leasehold_internal.idempotency_key as i (queue, key, job_id, request_hash, holds_until)
        values (m.queue, mark, made, leasehold_internal.request_hash(m.job_name, arguments),
                statement_timestamp())
        on conflict on constraint idempotency_key_pkey do nothing;
        keyed := found;
        if not keyed then
            select i.job_id into known from leasehold_internal.idempotency_key i
             where i.queue = m.queue and i.key = mark for update skip locked;
            if found then
                perform from leasehold.job j
                 where j.id = known and not j.held and j.lost_count = 0 and not j.cancel_requested
                   -- A job that is about to expire would lose the change.
                   and j.expires_at > due + interval '15 days'
                   for update skip locked;
                if found then
                    -- However long the job was deferred before: this change is new.
                    update leasehold.job j
                       set priority = least(j.priority, with_priority), deferred = false,
                           scheduled_at = least(j.scheduled_at, due)
                     where j.id = known
                       and (j.deferred or j.priority > with_priority or j.scheduled_at > due);
                    continue;
                end if;
                update leasehold_internal.idempotency_key i
                   set job_id = made, request_hash = leasehold_internal.request_hash(m.job_name, arguments),
                       holds_until = statement_timestamp()
                 where i.queue = m.queue and i.key = mark;
                keyed := true;
            end if;
        end if;
        insert into leasehold.job
            (id, name, kwargs, queue, priority, scheduled_at, expires_at, tag, max_attempts,
             idempotency_key)
        overriding system value
        values (made, m.job_name, stored || arguments, m.queue, with_priority, due, late, with_tag,
                2147483647, case when keyed then mark end);
    end loop;
end $$;

-- Returns each key once, with what its job keeps of the row before the change. Empty: not known.
create or replace function leasehold_internal.mirror_former_versions(mirror text, keys text[], former_versions bigint[])
returns table (key text, stored jsonb)
language plpgsql stable set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select u.key collate "C",
           case when former_versions is null then '{}'::jsonb
                when bool_and(u.before is null) and max(g.version) is not null
                then jsonb_build_object('before', max(g.version), 'gone', true)
                else jsonb_build_object('before', coalesce(min(u.before), 0)) end
      from unnest(keys, former_versions) as u (key, before)
      left join leasehold_internal.mirror_gone g
        on u.before is null and g.mirror = mirror_former_versions.mirror and g.key = u.key
     group by 1;
end $$;

-- As `mirror_bury`, above READ COMMITTED. This transaction cannot raise a tombstone that a worker has
-- written since the snapshot; the tombstone stays, and a pass raises it above what the store holds.
create or replace function leasehold_internal.mirror_bury_apart(mirror text, keys text[], versions bigint[])
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    one record;
begin
    begin
        perform leasehold_internal.mirror_bury(mirror_bury_apart.mirror, keys, versions);
        return;
    exception when serialization_failure then null;
    end;
    for one in select r.key, r.version from unnest(keys, versions) as r (key, version)
                order by r.key collate "C" loop
        begin
            perform leasehold_internal.mirror_bury(
                mirror_bury_apart.mirror, array[one.key], array[one.version]);
        exception when serialization_failure then null;
        end;
    end loop;
end $$;

-- As `mirror_saved`, for triggers of an earlier release, which do not pass the former versions of the
-- rows.
create or replace function leasehold_internal.mirror_changed(mirror text, keys text[])
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select leasehold_internal.mirror_saved(mirror_changed.mirror, keys, null)
$$;

create or replace function leasehold_internal.mirror_removed(mirror text, keys text[], versions bigint[])
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select leasehold_internal.mirror_saved(mirror_removed.mirror, keys, null, versions)
$$;

-- Returns rows that are inserted under a deleted key, with the version of the deletion. Called after
-- the insert: only then has it waited for a transaction that deletes the same key.
create or replace function leasehold_internal.mirror_restored(mirror text, keys text[])
returns table (key text, version bigint)
language sql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    select g.key, g.version from leasehold_internal.mirror_gone g
     where g.mirror = mirror_restored.mirror and g.key = any (keys)
$$;

-- Enqueues jobs that write rows again, due now. `force`: even if the store has them.
create or replace function leasehold_internal.reindex_mirror(
    name text, keys text[], tag text default 'reindex', priority int default 100,
    force boolean default false
)
returns bigint
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
declare
    m leasehold_internal.mirror;
    made bigint;
begin
    select * into m from leasehold_internal.mirror where name = reindex_mirror.name;
    if not found then
        raise exception 'there is no mirror %', quote_literal(reindex_mirror.name)
            using errcode = 'LH002', hint = 'See which there are: select name from leasehold.mirrors.';
    end if;
    insert into leasehold.job (name, kwargs, queue, priority, tag, max_attempts)
    select m.job_name,
           leasehold_internal.mirror_kwargs(m.key_kind, m.job_field, k.key)
               || case when force then '{"force": true}'::jsonb else '{}'::jsonb end,
           m.queue, reindex_mirror.priority, reindex_mirror.tag, 2147483647
      from unnest(keys) as k (key);
    get diagnostics made = row_count;
    return made;
end $$;

-- Makes deferred jobs due after the store has recovered, up to `up_to`. Returns how many.
create or replace function leasehold_internal.mirror_recovered(mirror text, up_to int default 5000)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    moved int;
begin
    update leasehold.job j set scheduled_at = statement_timestamp()
     where j.id = any (array(
            select w.id from leasehold_internal.mirror m
              join leasehold.job w on w.queue = m.queue and w.name = m.job_name
             where m.name = mirror_recovered.mirror and w.deferred and not w.held
               and w.scheduled_at > statement_timestamp()
             -- Jobs that failed by themselves keep waiting.
               and w.attempts = 0
             limit up_to for update of w skip locked))
       and not j.held;
    get diagnostics moved = row_count;
    return moved;
end $$;

-- What the check of a mirror stores: its cursor, what it found, its counts and which deletions may be
-- forgotten.

-- Takes the next range of a mirror's check. Returns no row if the range is not due or is being checked.
-- A checker that dies blocks the range for two minutes.
create or replace function leasehold_internal.claim_check(name text)
returns table (token bigint, after text, round_started_at timestamptz)
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold_internal.mirror m
       set check_token = leasehold_internal.next_generation(),
           check_busy_until = statement_timestamp() + interval '2 minutes',
           round_started_at = case when m.check_after is null then statement_timestamp()
                                   else m.round_started_at end,
           round_rows = case when m.check_after is null then 0 else m.round_rows end,
           round_repaired = case when m.check_after is null then 0 else m.round_repaired end
     where m.name = claim_check.name
       and (m.check_due_at <= statement_timestamp()
            -- The clock was set back.
            or m.check_due_at > statement_timestamp() + m.check_every + interval '1 minute')
       and (m.check_busy_until is null or m.check_busy_until <= statement_timestamp()
            or m.check_busy_until > statement_timestamp() + interval '10 minutes')
    returning m.check_token, m.check_after, m.round_started_at
$$;

-- Ends a range of the check. `next_after` null: the round is over, and its result is published. Returns
-- false if it took too long, and another worker has taken the range.
create or replace function leasehold_internal.end_check(
    name text, token bigint, next_after text, rows bigint, repaired bigint,
    pause interval
)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
declare
    m leasehold_internal.mirror;
begin
    update leasehold_internal.mirror c
       set check_after = next_after, check_busy_until = null,
           check_due_at = statement_timestamp() + pause,
           round_rows = c.round_rows + end_check.rows, round_repaired = c.round_repaired + end_check.repaired
     where c.name = end_check.name and c.check_token = end_check.token
    returning * into m;
    if not found then
        return false;
    end if;
    if next_after is null then
        perform leasehold_internal.publish_check(end_check.name, m.round_started_at, m.round_rows, m.round_repaired);
    end if;
    return true;
end $$;

-- Publishes the result of a whole round: equal as of its start, if no difference is left, and if the
-- store has searched one set all that time. A comparison with a set that was lost since proves nothing.
create or replace function leasehold_internal.publish_check(
    name text, began timestamptz, rows bigint, repaired bigint
)
returns timestamptz
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold_internal.mirror m
       set compared_at = statement_timestamp(), rows_compared = publish_check.rows, repaired = publish_check.repaired,
           repaired_total = m.repaired_total + publish_check.repaired, rounds = m.rounds + 1,
           differences = d.found, oldest_difference = d.oldest,
           equal_as_of = case when d.found = 0 and (m.adopted_at is null or m.adopted_at < began)
                              then greatest(m.equal_as_of, began) else m.equal_as_of end
      from (select count(*) as found, min(first_seen) as oldest
              from leasehold_internal.mirror_difference where mirror = publish_check.name) d
     where m.name = publish_check.name
    returning m.equal_as_of
$$;

-- Returns which of these rows have jobs. For jobs that change the row: since when the oldest waits,
-- which version the row had before it and whether that was a deletion; `known` false: one of them does
-- not record the version. Jobs are read once, by their queue, and joined with the rows, never once per
-- row.
create or replace function leasehold_internal.mirror_waiting(mirror text, keys text[])
returns table (key text, since timestamptz, before numeric, gone boolean, known boolean)
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off
set enable_nestloop = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    m leasehold_internal.mirror;
begin
    if cardinality(keys) = 0 then
        return;
    end if;
    select * into m from leasehold_internal.mirror w where w.name = mirror_waiting.mirror;
    return query
    select n.key, min(n.at), min(n.before), (array_agg(n.gone order by n.before))[1],
           coalesce(bool_and(n.before is not null) filter (where n.at is not null), false)
      from (select k.key,
                   case when c.changes then j.enqueued_at end as at,
                   case when c.changes and jsonb_typeof(j.kwargs -> 'before') = 'number'
                        then (j.kwargs -> 'before')::numeric end as before,
                   case when c.changes then j.kwargs ? 'gone' end as gone
              from unnest(keys) as k (key)
              join leasehold.job j
                on j.kwargs ->> m.job_field
                   = leasehold_internal.mirror_kwargs(m.key_kind, m.job_field, k.key) ->> m.job_field
             cross join lateral (select j.kwargs ? 'changed'
                     or j.idempotency_key = leasehold_internal.mirror_mark(m.name, k.key) as changes) c
             where j.queue = m.queue and j.name = m.job_name) n
     group by n.key;
end $$;

-- Records differences, and enqueues a job for each row that has none. A row that changed since the
-- round began is not a difference yet, because its own job will write it. But that is only so if no
-- older change waits, and if the store holds at least the version from before that job. Otherwise a
-- change that was made before the round is missing from the store, whatever became of its job. A row
-- that stays different gets another job a minute later, then after two, up to a day.
--
-- If more jobs wait than can be read in a second, every row that differs counts as different, and none
-- gets a job: it may have one.
create or replace function leasehold_internal.mirror_differs(
    mirror text, began timestamptz, keys text[], kinds text[], sources bigint[], held_versions bigint[]
)
returns table (different int, made int)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    m leasehold_internal.mirror;
    wanted text[];
    too_many boolean;
begin
    select * into m from leasehold_internal.mirror where name = mirror_differs.mirror;
    too_many := (select count(*) from (
        select from leasehold.job j where j.queue = m.queue limit 500001) c) > 500000;
    with marked as materialized (
        select a.key, a.kind, a.source, a.held, j.enqueued_at as since
          from unnest(keys, kinds, sources, held_versions) as a (key, kind, source, held)
          left join leasehold_internal.idempotency_key i
            on i.queue = m.queue and i.key = leasehold_internal.mirror_mark(m.name, a.key)
          left join leasehold.job j on j.id = i.job_id
    ), asked as materialized (
        -- A mark names the newest job of a row; an older one may be running at the same time.
        select a.key, a.kind, a.source, a.held,
               a.since is not null or p.key is not null or too_many as has_job,
               coalesce(least(a.since, p.since) >= began and p.known
                        and ((p.gone and a.kind = 'missing') or coalesce(a.held, 0) >= p.before),
                        false) as is_on_its_way
          from marked a
          left join leasehold_internal.mirror_waiting(
                        m.name, array(select n.key from marked n
                                       where not too_many and (n.since is null or n.since >= began))) p
            on p.key = a.key
    ), noted as (
        insert into leasehold_internal.mirror_difference as d
            (mirror, key, kind, source_version, held_version, repairs, repaired_at)
        select m.name, a.key, a.kind, a.source, a.held,
               case when a.has_job then 0 else 1 end,
               case when a.has_job then null else statement_timestamp() end
          from asked a where not a.is_on_its_way
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
    made := leasehold_internal.reindex_mirror(m.name, wanted, 'mirror.repair', 50);
    return next;
end $$;

-- Removes the differences of a range that was seen equal, except for the given keys. `looked` is the
-- database's time before the comparison began. A difference that was recorded since stays: another
-- check saw it after this one compared the row.
create or replace function leasehold_internal.mirror_equal(
    mirror text, after text, up_to text, but text[], looked timestamptz
)
returns void
language sql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    delete from leasehold_internal.mirror_difference d
     -- No key is empty. A range without an end gets the last difference as its end, so that the index
     -- finds both ends.
     where d.mirror = mirror_equal.mirror and d.key > coalesce(after, '')
       and d.key <= coalesce(up_to, (select max(l.key) from leasehold_internal.mirror_difference l
                                      where l.mirror = mirror_equal.mirror))
       and d.last_seen < looked
       and not exists (select from unnest(but) as b (key) where b.key = d.key)
$$;

-- Removes the differences of rows that were seen equal, and not before `looked`: see `mirror_equal`.
create or replace function leasehold_internal.mirror_seen(mirror text, keys text[], looked timestamptz)
returns void
language sql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    delete from leasehold_internal.mirror_difference d
     where d.mirror = mirror_seen.mirror and d.key = any (keys) and d.last_seen < looked
$$;

-- Returns deletions that are old enough to be forgotten.
create or replace function leasehold_internal.mirror_old_gone(mirror text, up_to int default 1000)
returns table (key text, version bigint)
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select g.key, g.version
      from leasehold_internal.mirror m
      join leasehold_internal.mirror_gone g on g.mirror = m.name
     where m.name = mirror_old_gone.mirror and g.gone_at < statement_timestamp() - m.tombstones
     order by g.gone_at limit up_to
$$;

-- Removes deletions that the store has forgotten. One that was renewed meanwhile stays.
create or replace function leasehold_internal.mirror_forgotten(mirror text, keys text[], versions bigint[])
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
declare
    gone int;
begin
    delete from leasehold_internal.mirror_gone g where g.ctid = any (array(
        select o.ctid from unnest(keys, versions) as f (key, version)
          join leasehold_internal.mirror_gone o on o.mirror = mirror_forgotten.mirror and o.key = f.key
                                       and o.version = f.version
           for update of o skip locked));
    get diagnostics gone = row_count;
    return gone;
end $$;

-- Records a deletion above a version, for a key without a tombstone or with an older one. One row per
-- call: a caller that locked several could deadlock with a transaction that locks them in another order.
-- Returns the version.
create or replace function leasehold_internal.mirror_entomb(mirror text, key text, above bigint)
returns bigint
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold_internal.mirror_gone as g (mirror, key, version)
    values (mirror_entomb.mirror, mirror_entomb.key, above + 1)
    on conflict (mirror, key) do update
        set version = greatest(g.version, excluded.version), gone_at = statement_timestamp()
    returning g.version
$$;

-- Counts what a pass did, for the measures of each minute.
create or replace function leasehold_internal.mirror_tally(
    mirror text, queue text, tags text[], events text[], counts bigint[]
)
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    insert into leasehold_internal.tally (queue, tag, what, n, subject)
    select mirror_tally.queue, t.tag, t.what, t.n, mirror_tally.mirror from unnest(tags, events, counts) as t (tag, what, n);
end $$;

-- Which sets of documents a mirror has, how far a rebuild is, and the orders of operators.

-- Records which set of documents is searched, if none is recorded yet. Returns the recorded one.
create or replace function leasehold_internal.mirror_serves(name text, serving text)
returns text
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    update leasehold_internal.mirror m set serving = mirror_serves.serving where m.name = mirror_serves.name and m.serving is null;
    return (select m.serving from leasehold_internal.mirror m where m.name = mirror_serves.name);
end $$;

-- Records that the store searches another set: it was lost and created anew, or an operator swapped it
-- by hand. The check fills what is missing, in a new round: ranges that were compared with the former
-- set prove nothing about this one.
create or replace function leasehold_internal.mirror_adopts(name text, former text, serving text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    update leasehold_internal.mirror m
       set serving = mirror_adopts.serving,
           second = case when m.second = mirror_adopts.serving then m.serving else m.second end,
           adopted_at = statement_timestamp(), check_token = leasehold_internal.next_generation(),
           check_after = null, check_busy_until = null, check_due_at = statement_timestamp()
     where m.name = mirror_adopts.name and m.serving = mirror_adopts.former
       and (m.phase = 'none' or (m.phase = 'swapped' and m.second = mirror_adopts.serving));
    return found;
end $$;

-- Begins a rebuild: from now on every write goes to the second set too. Returns false if there is one
-- already.
create or replace function leasehold_internal.begin_rebuild(name text, second text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    update leasehold_internal.mirror m
       set second = begin_rebuild.second, phase = 'building', rebuild_after = null, rebuild_rows = 0,
           rebuild_started_at = statement_timestamp(), rebuild_ended_at = null
     where m.name = begin_rebuild.name and m.phase = 'none';
    return found;
end $$;

-- Records that the second set has the rows up to a key; null: all. Returns false if another worker has
-- continued from there.
create or replace function leasehold_internal.note_rebuild(
    name text, second text, key text, to_key text, rows bigint
)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    update leasehold_internal.mirror m
       set rebuild_after = to_key, rebuild_rows = m.rebuild_rows + note_rebuild.rows,
           phase = case when to_key is null then 'verifying' else 'building' end
     where m.name = note_rebuild.name and m.second = note_rebuild.second and m.phase = 'building'
       and m.rebuild_after is not distinct from note_rebuild.key;
    return found;
end $$;

-- Records that searches use the second set; the former one is kept and still gets every write. A call
-- with the former set swaps back; a repeated call changes nothing and returns false.
create or replace function leasehold_internal.note_swap(name text, to_set text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    update leasehold_internal.mirror m
       set serving = m.second, second = m.serving, phase = 'swapped',
           rebuild_ended_at = coalesce(m.rebuild_ended_at, statement_timestamp())
     where m.name = note_swap.name and m.second = to_set and m.phase in ('verifying', 'swapped');
    return found;
end $$;

-- Ends writes to the second set. Returns its name; null: there was none.
create or replace function leasehold_internal.drop_second(name text)
returns text
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
declare
    dropped text;
begin
    select m.second into dropped from leasehold_internal.mirror m where m.name = drop_second.name for update;
    update leasehold_internal.mirror m
       set second = null, phase = 'none', rebuild_after = null
     where m.name = drop_second.name and m.second is not null;
    return dropped;
end $$;

-- Orders a worker that has the store to do something with it. Ordered twice, it is done once. A
-- rollback names its set: a second worker that repeats it, after the first one died, must not swap
-- again. Returns the id of the job; null: there is no such mirror.
create or replace function leasehold_internal.order_mirror(name text, what text, actor text, why text default null)
returns bigint
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
declare
    m leasehold_internal.mirror;
    made bigint;
begin
    if what not in ('check', 'rebuild', 'rollback', 'drop') then
        raise exception 'a mirror cannot be told to %', quote_literal(what)
            using errcode = 'LH002', hint = 'Use check, rebuild, rollback or drop.';
    end if;
    select * into m from leasehold_internal.mirror where name = order_mirror.name;
    if not found then
        return null;
    end if;
    select e.job_id into made from leasehold.enqueue(
        name => 'mirror.' || m.name || '.order', kwargs => jsonb_build_object('do', what)
            || case when what = 'rollback' then
                   jsonb_build_object('to', case when m.phase = 'swapped' then m.second end)
               else '{}' end,
        queue => m.queue, tag => 'mirror.order', priority => 0,
        -- No mark of a row begins like this.
        key => 'mirror-order:' || m.name || ':' || what, key_ttl => interval '0') e;
    insert into leasehold.audit (actor, action, subject, detail) values (actor, what, 'mirror ' || m.name, why);
    return made;
end $$;

-- Mirrors with their state by name.
create or replace view leasehold.mirrors as
select m.name, m.table_name, m.queue, m.job_name, m.phase, m.serving, m.second, m.rebuild_rows,
       m.rebuild_started_at, m.rebuild_ended_at, m.round_started_at, m.round_rows, m.compared_at,
       m.rows_compared, m.repaired, m.repaired_total, m.rounds, m.equal_as_of,
       d.found as differences, d.oldest as oldest_difference,
       (select count(*) from leasehold_internal.mirror_gone g where g.mirror = m.name) as tombstones
  from leasehold_internal.mirror m
 cross join lateral (
        select count(*) as found, min(first_seen) as oldest
          from leasehold_internal.mirror_difference f where f.mirror = m.name) d;

-- Returns what keeps Postgres from removing dead rows here, the one that holds it back furthest first:
-- sessions, prepared transactions, replication slots and standbys, each with its remedy. No text of a
-- query: it may hold a secret. `xids` counts the transactions that have begun since.
--
-- Every role may see the ids of a session's transaction. Its start, its state and its kind are visible
-- only to roles that may read statistics (grant the owner of these functions pg_read_all_stats); slots
-- and standbys never have them. Then the age is a lower bound, computed from the transaction ids in the
-- samples of the last day.
create or replace function leasehold_internal.vacuum_holders()
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
                 -- The server's own processes have no role.
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
                   || case when s.active then ', in use by pid ' || s.active_pid else ', not in use' end,
               case when s.active then 'look at the standby: hot_standby_feedback holds back for its queries'
                    else 'if no standby needs it: select pg_drop_replication_slot('
                         || quote_literal(s.slot_name) || ')' end,
               null, age(s.xmin)
          from pg_replication_slots s where s.xmin is not null
    )
    select h.kind, regexp_replace(h.who, '[[:cntrl:]]', '?', 'g'), h.remedy,
           greatest(extract(epoch from clock_timestamp() - coalesce(h.since, before.at)), 0)::double precision,
           h.behind::bigint
      from holder h
      left join lateral (
        -- Ids up to this one were assigned when that minute was sampled. One index lookup per minute,
        -- and only for holders without a start time.
        select coalesce(max(m.at) filter (where m.value <= next_xid - h.behind) + interval '2 minutes',
                        min(m.at)) as at
          from generate_series(date_trunc('minute', statement_timestamp()) - interval '24 hours',
                               date_trunc('minute', statement_timestamp()), interval '1 minute') as g (minute)
         cross join lateral (
            select s.at, s.value from leasehold_internal.measure s
             where s.at = g.minute and s.kind = 'database' and s.subject = '' and s.metric = 'next_xid'
             limit 1) m
         where h.since is null) before on true
     order by h.behind desc nulls last, 4 desc;
end $$;

-- Self-measurement. One process of the fleet takes one sample per minute; its cost is bounded, however
-- many jobs the queues hold: see each function.

-- Returns whether a minute has passed since the last sample. Cheap, because every process asks often.
create or replace function leasehold_internal.sample_due()
returns boolean
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select exists (
        select from leasehold_internal.duty d
         where d.name = 'measure'
           and (d.ran_at < date_trunc('minute', statement_timestamp())
                -- The clock was set back.
                or d.ran_at > statement_timestamp() + interval '1 minute'))
$$;

-- Begins the sample of the minute that has just ended and returns that minute; null: another process
-- takes it, or has taken it. The caller owns the minute until its transaction ends: a sampler that dies
-- leaves no partial sample, and another process takes the minute.
create or replace function leasehold_internal.begin_sample()
returns timestamptz
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    this_minute timestamptz := date_trunc('minute', statement_timestamp());
begin
    perform from leasehold_internal.duty d
     where d.name = 'measure'
       and (d.ran_at < this_minute or d.ran_at > statement_timestamp() + interval '1 minute')
       for update skip locked;
    return case when found then this_minute - interval '1 minute' end;
end $$;

-- Measures one part of a sample. The caller gives each part its own savepoint and timeout: a part that
-- fails is missing in this minute, and no other part is. A success is recorded, because then a missing
-- row means zero, and otherwise it means unknown. `end_sample` ends the whole minute.
create or replace function leasehold_internal.measure_part(part text, minute timestamptz)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set jit = off as $$
declare
    following timestamptz := minute + interval '1 minute';
    -- When this part was last measured. The duty's own time is that of the last sample.
    before timestamptz := coalesce(
        (select max(m.at) + interval '1 minute' from leasehold_internal.measure m
          where m.kind = 'database' and m.metric = part || '_sampled' and m.at < minute),
        (select d.ran_at from leasehold_internal.duty d where d.name = 'measure'));
begin
    case part
        when 'vacuum' then perform leasehold_internal.measure_vacuum(minute);
        when 'mirrors' then perform leasehold_internal.measure_mirrors(minute);
        when 'flows' then
            -- Two minutes more than were read: a transaction that was open then may have committed
            -- since.
            perform leasehold_internal.measure_flows(
                greatest(least(before, minute) - interval '2 minutes', following - interval '1 hour'),
                following);
        when 'queues' then perform leasehold_internal.measure_queues(minute);
        when 'ages' then perform leasehold_internal.measure_ages(minute);
        when 'sweeps' then perform leasehold_internal.measure_sweeps(minute);
        when 'tables' then perform leasehold_internal.measure_tables(minute);
        when 'hours' then perform leasehold_internal.measure_hours(before, following);
        else
            raise exception 'a sample has no part %', quote_literal(part)
                using errcode = 'LH002',
                      hint = 'Use vacuum, mirrors, flows, queues, ages, sweeps, tables or hours.';
    end case;
    insert into leasehold_internal.measure (at, kind, subject, metric, flow, value)
    values (minute, 'database', '', part || '_sampled', false, 1)
    on conflict (at, kind, subject, metric) do nothing;
end $$;

-- Ends the sample of a minute.
create or replace function leasehold_internal.end_sample(minute timestamptz)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold_internal.duty d set ran_at = minute + interval '1 minute' where d.name = 'measure'
$$;

-- Takes the whole sample in one statement, all or nothing, for callers of plain SQL. Returns the
-- minute; null: another process takes it, or has taken it.
create or replace function leasehold_internal.sample()
returns timestamptz
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set jit = off as $$
declare
    minute timestamptz := leasehold_internal.begin_sample();
    part text;
begin
    if minute is null then
        return null;
    end if;
    foreach part in array array['vacuum', 'mirrors', 'flows', 'queues', 'ages', 'sweeps', 'tables', 'hours'] loop
        perform leasehold_internal.measure_part(part, minute);
    end loop;
    perform leasehold_internal.end_sample(minute);
    return minute;
end $$;

-- Returns a tag with its queue or mirror, in one text: `mail/api`. The part before the first slash is
-- the queue or the mirror: a slash in its name becomes %2F.
create or replace function leasehold_internal.tag_subject(whose text, tag text)
returns text
language sql immutable as $$
    select replace(replace(whose, '%', '%25'), '/', '%2F') || '/' || tag
$$;

-- Counts what happened in each minute. Reading a minute again gives the same or more, so it may be read
-- any number of times.
create or replace function leasehold_internal.measure_flows(since timestamptz, before timestamptz)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
begin
    insert into leasehold_internal.measure as m (at, kind, subject, metric, flow, value)
    with batch as materialized (
        select date_trunc('minute', h.finished_at) as at, h.queue, h.outcome, h.tags,
               -- Most batches have one tag, and need not be unnested.
               h.tags[1] = all (h.tags) as alike
          from leasehold_internal.history h
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
              from leasehold_internal.tally t where t.at >= since and t.at < before) every
         group by at, queue, tag, subject, what
    ), ranked as (
        -- Only the 30 busiest tags are kept; the rest are summed under '(others)', so that one tag per
        -- job cannot blow up the series.
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
           leasehold_internal.tag_subject(case when subject = '' then queue else subject end,
                                 case when place <= 30 then tag else '(others)' end),
           what, true, sum(n)
      from ranked group by 1, 2, 3, 4
    on conflict (at, kind, subject, metric) do update set value = greatest(m.value, excluded.value);
end $$;

-- The state of the queues at the end of a minute.

-- Returns whether a tag matches one of the patterns; `reindex_*` matches every tag with that prefix.
create or replace function leasehold_internal.is_bulk(tag text, patterns text[])
returns boolean
language sql immutable set search_path = leasehold, pg_temp as $$
    select exists (select from unnest(patterns) as p (pattern)
                    where tag = p.pattern
                       or (right(p.pattern, 1) = '*' and starts_with(tag, left(p.pattern, -1))))
$$;

-- Returns queues that have jobs. Hops from one to the next in the index; never reads the jobs between.
create or replace function leasehold_internal.waiting_queues()
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
    select hop.queue from hop where hop.queue is not null limit 5000;
end $$;

-- The same for queues that have dead jobs.
create or replace function leasehold_internal.dead_queues()
returns setof text
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    return query
    with recursive hop (queue) as (
        (select d.queue from leasehold_internal.dead_job d order by d.queue limit 1)
        union all
        select (select d.queue from leasehold_internal.dead_job d where d.queue > hop.queue order by d.queue limit 1)
          from hop where hop.queue is not null
    )
    select hop.queue from hop where hop.queue is not null limit 5000;
end $$;

-- Measures the queues. Reads at most `most_pages` pages of the jobs, whatever dead rows they hold: of a
-- larger table it reads a share of the pages, and records the extrapolated counts. `recount_queues`
-- corrects them for short and watched queues.
create or replace function leasehold_internal.measure_queues(minute timestamptz, most_pages bigint default 32768)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    -- From the file, not from the statistics: those are gone after a crash, and ignore dead rows.
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
        -- Queues with something to record. Settings alone do not count: a queue in which nothing
        -- happens costs no row.
        select c.queue from counted c join leasehold_internal.queue q on q.name = c.queue
        union (select c.queue from counted c group by c.queue order by sum(c.length) desc limit 500)
        union select q.name from leasehold_internal.queue q where q.paused_at is not null
        union select w.queue from leasehold_internal.watch w
        union select d.queue from leasehold_internal.dead_queues() as d (queue)
    ), tags as (
        select leasehold_internal.tag_subject(t.queue, case when t.place <= 30 then t.tag else '(others)' end) as subject,
               sum(t.length) * scale as length
          from (select c.*, row_number() over (partition by c.queue order by c.length desc, c.tag) as place
                  from counted c join known k on k.queue = c.queue) t
         group by 1
    ), noted as (
        insert into leasehold_internal.measure as m (at, kind, subject, metric, flow, value)
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
               coalesce(sum(c.length) filter (where not leasehold_internal.is_bulk(c.tag, coalesce(w.bulk_tags, '{}'))), 0)
                   * scale as watched_length
          from known k
          left join counted c on c.queue = k.queue
          left join leasehold_internal.watch w on w.queue = k.queue
         group by k.queue) s;
    perform leasehold_internal.note_queues(minute, standing);
end $$;

-- Counts the jobs of a queue by the index, in pieces; it is stable, so that all of them are read as of
-- the calling statement. Ends when there are no more (`whole`); when it has counted more than `most`
-- and, if `up_to` is given, more than that without bulk work; or at `deadline` (null: no time limit).
-- Internal.
create or replace function leasehold_internal.count_queue(
    queue text, bulk text[], most bigint, up_to bigint, deadline timestamptz,
    out whole boolean, out running bigint, out ready bigint, out scheduled bigint, out retrying bigint,
    out length bigint, out watched_length bigint
)
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    met record;
    -- Before the first job.
    last_deferred boolean := false;
    last_priority bigint := -2147483649;
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
            select j.deferred, j.priority, j.scheduled_at, j.id, j.tag, j.held, j.attempts
              from leasehold.job j
             where j.queue = count_queue.queue
               and (j.deferred, j.priority, j.scheduled_at, +j.id)
                   > (last_deferred, last_priority, last_at, last_id)
             order by j.deferred, j.priority, j.scheduled_at, +j.id
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
                   coalesce(sum(t.jobs) filter (where not leasehold_internal.is_bulk(t.tag, bulk)), 0) as watched
              from tags t
        )
        select s.*, l.deferred, l.priority, l.scheduled_at, l.id into met
          from sums s
          left join lateral (
            select p.deferred, p.priority, p.scheduled_at, p.id from piece p
             order by p.deferred desc, p.priority desc, p.scheduled_at desc, p.id desc limit 1) l on true;
        running := running + met.running;
        ready := ready + met.ready;
        scheduled := scheduled + met.scheduled;
        retrying := retrying + met.retrying;
        length := length + met.jobs;
        watched_length := watched_length + met.watched;
        whole := met.jobs <= most;
        exit when whole or (length > most and watched_length > coalesce(up_to, -1))
                  or clock_timestamp() > deadline;
        last_deferred := met.deferred;
        last_priority := met.priority;
        last_at := met.scheduled_at;
        last_id := met.id;
    end loop;
end $$;

-- Counts queues by the index where `measure_queues` read only a share of the pages: fifty jobs on one
-- page would count as none, or as five hundred. Short queues are counted whole. Queues with a length
-- threshold up to 100,000 are counted, without bulk work, until it is known whether they exceed it: no
-- estimate raises an alarm about their length. Returns how many were counted whole.
create or replace function leasehold_internal.recount_queues(minute timestamptz, most bigint default 1000)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    share double precision := (select m.value from leasehold_internal.measure m where m.at = minute
        and m.kind = 'database' and m.subject = '' and m.metric = 'jobs_looked_at_percent');
    -- The caller's timeout would roll back all of it, so it is not used up: queues without a threshold
    -- get 30 % of it, the others the next 30 %, and no single queue more than 20 %.
    timeout interval := nullif(current_setting('statement_timeout')::interval, interval '0');
    deadline timestamptz;
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
               -- For thresholds above 100,000 the share of the pages is exact enough.
               case when w.max_length <= 100000 and not w.off then w.max_length end as up_to
          from (select q.queue from leasehold_internal.waiting_queues() as q (queue)
                union select w.queue from leasehold_internal.watch w) k
          left join leasehold_internal.watch w on w.queue = k.queue
         order by up_to nulls first, k.queue
    loop
        deadline := statement_timestamp() + timeout * case when entry.up_to is null then 0.3 else 0.6 end;
        continue when entry.up_to is null and clock_timestamp() > deadline;
        select entry.queue as queue, c.* into counted
          from leasehold_internal.count_queue(entry.queue, entry.bulk_tags, most, entry.up_to,
                                     least(deadline, clock_timestamp() + timeout / 5)) c;
        -- Null: the pages held no job of the queue at all.
        guess := (select coalesce(max(m.value) filter (where m.metric = 'watched_length'), 0)
                    from leasehold_internal.measure m
                   where m.at = minute and m.kind = 'queue' and m.subject = entry.queue
                     and m.metric in ('length', 'watched_length')
                  having count(*) > 0);
        if counted.whole or guess is null then
            standing := standing || to_jsonb(counted);
            continue;
        end if;
        -- The length is at least the count, and otherwise the estimate from the pages; where the time
        -- ended before the threshold was exceeded, the estimate must not raise an alarm.
        if counted.watched_length <= entry.up_to then
            guess := least(guess, entry.up_to);
        end if;
        insert into leasehold_internal.measure as m (at, kind, subject, metric, flow, value)
        select minute, 'queue', entry.queue, 'watched_length', false, greatest(guess, counted.watched_length)
         where greatest(guess, counted.watched_length) > 0
        on conflict (at, kind, subject, metric) do update set value = excluded.value;
    end loop;
    perform leasehold_internal.note_queues(minute, standing);
    return jsonb_array_length(standing);
end $$;

-- Records the state of queues: the counts, and what else is known of each. Only values that are not
-- zero: in a minute that was sampled, a missing row means zero. Internal.
create or replace function leasehold_internal.note_queues(minute timestamptz, standing jsonb)
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
begin
    -- A second measurement of a minute replaces the first.
    delete from leasehold_internal.measure m
     where m.at = minute and m.kind = 'queue' and not m.flow and m.metric <> 'oldest_ready_age'
       and m.subject in (select q.queue from jsonb_to_recordset(standing) as q (queue text));
    insert into leasehold_internal.measure as m (at, kind, subject, metric, flow, value)
    with living as materialized (
        select q.queue, count(*) as workers
          from leasehold.workers w cross join lateral unnest(w.queues) as q (queue)
         where w.state = 'alive' group by q.queue
    ), noted as (
        select q.queue, v.metric, v.value,
               -- Workers that wait in a queue without jobs are not recorded with every minute.
               max(v.value) filter (where v.metric <> 'workers') over (partition by q.queue) as most
          from jsonb_to_recordset(standing) as q (queue text, running float8, ready float8, scheduled float8,
                                                  retrying float8, length float8, watched_length float8)
          left join living l on l.queue = q.queue
          left join leasehold_internal.queue s on s.name = q.queue
         cross join lateral (values
            ('running', q.running), ('ready', q.ready), ('scheduled', q.scheduled),
            ('retrying', q.retrying), ('length', q.length), ('watched_length', q.watched_length),
            ('workers', coalesce(l.workers, 0)),
            ('paused', case when s.paused_at is null then 0 else 1 end),
            ('dead', (select count(*) from (
                select from leasehold_internal.dead_job d
                 where d.queue = q.queue and d.cause <> 'expired' limit 10000) kept)),
            ('dead_expired', (select count(*) from (
                select from leasehold_internal.dead_job d
                 where d.queue = q.queue and d.cause = 'expired' limit 10000) kept))
         ) as v (metric, value)
    )
    select minute, 'queue', n.queue, n.metric, false, n.value from noted n where n.value > 0 and n.most > 0
    on conflict (at, kind, subject, metric) do update set value = excluded.value;
end $$;

-- Measures for how long the oldest ready job has waited, in every queue that has jobs.
create or replace function leasehold_internal.measure_ages(minute timestamptz)
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp set jit = off as $$
begin
    delete from leasehold_internal.measure m
     where m.at = minute and m.kind = 'queue' and m.metric = 'oldest_ready_age';
    insert into leasehold_internal.measure as m (at, kind, subject, metric, flow, value)
    select minute, 'queue', a.queue, 'oldest_ready_age', false, a.age
      from (select q.queue, leasehold_internal.oldest_ready_age(q.queue) as age
              from leasehold_internal.waiting_queues() as q (queue)) a
     where a.age > 0;
end $$;

-- Returns for how many seconds the oldest ready job has waited; 0: none is ready. One index lookup for
-- each of the first 200 priorities, past the running jobs.
create or replace function leasehold_internal.oldest_ready_age(queue text)
returns double precision
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
begin
    return coalesce((
        with recursive hop (deferred, priority) as (
            (select j.deferred, j.priority from leasehold.job j
              where j.queue = oldest_ready_age.queue
              order by j.queue, j.deferred, j.priority, j.scheduled_at limit 1)
            union all
            select next.deferred, next.priority
              from hop cross join lateral (
                select j.deferred, j.priority from leasehold.job j
                 where j.queue = oldest_ready_age.queue
                   and (j.deferred, j.priority) > (hop.deferred, hop.priority)
                 order by j.queue, j.deferred, j.priority, j.scheduled_at limit 1) next
        )
        -- A plain INSERT may store '-infinity', which cannot be subtracted.
        select greatest(extract(epoch from statement_timestamp()
                                - min(greatest(first.scheduled_at, timestamptz '2000-01-01 00:00Z'))), 0)
          from (select hop.deferred, hop.priority from hop limit 200) known
         cross join lateral (
            select j.scheduled_at from leasehold.job j
             where j.queue = oldest_ready_age.queue
               and j.deferred = known.deferred and j.priority = known.priority
               and j.scheduled_at <= statement_timestamp() and j.expires_at > statement_timestamp()
               and not j.held
             order by j.queue, j.deferred, j.priority, j.scheduled_at limit 1) first), 0);
end $$;

-- The state of sweeps, mirrors and the database at the end of a minute.

-- Returns the last value of a metric before a minute, within the hour; null: unknown.
create or replace function leasehold_internal.last_value(kind text, subject text, metric text, minute timestamptz)
returns double precision
language sql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    select m.value from leasehold_internal.measure m
     where m.at < minute and m.at >= minute - interval '1 hour' and m.kind = last_value.kind
       and m.subject = last_value.subject and m.metric = last_value.metric
     order by m.at desc limit 1
$$;

-- Measures what each sweep did since the last sample, what it has claimed, and what is stuck: rows that
-- the watchdog should have reset. Reads what the watchdogs recorded, never a swept table.
--
-- A watchdog that is silent for as long as a claim may last is gone, and with it every worker of the
-- sweep. Then the rows that were claimed and had not failed at its last count are stuck. In between,
-- and before the first count, the value is missing and not zero.
create or replace function leasehold_internal.measure_sweeps(minute timestamptz)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
    insert into leasehold_internal.measure as m (at, kind, subject, metric, flow, value)
    select minute, 'sweep', s.name, v.metric, v.flow, v.value
      from (select w.*,
                   w.claims_counted_at > statement_timestamp() - 3 * w.watchdog_every - interval '2 minutes'
                       as fresh,
                   w.claims_counted_at <= statement_timestamp() - w.watchdog_after
                       - 3 * w.watchdog_every - interval '1 minute' as silent
              from leasehold_internal.sweep w order by w.name limit 500) s
     cross join lateral (values
        ('claimed', false, case when s.fresh then s.claimed_now end),
        ('stuck', false, case when s.fresh then s.stuck_now when s.silent then s.unfailed_now end),
        -- Counted by its watchdog; the count of one that is gone proves nothing about now.
        ('due', false, case when s.due_counted_at > statement_timestamp()
                                 - 3 * s.watchdog_every - interval '2 minutes' then s.rows_due end),
        ('dead', false, (select count(*) from (
            select from leasehold_internal.sweep_failure f
             where f.sweep = s.name and f.dead_at is not null limit 10000) d)),
        ('failing', false, (select count(*) from (
            select from leasehold_internal.sweep_failure f
             where f.sweep = s.name and f.retry_at is not null limit 10000) d)),
        ('finished_total', false, s.rows_finished), ('failed_total', false, s.rows_failed),
        ('lost_total', false, s.rows_lost), ('reset_total', false, s.rows_reset),
        ('finished', true, greatest(s.rows_finished
            - leasehold_internal.last_value('sweep', s.name, 'finished_total', minute), 0)),
        ('reset', true, greatest(s.rows_reset
            - leasehold_internal.last_value('sweep', s.name, 'reset_total', minute), 0))
      ) as v (metric, flow, value)
     where v.value is not null
    on conflict (at, kind, subject, metric) do update set value = excluded.value
$$;

-- Returns the figures of each mirror. Differences are counted from their table: what the last round of
-- the check published may have been repaired since. The ages are in seconds; null: it has not been
-- compared yet, or nothing differs.
create or replace function leasehold_internal.mirror_numbers()
returns table (name text, phase text, rows_compared bigint, repaired bigint, differences bigint,
               oldest_difference_age double precision, equal_as_of timestamptz)
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select m.name, m.phase, m.rows_compared, m.repaired_total,
           (select count(*) from (select from leasehold_internal.mirror_difference d
                                   where d.mirror = m.name limit 10000) kept),
           (select extract(epoch from statement_timestamp() - min(d.first_seen))
              from leasehold_internal.mirror_difference d where d.mirror = m.name)::double precision,
           m.equal_as_of
      from leasehold_internal.mirror m order by m.name limit 500
$$;

create or replace function leasehold_internal.measure_mirrors(minute timestamptz)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold_internal.measure as m (at, kind, subject, metric, flow, value)
    select minute, 'mirror', n.name, v.metric, false, v.value
      from leasehold_internal.mirror_numbers() n
     cross join lateral (values
        ('rows_compared', n.rows_compared), ('repaired', n.repaired), ('differences', n.differences),
        ('oldest_difference_age', coalesce(n.oldest_difference_age, 0)),
        ('equal_age', extract(epoch from statement_timestamp() - n.equal_as_of))
     ) as v (metric, value)
     where v.value is not null
    on conflict (at, kind, subject, metric) do update set value = excluded.value
$$;

-- Measures how long vacuum has been held back, and how many transaction ids were assigned. Separate from
-- everything that reads tables: a delayed vacuum makes those slow, and this part must still report it.
create or replace function leasehold_internal.measure_vacuum(minute timestamptz)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold_internal.measure as m (at, kind, subject, metric, flow, value)
    select minute, 'database', '', 'oldest_xact_age', false,
           coalesce((select max(h.age) from leasehold_internal.vacuum_holders() h), 0)
    union all
    select minute, 'database', '', 'next_xid', false,
           pg_snapshot_xmax(pg_current_snapshot())::text::double precision
    on conflict (at, kind, subject, metric) do update set value = excluded.value
$$;

-- Measures the size of the tables, and their dead rows.
create or replace function leasehold_internal.measure_tables(minute timestamptz)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold_internal.measure as m (at, kind, subject, metric, flow, value)
    select minute, 'database', s.relname, v.metric, false, v.value
      from pg_stat_all_tables s
     cross join lateral (values ('dead_tuples', s.n_dead_tup),
                                ('bytes', pg_total_relation_size(s.relid))) as v (metric, value)
     where s.schemaname in ('leasehold', 'leasehold_internal')
       and s.relname in ('job', 'lease', 'dead_job', 'idempotency_key', 'measure', 'tally')
    union all
    select minute, 'database', 'history', 'bytes', false,
           coalesce(sum(pg_total_relation_size(i.inhrelid)), 0)
      from pg_inherits i where i.inhparent = 'leasehold_internal.history'::regclass
    on conflict (at, kind, subject, metric) do update set value = excluded.value
$$;

-- What becomes of the minutes: roll-up to hours, pruning, and reading.

-- Rolls up the hours that have ended since the last time. For queues and tags a missing row means zero,
-- so their mean is over all minutes of the hour that were sampled.
create or replace function leasehold_internal.measure_hours(last_ran timestamptz, now_is timestamptz)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    with piece as materialized (
        select date_trunc('hour', m.at, 'UTC') as hour, m.at, m.kind, m.subject, m.metric, m.flow, m.value
          from leasehold_internal.measure m
         where m.at >= date_trunc('hour', greatest(last_ran - interval '1 minute',
                                                   now_is - interval '23 hours'), 'UTC')
           and m.at < date_trunc('hour', now_is, 'UTC')
           and date_trunc('hour', last_ran, 'UTC') < date_trunc('hour', now_is, 'UTC')
    ), looked as (
        select p.hour, count(*) as minutes from piece p
         where p.kind = 'database' and p.subject = '' and p.metric = 'sampled' group by p.hour
    )
    insert into leasehold_internal.measure_hour as h (at, kind, subject, metric, flow, value, highest, minutes)
    select p.hour, p.kind, p.subject, p.metric, bool_or(p.flow),
           case when bool_or(p.flow) then sum(p.value) else sum(p.value) / max(m.minutes) end, max(p.value),
           max(m.minutes)
      from (select p.*, count(*) over (partition by p.hour, p.kind, p.subject, p.metric) as rows from piece p) p
      left join looked l on l.hour = p.hour
     cross join lateral (
        select case when p.kind in ('queue', 'tag') and not p.flow then greatest(l.minutes, p.rows)
                    else p.rows end as minutes) m
     group by 1, 2, 3, 4
    on conflict (at, kind, subject, metric) do update
        set value = excluded.value, highest = excluded.highest, minutes = excluded.minutes
$$;

-- Prunes old measures, and alarms that ended 90 days ago: piece by piece until none is left, or for
-- five seconds. After a long stop, the rest is left for the next minute. One housekeeper is elected,
-- for the statement: two would wait for each other's rows.
create or replace function leasehold_internal.prune_measures(up_to int default 50000)
returns bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    deadline timestamptz := clock_timestamp() + interval '5 seconds';
    removed bigint;
    largest bigint;
    total bigint := 0;
begin
    if not pg_try_advisory_xact_lock(7305, 20) then
        return 0;
    end if;
    loop
        delete from leasehold_internal.measure where ctid = any (array(
            select m.ctid from leasehold_internal.measure m
             where m.at < statement_timestamp() - interval '24 hours' limit up_to));
        get diagnostics removed = row_count;
        total := total + removed;
        largest := removed;
        delete from leasehold_internal.measure_hour where ctid = any (array(
            select m.ctid from leasehold_internal.measure_hour m
             where m.at < statement_timestamp() - interval '90 days' limit up_to));
        get diagnostics removed = row_count;
        total := total + removed;
        largest := greatest(largest, removed);
        delete from leasehold_internal.tally where ctid = any (array(
            select t.ctid from leasehold_internal.tally t
             where t.at < statement_timestamp() - interval '2 hours' limit up_to));
        get diagnostics removed = row_count;
        total := total + removed;
        largest := greatest(largest, removed);
        delete from leasehold_internal.alarm where ctid = any (array(
            select a.ctid from leasehold_internal.alarm a
             where a.raised_at < statement_timestamp() - interval '90 days'
               and a.cleared_at < statement_timestamp() - interval '90 days' limit up_to));
        get diagnostics removed = row_count;
        total := total + removed;
        largest := greatest(largest, removed);
        exit when largest < up_to or clock_timestamp() > deadline;
    end loop;
    return total;
end $$;

-- Returns when the last sample was taken, null: never; and whether it is fresh. After three minutes
-- without a sample the current state is unknown, whatever the last one showed.
create or replace function leasehold_internal.measured()
returns table (at timestamptz, fresh boolean)
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select case when isfinite(d.ran_at) then d.ran_at end,
           d.ran_at between statement_timestamp() - interval '180 seconds'
                        -- Beyond that the clock was set back.
                        and statement_timestamp() + interval '1 minute'
      from leasehold_internal.duty d where d.name = 'measure'
$$;

-- Returns the last sample, if it is not older than 15 minutes. `measured` tells whether it is fresh.
-- Zeros of queues are not stored; they are filled in here, for the queues of the sample and for those
-- with settings, a watch or a living worker, up to a thousand.
create or replace function leasehold_internal.latest()
returns table (at timestamptz, kind text, subject text, metric text, flow boolean, value double precision)
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
begin
    return query
    with present as materialized (
        select m.at, m.kind, m.subject, m.metric, m.flow, m.value
          from leasehold_internal.measure m
         where m.at = (select max(s.at) from leasehold_internal.measure s
                        where s.at >= statement_timestamp() - interval '15 minutes'
                          and s.kind = 'database' and s.metric = 'sampled')
    ), living as materialized (
        select q.queue, count(*) as workers
          from leasehold.workers w cross join lateral unnest(w.queues) as q (queue)
         where w.state = 'alive' group by q.queue
    ), known as (
        select k.queue, min(k.place) as place
          from (select p.subject as queue, 1 as place from present p where p.kind = 'queue'
                union all select w.queue, 2 from leasehold_internal.watch w where not w.off
                union all select l.queue, 3 from living l
                union all select q.name, 4 from leasehold_internal.queue q) k
         group by k.queue order by 2, 1 limit 1000
    )
    select p.at, p.kind, p.subject, p.metric, p.flow, p.value from present p
    union all
    select s.at, 'queue', k.queue, g.metric, false,
           case when g.metric = 'workers' then coalesce(l.workers, 0) else 0 end
      from known k
     cross join (values ('running'), ('ready'), ('scheduled'), ('retrying'), ('length'), ('watched_length'),
                        ('oldest_ready_age'), ('workers'), ('paused'), ('dead'), ('dead_expired')) as g (metric)
     cross join (select p.at from present p where p.kind = 'database' and p.subject = '' and p.metric = 'sampled') s
      left join living l on l.queue = k.queue
     where not exists (select from present p where p.kind = 'queue' and p.subject = k.queue and p.metric = g.metric)
       -- If the age of the oldest job was not measured, it is unknown, not zero.
       and (g.metric <> 'oldest_ready_age'
            or exists (select from present p where p.kind = 'database' and p.metric = 'ages_sampled'));
end $$;

-- Returns a series for a chart: one row per step, the oldest first. Flows are added up, other values
-- are the mean of the step; for queues and tags over every minute that was sampled, because their zeros
-- are not stored. Null: nothing was measured. `minutes` is how many minutes of the step were measured,
-- so that a step that has just begun can be shown per minute. `of_subject` null: all of them together.
-- More than a day back the series consists of hours, and of the minutes since the last of them.
create or replace function leasehold_internal.series(
    kind text, metrics text[], subject text default null,
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
    -- From here on there are only minutes. The last hour of any metric: what happened while nothing was
    -- sampled is added to its minutes and its hour later, and that hour has no sample.
    rolled timestamptz := greatest(first, case when by_hours then (
        select h.at + interval '59 minutes' from leasehold_internal.measure_hour h
         order by h.at desc limit 1) end);
begin
    return query
    with looked as (
        select m.at, 1 as minutes from leasehold_internal.measure m
         where m.kind = 'database' and m.metric = 'sampled' and m.subject = ''
           and m.at > rolled and m.at < this_minute
        union all
        select h.at, h.minutes from leasehold_internal.measure_hour h
         where by_hours and h.kind = 'database' and h.metric = 'sampled' and h.subject = ''
           and h.at > first
    ), piece as (
        select m.at, sum(m.value) as value, bool_or(m.flow) as flow, 1 as weight
          from leasehold_internal.measure m
         where m.kind = series.kind and m.metric = any (series.metrics)
           and (series.subject is null or m.subject = series.subject)
           and m.at > rolled and m.at < this_minute
         group by m.at
        union all
        select h.at, sum(h.value), bool_or(h.flow), max(h.minutes)
          from leasehold_internal.measure_hour h
         where by_hours and h.kind = series.kind and h.metric = any (series.metrics)
           and (series.subject is null or h.subject = series.subject) and h.at > first
         group by h.at
    ), seen as (
        select date_bin(step, l.at, origin) as at, sum(l.minutes) as minutes from looked l group by 1
    ), binned as (
        select date_bin(step, p.at, origin) as at, bool_or(p.flow) as flow,
               sum(p.value * case when p.flow then 1 else p.weight end) as sum, sum(p.weight) as weight
          from piece p group by 1
    )
    select s.at,
           coalesce(case when b.flow then b.sum
                         when series.kind in ('queue', 'tag') then b.sum / greatest(b.weight, n.minutes)
                         else b.sum / b.weight end,
                    case when n.minutes > 0 then 0 end),
           coalesce(n.minutes, 0)
      from generate_series(first + step, last, step) as s (at)
      left join binned b on b.at = s.at
      left join seen n on n.at = s.at
     where s.at < this_minute
     order by s.at;
end $$;

-- Alarms: these functions read what is known, the library (`alarm/rules.rs`) decides what is wrong, and
-- these functions record the result.

-- Returns what the rules evaluate, as of the last sample: one statement, one snapshot. Null: there is
-- no sample that is recent enough. `measured` lists the parts of the sample that succeeded, null: all;
-- the others are unknown, and alarms that depend on them are neither raised nor cleared.
create or replace function leasehold_internal.alarm_snapshot(sample timestamptz)
returns jsonb
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    quarter interval := interval '15 minutes';
    -- The longest window of any rule.
    far interval := greatest(quarter, (select max(w.over) from leasehold_internal.watch w where not w.off));
    -- Start of the current uninterrupted run of samples, or the first sample within `far`. A gap of up
    -- to 3 minutes is no interruption: another process may be taking over the sampling.
    looked_since timestamptz := (
        select max(s.at) filter (where s.before is null or s.at - s.before > interval '3 minutes')
          from (select m.at, lag(m.at) over (order by m.at) as before
                  from leasehold_internal.measure m
                 where m.kind = 'database' and m.subject = '' and m.metric = 'sampled'
                   and m.at > alarm_snapshot.sample - far - interval '5 minutes' and m.at <= alarm_snapshot.sample) s);
begin
    return (
    with latest as materialized (
        select m.kind, m.subject, m.metric, m.value
          from leasehold_internal.measure m where m.at = alarm_snapshot.sample and not m.flow
    ), gauge as materialized (
        select l.subject as queue, jsonb_object_agg(l.metric, l.value) as v
          from latest l where l.kind = 'queue' group by l.subject
    ), recent as materialized (
        select m.at, m.subject as queue, m.metric, m.value
          from leasehold_internal.measure m
         where m.at > alarm_snapshot.sample - far and m.at <= alarm_snapshot.sample and m.kind = 'queue'
           and m.metric in ('completed', 'buried', 'lost', 'ready', 'workers', 'paused')
    ), judged as (
        -- For any other queue everything is zero.
        select g.queue from gauge g
        union select r.queue from recent r
        union select w.queue from leasehold_internal.watch w
    ), sums as (
        select r.queue,
               sum(r.value) filter (where r.metric = 'completed'
                   and r.at > alarm_snapshot.sample - coalesce(w.over, quarter)) as completed,
               sum(r.value) filter (where r.metric = 'buried' and r.at > alarm_snapshot.sample - quarter) as died,
               sum(r.value) filter (where r.metric = 'lost' and r.at > alarm_snapshot.sample - quarter) as lost,
               max(r.at) filter (where r.metric = 'paused' and r.value > 0) as paused
          from recent r left join leasehold_internal.watch w on w.queue = r.queue and not w.off
         group by r.queue
    ), starved as (
        -- In how many of the last five minutes jobs were ready and no worker was alive.
        select a.queue, count(*) as minutes
          from recent a
         where a.metric = 'ready' and a.value > 0 and a.at > alarm_snapshot.sample - interval '5 minutes'
           and not exists (select from recent b where b.queue = a.queue and b.at = a.at
                                                  and b.metric = 'workers' and b.value > 0)
         group by a.queue
    )
    select jsonb_build_object(
        'sample', alarm_snapshot.sample,
        'measured', (select jsonb_agg(replace(l.metric, '_sampled', '')) from latest l
            where l.kind = 'database' and l.subject = '' and l.metric like '%\_sampled'),
        'queues', coalesce((select jsonb_agg(jsonb_build_object(
            'queue', k.queue,
            'paused', coalesce((g.v ->> 'paused')::float8 > 0, false),
            'length', coalesce((g.v ->> 'watched_length')::float8, 0),
            'oldest_ready_age', coalesce((g.v ->> 'oldest_ready_age')::float8, 0),
            'dead_expired', coalesce((g.v ->> 'dead_expired')::float8, 0),
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
                -- Time without samples, or in which the queue was paused, does not count.
                'watched_for', extract(epoch from alarm_snapshot.sample + interval '1 minute'
                    - greatest(w.since, looked_since, s.paused + interval '1 minute'))) end
            ) order by k.queue)
            from judged k
            left join gauge g on g.queue = k.queue
            left join sums s on s.queue = k.queue
            left join starved t on t.queue = k.queue
            left join leasehold_internal.watch w on w.queue = k.queue), '[]'),
        'sweeps', coalesce((select jsonb_agg(jsonb_build_object(
            'sweep', l.subject, 'dead', coalesce(l.dead, 0),
            -- A table that could not be read for a moment keeps its last value.
            'stuck', coalesce((select m.value from leasehold_internal.measure m
                where m.at <= alarm_snapshot.sample and m.at > alarm_snapshot.sample - quarter and m.kind = 'sweep'
                  and m.subject = l.subject and m.metric = 'stuck' order by m.at desc limit 1), 0)
            ) order by l.subject)
            from (select subject, max(value) filter (where metric = 'dead') as dead
                    from latest where kind = 'sweep' group by subject) l), '[]'),
        'mirrors', coalesce((select jsonb_agg(jsonb_build_object(
            'mirror', l.subject, 'differences', coalesce(l.differences, 0),
            'oldest_difference_age', coalesce(l.age, 0),
            -- Two rounds of the check are no reason for an alarm, however long they take. A mirror that
            -- was never equal may have no store at all.
            'uncompared_age', coalesce(greatest(l.equal_age
                - 2 * (m.rows_compared / m.range_rows + 1) * extract(epoch from m.check_every), 0), 0)
            ) order by l.subject)
            from (select subject, max(value) filter (where metric = 'differences') as differences,
                         max(value) filter (where metric = 'oldest_difference_age') as age,
                         max(value) filter (where metric = 'equal_age') as equal_age
                    from latest where kind = 'mirror' group by subject) l
            left join leasehold_internal.mirror m on m.name = l.subject), '[]'),
        'oldest_xact_age', coalesce((select value from latest
            where kind = 'database' and metric = 'oldest_xact_age'), 0),
        -- Holders that alone would be worth a look, as of now: up to three, each at least half as old as
        -- the oldest.
        'vacuum_held_by', coalesce((select jsonb_agg(jsonb_build_object(
            'who', h.who, 'remedy', h.remedy, 'age', h.age) order by h.place)
            from (select v.*, row_number() over (order by v.xids desc nulls last, v.age desc) as place,
                         max(v.age) over () as oldest
                    from leasehold_internal.vacuum_holders() v) h
           where h.place <= 3 and h.age >= h.oldest / 2), '[]'),
        'open', coalesce((select jsonb_agg(jsonb_build_object('rule', a.rule, 'subject', a.subject))
            from leasehold_internal.alarm a where a.cleared_at is null), '[]'))
     where exists (select from latest));
end $$;

-- Records what the rules found: raises new alarms, clears those that are over, and enqueues
-- notifications, all or nothing. `up` is a list of {rule, subject, value, threshold, summary}. `judged`
-- lists the rules that could be evaluated, null: all; alarms of the other rules stay as they are.
-- Returns what changed. Nothing does if a later sample has been taken: the evaluation was too late.
create or replace function leasehold_internal.apply_alarms(sample timestamptz, up jsonb, judged text[] default null)
returns table (change text, rule text, subject text, summary text)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set jit = off as $$
#variable_conflict use_column
declare
    entry leasehold_internal.alarm;
    found_now record;
begin
    -- One evaluation at a time, and only of the last sample.
    perform from leasehold_internal.duty d
      where d.name = 'measure' and d.ran_at = apply_alarms.sample + interval '1 minute' for update;
    if not found then
        return;
    end if;
    -- An evaluation without alarms leaves no other trace than this one.
    insert into leasehold_internal.duty as d (name, ran_at) values ('judge', apply_alarms.sample + interval '1 minute')
    on conflict (name) do update set ran_at = excluded.ran_at;
    for found_now in
        select u.rule, u.subject, u.value, u.threshold, u.summary
          from jsonb_to_recordset(up) as u (rule text, subject text, value float8, threshold float8, summary text)
         order by u.rule, u.subject
    loop
        update leasehold_internal.alarm a
           set value = found_now.value, threshold = found_now.threshold, summary = found_now.summary,
               seen_at = statement_timestamp()
         where a.rule = found_now.rule and a.subject = found_now.subject and a.cleared_at is null
        returning * into entry;
        if not found then
            -- A silence of an earlier alarm of this rule and subject applies to the new one.
            insert into leasehold_internal.alarm as a
                (rule, subject, value, threshold, summary, silenced_until, silenced_by, silenced_why)
            select found_now.rule, found_now.subject, found_now.value, found_now.threshold,
                   found_now.summary, s.silenced_until, s.silenced_by, s.silenced_why
              from (select) one left join lateral (
                select o.silenced_until, o.silenced_by, o.silenced_why from leasehold_internal.alarm o
                 where o.rule = found_now.rule and o.subject = found_now.subject
                   and o.silenced_until > statement_timestamp()
                 order by o.silenced_until desc limit 1) s on true
            returning * into entry;
            change := 'raised';
            rule := entry.rule; subject := entry.subject; summary := entry.summary;
            return next;
        end if;
        -- Also when a silence has ended and the alarm is still open.
        if entry.notified_at is null and entry.acknowledged_at is null
           and coalesce(entry.silenced_until <= statement_timestamp(), true) then
            -- Without a receiver the alarm stays unnotified: the first receiver that registers gets the
            -- notification.
            if leasehold_internal.notify_alarm(entry, 'raised') > 0 then
                update leasehold_internal.alarm a set notified_at = statement_timestamp() where a.id = entry.id;
            end if;
        end if;
    end loop;
    for entry in
        update leasehold_internal.alarm a set cleared_at = statement_timestamp()
         where a.cleared_at is null and (judged is null or a.rule = any (judged))
           and not exists (select from jsonb_to_recordset(up) as u (rule text, subject text)
                            where u.rule = a.rule and u.subject = a.subject)
        returning *
    loop
        change := 'cleared';
        rule := entry.rule; subject := entry.subject; summary := entry.summary;
        return next;
        if entry.notified_at is not null then
            perform leasehold_internal.notify_alarm(entry, 'cleared');
        end if;
    end loop;
end $$;

-- Notifications of alarms: jobs for the processes that deliver them.

-- Enqueues a notification for every receiver seen within the last seven days. Returns their number.
-- Internal.
create or replace function leasehold_internal.notify_alarm(entry leasehold_internal.alarm, event text)
returns int
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    with notified as (
        insert into leasehold.job (name, queue, tag, kwargs, max_attempts, expires_at)
        select r.job_name, 'leasehold.alarms', 'leasehold.alarm', jsonb_strip_nulls(jsonb_build_object(
                   'event', event, 'alarm', entry.id, 'rule', entry.rule, 'subject', entry.subject,
                   'value', entry.value, 'threshold', entry.threshold, 'summary', entry.summary,
                   'raised_at', entry.raised_at, 'cleared_at', entry.cleared_at)),
               -- The expiry ends the retries: the longest wait between two attempts is about an hour.
               1000, statement_timestamp() + interval '7 days'
          from leasehold_internal.alarm_receiver r
         where r.seen_at > statement_timestamp() - interval '7 days'
        returning 1)
    select count(*)::int from notified
$$;

-- Returns whether an alarm has cleared, or was removed. A receiver checks it before it delivers
-- 'raised'.
create or replace function leasehold_internal.alarm_has_cleared(id bigint)
returns boolean
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select not exists (select from leasehold_internal.alarm a where a.id = alarm_has_cleared.id and a.cleared_at is null)
$$;

-- Records that a receiver delivered the notification that an alarm was raised. The first one counts.
create or replace function leasehold_internal.note_alarm_delivery(alarm bigint, receiver text)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold_internal.alarm a set delivered_at = statement_timestamp(), delivered_by = receiver
     where a.id = alarm and a.delivered_at is null
$$;

-- Registers a process that delivers notifications in jobs of this name.
create or replace function leasehold_internal.declare_alarm_receiver(job_name text)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold_internal.alarm_receiver as r (job_name) values (declare_alarm_receiver.job_name)
    on conflict (job_name) do update set seen_at = statement_timestamp()
$$;

-- Sends a test notification to the receivers of `notify_alarm` and returns their number; 0 means that no
-- alarm would be delivered.
create or replace function leasehold_internal.test_alarm(actor text)
returns int
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    entry leasehold_internal.alarm;
begin
    entry.id := 0;
    entry.rule := 'test';
    entry.subject := actor;
    entry.value := 0;
    entry.threshold := 0;
    entry.summary := 'this is a test by ' || actor || '; nothing is wrong';
    entry.raised_at := statement_timestamp();
    insert into leasehold.audit (actor, action, subject) values (actor, 'test', 'alarms');
    return leasehold_internal.notify_alarm(entry, 'test');
end $$;

-- What operators do with alarms, and what they expect of queues.

-- Refuses a call without an actor or a reason: an operator who finds an alarm silenced needs both.
-- Internal.
create or replace function leasehold_internal.check_signed(actor text, why text)
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

-- Records that an operator looks after an alarm. Returns false if there is no open alarm with that id.
create or replace function leasehold.acknowledge_alarm(id bigint, actor text, why text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    perform leasehold_internal.check_signed(actor, why);
    update leasehold_internal.alarm a
       set acknowledged_at = statement_timestamp(), acknowledged_by = actor, acknowledged_why = why
     where a.id = acknowledge_alarm.id and a.cleared_at is null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'acknowledge', 'alarm ' || acknowledge_alarm.id, why);
    return true;
end $$;

-- Sends no notification of this alarm for a while, even when it clears and is raised again; zero ends a
-- silence. Returns false if there is no alarm with that id.
create or replace function leasehold.silence_alarm(id bigint, duration interval, actor text, why text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    perform leasehold_internal.check_signed(actor, why);
    update leasehold_internal.alarm a
       set silenced_until = case when duration > interval '0' then statement_timestamp() + duration end,
           silenced_by = case when duration > interval '0' then actor end,
           silenced_why = case when duration > interval '0' then why end
      from leasehold_internal.alarm named
     where named.id = silence_alarm.id and a.rule = named.rule and a.subject = named.subject
       and (a.id = silence_alarm.id or a.silenced_until > statement_timestamp());
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, case when duration > interval '0' then 'silence' else 'end silence' end,
            'alarm ' || silence_alarm.id, concat_ws(': ', duration::text, why));
    return true;
end $$;

-- Sets the thresholds of a queue; null leaves one as it is, a length of -1 and an age of 0 turn theirs
-- off. A declaration by a service does not change an existing watch, nor one that was turned off.
-- Returns true if something was set.
create or replace function leasehold_internal.watch_queue(
    queue text, actor text, by_service boolean default false,
    min_completed bigint default null, over interval default null,
    max_length bigint default null, bulk_tags text[] default null,
    max_age interval default null, max_dead bigint default null, max_lost bigint default null,
    why text default null
)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    insert into leasehold_internal.watch as w
        (queue, changed_by, min_completed, over, max_length, bulk_tags, max_age, max_dead, max_lost)
    values (watch_queue.queue, actor, coalesce(watch_queue.min_completed, 1), coalesce(watch_queue.over, interval '10 minutes'),
            nullif(greatest(watch_queue.max_length, -1), -1), coalesce(watch_queue.bulk_tags, '{reindex_*}'),
            -- The threshold for queues without a watch applies here, too, unless the caller sets one.
            nullif(greatest(coalesce(watch_queue.max_age, interval '1 hour'), interval '0'), interval '0'),
            coalesce(watch_queue.max_dead, 10), coalesce(watch_queue.max_lost, 10))
    on conflict (queue) do update
        set min_completed = coalesce(watch_queue.min_completed, w.min_completed),
            over = coalesce(watch_queue.over, w.over),
            max_length = nullif(greatest(coalesce(watch_queue.max_length, w.max_length), -1), -1),
            bulk_tags = coalesce(watch_queue.bulk_tags, w.bulk_tags),
            max_age = nullif(greatest(coalesce(watch_queue.max_age, w.max_age), interval '0'), interval '0'),
            max_dead = coalesce(watch_queue.max_dead, w.max_dead),
            max_lost = coalesce(watch_queue.max_lost, w.max_lost),
            off = false, changed_by = actor,
            since = case when w.off then statement_timestamp() else w.since end
      where not by_service;
    if not found then
        return false;
    end if;
    if not by_service then
        insert into leasehold.audit (actor, action, subject, detail)
        values (actor, 'watch', 'queue ' || watch_queue.queue, why);
    end if;
    return true;
end $$;

-- Turns the watch of a queue off. Returns false if there was none, or it was off already.
create or replace function leasehold_internal.unwatch_queue(queue text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    -- The row stays: a service that declares its watch at every start must not undo this.
    update leasehold_internal.watch w set off = true, changed_by = actor where w.queue = unwatch_queue.queue and not w.off;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'unwatch', 'queue ' || unwatch_queue.queue, why);
    return true;
end $$;

-- Alarms with their state by name.
create or replace view leasehold.alarms as
select a.id, a.rule, a.subject,
       case when a.cleared_at is not null then 'cleared'
            when a.silenced_until > statement_timestamp() then 'silenced'
            when a.acknowledged_at is not null then 'acknowledged'
            else 'open' end as state,
       a.raised_at, a.cleared_at, a.seen_at, a.value, a.threshold, a.summary, a.acknowledged_at,
       a.acknowledged_by, a.acknowledged_why, a.silenced_until, a.silenced_by, a.silenced_why,
       a.notified_at, a.delivered_at, a.delivered_by
  from leasehold_internal.alarm a;

-- Finished jobs, one row each.
create or replace view leasehold_internal.finished_job as
select one.id, h.outcome, h.queue, one.name, one.tag, one.attempts, one.enqueued_at, h.finished_at,
       h.claimed_by, h.lease_generation, one.kwargs, h.note, h.claimed_at,
       coalesce(one.priority, 0) as priority, one.key, one.max_attempts,
       coalesce(one.scheduled_at, one.enqueued_at) as scheduled_at, one.errors
  from leasehold_internal.history h
 cross join lateral unnest(h.job_ids, h.names, h.tags, h.attempts, h.enqueued_at, h.kwargs,
                           h.priorities, h.keys, h.max_attempts, h.scheduled_at, h.errors)
       as one (id, name, tag, attempts, enqueued_at, kwargs,
               priority, key, max_attempts, scheduled_at, errors);

-- Every job: waiting, running, finished and dead. The state is computed here and nowhere else.
--
-- `stored_in` is the table of the row. A reader that wants only waiting jobs writes `stored_in = 'job'`, and
-- the planner leaves the other tables out.
create or replace view leasehold.jobs as
select j.id, j.queue, j.name,
       case when j.held then 'running'
            when j.scheduled_at <= statement_timestamp() then 'ready'
            -- A snooze gives the attempt back: a job that only snoozed is scheduled.
            when j.attempts > 0 then 'retrying'
            else 'scheduled' end as state,
       null::text as cause, j.kwargs, j.priority, j.tag, j.idempotency_key, j.enqueued_at,
       j.scheduled_at, j.expires_at, l.claimed_at, null::timestamptz as finished_at, j.attempts,
       coalesce(j.max_attempts, q.max_attempts, 25) as max_attempts, j.lost_count::int as lost_count,
       l.claimed_by as worker, j.lease_generation, l.lease_expires_at, j.cancel_requested,
       j.last_error, j.errors, null::text as note, j.trace_context, 'job'::text as stored_in,
       j.deferred and not j.held as deferred
  from leasehold.job j
  left join leasehold_internal.lease l on j.held and l.lease_generation = j.lease_generation
  left join leasehold_internal.queue q on q.name = j.queue
union all
select d.id, d.queue, d.name, 'dead'::text,
       d.cause, d.kwargs, d.priority, d.tag,
       d.idempotency_key, d.enqueued_at, d.scheduled_at, d.expires_at, null::timestamptz, d.died_at,
       d.attempts, coalesce(d.max_attempts, q.max_attempts, 25), d.lost_count::int, d.claimed_by,
       d.lease_generation, null::timestamptz, false, d.last_error, d.errors, null::text,
       d.trace_context, 'dead_job'::text, false
  from leasehold_internal.dead_job d
  left join leasehold_internal.queue q on q.name = d.queue
union all
-- The names and keys of an array have the database's collation; those of the other tables have "C".
select f.id, f.queue, f.name collate "C", f.outcome, null::text, f.kwargs, f.priority, f.tag,
       f.key collate "C", f.enqueued_at, f.scheduled_at, null::timestamptz, f.claimed_at, f.finished_at,
       f.attempts, f.max_attempts, null::int, f.claimed_by, f.lease_generation, null::timestamptz, false,
       f.errors -> -1 ->> 'error', f.errors, f.note, null::text, 'history'::text, false
  from leasehold_internal.finished_job f;

-- Workers with their state by name. A worker that has not been seen for 30 s is dead.
create or replace view leasehold.workers as
select w.id, w.name, w.host, w.pid, w.version, w.queues, w.names, w.slots, w.busy, w.started_at,
       w.last_seen_at,
       case when w.stopped_at is not null then 'stopped'
            when w.last_seen_at < statement_timestamp() - interval '30 seconds' then 'dead'
            when w.draining_since is not null then 'draining'
            else 'alive' end as state
  from leasehold_internal.worker w;

-- Each queue that has a row or a job, with its counts. `dead` leaves out the expired jobs, which
-- `dead_expired` counts.
create or replace view leasehold.queues as
select names.queue, q.paused_at, q.paused_by, q.paused_why,
       coalesce(j.ready, 0) as ready, coalesce(j.running, 0) as running,
       coalesce(j.scheduled, 0) as scheduled, coalesce(d.dead, 0) as dead,
       coalesce(d.expired, 0) as dead_expired, j.oldest_ready_at,
       (select count(*) from leasehold.workers w
         where w.state = 'alive' and names.queue = any (w.queues)) as workers,
       coalesce(j.retrying, 0) as retrying,
       q.lease, q.max_attempts, q.max_lost, q.claim_size, q.run_limit, q.backoff_base, q.backoff_cap,
       q.keep_history, q.display_name, q.owner
  from (select name as queue from leasehold_internal.queue
        union select queue from leasehold.job
        union select queue from leasehold_internal.dead_job) names
  left join leasehold_internal.queue q on q.name = names.queue
  left join (
        select queue,
               count(*) filter (where not held and scheduled_at <= statement_timestamp()) as ready,
               count(*) filter (where held) as running,
               count(*) filter (where not held and scheduled_at > statement_timestamp()
                                  and attempts = 0) as scheduled,
               count(*) filter (where not held and scheduled_at > statement_timestamp()
                                  and attempts > 0) as retrying,
               min(scheduled_at) filter (where not held and scheduled_at <= statement_timestamp())
                   as oldest_ready_at
          from leasehold.job group by queue) j on j.queue = names.queue
  left join (
        select queue, count(*) filter (where cause <> 'expired') as dead,
               count(*) filter (where cause = 'expired') as expired
          from leasehold_internal.dead_job group by queue) d on d.queue = names.queue;

-- Schedules with their state by name.
create or replace view leasehold.schedules as
select s.name, s.cron, s.zone, s.queue, s.job_name, s.kwargs, s.tag, s.priority, s.missed,
       case when s.paused_at is not null then 'paused' else 'active' end as state,
       s.next_slot, s.last_slot, s.last_job_id, s.missed_slots, s.paused_at, s.paused_by, s.paused_why,
       s.declared_by, s.last_declared_at, s.created_at
  from leasehold_internal.schedule s;

-- What the handles of the library read beside the views. Viewers call these too: each returns names, times
-- and ids, never kwargs or error texts. `error_fingerprint` reads its argument only.

-- Returns every known queue: it has settings, a job, a dead job, a live worker or a schedule.
create or replace function leasehold_internal.queue_names()
returns setof text
language sql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
    select q.name from leasehold_internal.queue q
    union
    -- Hops from one queue to the next in the index; never reads the jobs in between.
    select waiting.queue from (
        with recursive hop (queue) as (
            (select j.queue from leasehold.job j order by j.queue limit 1)
            union all
            select (select j.queue from leasehold.job j where j.queue > hop.queue order by j.queue limit 1)
              from hop where hop.queue is not null
        )
        select hop.queue from hop where hop.queue is not null) waiting
    union
    select d.queue from leasehold_internal.dead_job d
    union
    select w.queue from (select unnest(w.queues) as queue from leasehold.workers w
                          where w.state in ('alive', 'draining')) w
    union
    select s.queue from leasehold_internal.schedule s
    order by 1
$$;

-- Returns when a job finished, null if the history does not have it. Reads the ids of the history and none
-- of its kwargs: with this time `leasehold.jobs` finds the job in one batch of one partition.
create or replace function leasehold_internal.finished_at(job_id bigint)
returns timestamptz
language sql stable security definer set search_path = leasehold, pg_temp set jit = off as $$
    select max(h.finished_at) from leasehold_internal.history h where h.job_ids @> array[job_id]
$$;

-- Returns the part of an error text that equal errors share: its first line, without numbers and ids.
create or replace function leasehold_internal.error_fingerprint(error text)
returns text
language sql immutable parallel safe set search_path = leasehold, pg_temp as $$
    select regexp_replace(
        left(split_part(coalesce(error, ''), E'\n', 1), 300),
        '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F-]{22}|0x[0-9a-fA-F]+|[0-9a-fA-F]{12,}|[0-9]+', '#', 'g')
$$;

-- What `\df+ leasehold.*` and `\d+ leasehold.jobs` show. docs/sql.md is made from these texts, and a test
-- compares. The tables `job` and `audit` have their texts in the migration that creates them: a comment on
-- a table waits for its vacuum.

comment on schema leasehold is
    'Durable jobs: what callers may use. Functions, views, and the tables job (INSERT, COPY) and audit.';
comment on schema leasehold_internal is
    'Internals of Leasehold. Names and meanings change without notice; use the schema leasehold.';

comment on type leasehold.claimed_job is
    'A job that a claim returns, with the generation that finishes it and the limits of its queue.';

-- Producers.
comment on function leasehold.enqueue is
    'Enqueues a job in the caller''s transaction. With a key, a repeat within key_ttl returns the first job''s id and inserted = false.';
comment on function leasehold.enqueue_many is
    'Enqueues one job per element of names and kwargs in one statement. Returns one row per job, in the same order.';
comment on function leasehold_internal.wake is
    'Wakes idle workers of a queue. An insert does this by itself at its commit.';
comment on function leasehold.complete_waiting is
    'Completes jobs that wait, because their work was done elsewhere. Running jobs are left alone. Returns the number.';
comment on function leasehold.contract is
    'Returns the version of this interface. Within one version, functions keep their names, parameters and results.';

-- Workers.
comment on function leasehold.claim is
    'Claims up to claim_size ready jobs under a new lease, in order of priority and due time, deferred jobs last. Reclaims expired leases first. names null: every name.';
comment on function leasehold.recover_claim is
    'Returns the jobs of a claim whose reply was lost, found by the claim_id that the caller passed to claim.';
comment on function leasehold.renew is
    'Lengthens leases by their own length from now. Returns one state per generation: ''renewed'', ''busy'' (locked; ask again), ''ended'' or ''lost''.';
comment on function leasehold.check_lease is
    'Raises an error unless the caller still holds the job under this generation. Call it in a transaction that must not commit otherwise.';
comment on function leasehold.complete is
    'Completes a job. Returns false if the lease was lost; then nothing changes.';
comment on function leasehold.complete_many is
    'Completes jobs of one lease. Returns the ids that it completed; the others were lost.';
comment on function leasehold.fail is
    'Ends an attempt that failed. The job waits for its next attempt after a backoff (or after), or is dead. Returns ''retry'', ''buried'', ''cancelled'' (after a cancel request) or ''lost''.';
comment on function leasehold.snooze is
    'Puts a job back until wait has passed. The attempt is not counted. Returns false if the lease was lost.';
comment on function leasehold.defer is
    'Puts a job back until wait has passed, behind all jobs of its queue that are not deferred. The attempt is not counted. Returns false if the lease was lost.';
comment on function leasehold.bury is
    'Moves a job to the dead jobs at once, with an error and a cause. Returns false if the lease was lost.';
comment on function leasehold.release is
    'Puts back jobs that were claimed and not run. The attempt is not counted and the due time stays. Returns the ids.';
comment on function leasehold.finish_cancelled is
    'Ends a running job as cancelled, after a cancel request or by its own decision. Returns false if the lease was lost.';
comment on function leasehold.once_start is
    'Begins a step that must not repeat. Returns ''started'', ''unfinished'' (an earlier attempt began it) or ''finished'' with its result.';
comment on function leasehold.once_finish is
    'Finishes a step with its result. The first result stays. Returns false if it was finished before.';
comment on function leasehold.once_forget is
    'Forgets a step that was started and whose effect is known not to have taken place. Returns false if there is none.';
comment on function leasehold.housekeep is
    'Runs every duty of housekeeping once, for installations without a Leasehold worker. Call it every few seconds. Returns one row per duty.';

-- Operators. Each call is recorded in leasehold.audit.
comment on function leasehold.cancel is
    'Cancels a waiting job, or asks a running one to stop. Returns ''cancelled'', ''requested'' or ''gone''.';
comment on function leasehold.promote is 'Makes waiting jobs due now. Returns the ids.';
comment on function leasehold.redrive is
    'Brings dead jobs back to their queue, with no attempts counted. Returns the ids.';
comment on function leasehold.delete_jobs is
    'Deletes waiting and dead jobs without running them and without history. Returns the ids.';
comment on function leasehold.update_job is
    'Changes a waiting job. Null leaves a value as it is. Returns false if the job does not wait.';
comment on function leasehold.pause is
    'Pauses a queue: no claim takes its jobs, running jobs continue. Returns false if it is paused already.';
comment on function leasehold.resume is 'Resumes a paused queue. Returns false if it is not paused.';
comment on function leasehold.set_queue is
    'Changes settings of a queue. Null leaves a setting as it is. Workers apply them at their next claim. Returns whether a setting changed.';
comment on function leasehold.add_schedule is
    'Adds a schedule whose first slot is next_slot. Returns false if the name is taken, unless replace is true.';
comment on function leasehold.pause_schedule is
    'Pauses a schedule: its slots pass without a job. Returns false if it is paused already, or there is none.';
comment on function leasehold.resume_schedule is 'Resumes a paused schedule. Returns false if it is not paused.';
comment on function leasehold.remove_schedule is
    'Removes a schedule. Code that declares it adds it again at the next start. Returns false if there is none.';
comment on function leasehold.run_schedule is
    'Enqueues the job of a schedule now; its slots stay. Returns the id of the job, or null if there is no such schedule.';
comment on function leasehold.run_sweep is 'Makes a sweep due now. Returns false if there is none of this name.';
comment on function leasehold.pause_sweep is
    'Pauses a sweep: workers finish their batches and claim no more rows. Returns false if it is paused already.';
comment on function leasehold.resume_sweep is 'Resumes a paused sweep. Returns false if it is not paused.';
comment on function leasehold_internal.run_watchdog is
    'Makes the workers of a sweep run its watchdog now. Returns false if there is none of this name.';
comment on function leasehold_internal.forget_sweep is
    'Removes the record of a sweep that no worker has any more. Its table stays as it is. Returns false if there is none.';
comment on function leasehold_internal.redrive_sweep is
    'Brings dead rows of a sweep back. Null keys: all of them, up to up_to. Returns the keys.';
comment on function leasehold_internal.order_mirror is
    'Orders a worker of a mirror to check it, rebuild it, roll a rebuild back or drop the former set: what is check, rebuild, rollback or drop. Returns the id of the job, or null if there is no such mirror.';
comment on function leasehold_internal.reindex_mirror is
    'Enqueues one job per key, which compares the row with its document; with force it writes the document in any case. Returns the number.';
comment on function leasehold.acknowledge_alarm is
    'Records that an operator takes care of an alarm. Returns false if no open alarm has this id.';
comment on function leasehold.silence_alarm is
    'Sends no notification of an alarm for a while, even if it clears and is raised again. Zero ends a silence.';
comment on function leasehold_internal.test_alarm is
    'Sends a test notification to every registered receiver. Returns their number; 0: alarms reach no one.';
comment on function leasehold_internal.watch_queue is
    'Sets the alarm thresholds of a queue. Null leaves one as it is; a max_length of -1 and a max_age of 0 turn theirs off.';
comment on function leasehold_internal.unwatch_queue is
    'Turns the alarms of a queue off. Returns false if there was no watch, or it was off already.';

-- Views.
comment on view leasehold.jobs is
    'Every job: waiting, running, finished and dead. Read-only.';
comment on view leasehold.queues is
    'Every queue with a row or a job: its settings, and how many jobs are in which state.';
comment on view leasehold.workers is 'Worker processes of the last days.';
comment on view leasehold.schedules is 'Schedules: which job the clock enqueues, and when.';
comment on view leasehold.sweeps is 'Sweeps: when each runs, and what it did.';
comment on view leasehold.mirrors is 'Mirrors: whether each is equal to its table, and since when.';
comment on view leasehold.alarms is 'Alarms, open and cleared.';

do $$
declare
    each record;
begin
    for each in
        select * from (values
    ('claimed_job', 'id', 'The job. With lease_generation it is the fence.'),
    ('claimed_job', 'name', 'Which handler runs it.'),
    ('claimed_job', 'kwargs', 'Its arguments, a JSON object.'),
    ('claimed_job', 'priority', 'Lower runs first.'),
    ('claimed_job', 'scheduled_at', 'When it was due.'),
    ('claimed_job', 'attempts', 'How often it was claimed, this claim included.'),
    ('claimed_job', 'max_attempts', 'How often it may be claimed before it is dead.'),
    ('claimed_job', 'lost_count', 'How many workers died in a row while they ran it.'),
    ('claimed_job', 'lease_generation', 'The generation of this claim: pass it to complete, fail, renew and the others.'),
    ('claimed_job', 'tag', 'Where the job came from.'),
    ('claimed_job', 'enqueued_at', 'When it was enqueued.'),
    ('claimed_job', 'idempotency_key', 'The key it was enqueued with, or null.'),
    ('claimed_job', 'trace_context', 'W3C traceparent of the producer, or null.'),
    ('claimed_job', 'run_limit', 'How long a handler may run.'),
    ('claimed_job', 'lease', 'How long the claim lasts without renewal.'),
    ('claimed_job', 'max_lost', 'How many workers may die in a row before it is dead.'),
    ('claimed_job', 'deferred', 'Whether its last attempt deferred it.'),
    ('jobs', 'id', 'The job.'),
    ('jobs', 'queue', 'Its queue.'),
    ('jobs', 'name', 'Which handler runs it.'),
    ('jobs', 'state', 'scheduled, ready, running, retrying, completed, cancelled or dead.'),
    ('jobs', 'cause', 'Why a dead job died: exhausted, lost, rejected, undecodable or expired.'),
    ('jobs', 'kwargs', 'Its arguments, a JSON object of at most 64 KiB.'),
    ('jobs', 'priority', 'Lower runs first.'),
    ('jobs', 'tag', 'Where the job came from.'),
    ('jobs', 'idempotency_key', 'The key it was enqueued with, or null.'),
    ('jobs', 'enqueued_at', 'When it was enqueued.'),
    ('jobs', 'scheduled_at', 'When it is due.'),
    ('jobs', 'expires_at', 'A job that has not started by then is dead. Null for finished jobs.'),
    ('jobs', 'claimed_at', 'When the current or last attempt began. Null while it waits.'),
    ('jobs', 'finished_at', 'When it was completed, cancelled or buried.'),
    ('jobs', 'attempts', 'How often it was claimed.'),
    ('jobs', 'max_attempts', 'How often it may be claimed before it is dead.'),
    ('jobs', 'lost_count', 'How many workers died in a row while they ran it.'),
    ('jobs', 'worker', 'Which worker runs it, or ran it last.'),
    ('jobs', 'lease_generation', 'The generation of its last claim; 0: never claimed.'),
    ('jobs', 'lease_expires_at', 'Until when its worker holds it. Null unless it runs.'),
    ('jobs', 'cancel_requested', 'True if an operator asked its worker to stop it.'),
    ('jobs', 'last_error', 'The error of its last failed attempt.'),
    ('jobs', 'errors', 'Its last ten failures, oldest first: at, attempt, worker, ms, error.'),
    ('jobs', 'note', 'Why a cancelled job was cancelled.'),
    ('jobs', 'trace_context', 'W3C traceparent of the producer. Null for finished jobs.'),
    ('jobs', 'stored_in', 'job, dead_job or history. A condition on it keeps the planner from reading the others.'),
    ('jobs', 'deferred', 'Whether it waits behind all jobs of its queue that are not deferred.'),
    ('queues', 'queue', 'Its name.'),
    ('queues', 'paused_at', 'Since when it is paused. Null: it is not.'),
    ('queues', 'paused_by', 'Who paused it.'),
    ('queues', 'paused_why', 'Why.'),
    ('queues', 'ready', 'Jobs that are due.'),
    ('queues', 'running', 'Jobs that a worker holds.'),
    ('queues', 'scheduled', 'Jobs that are due later and have not failed.'),
    ('queues', 'retrying', 'Jobs that failed and are due later.'),
    ('queues', 'dead', 'Dead jobs, without the expired ones.'),
    ('queues', 'dead_expired', 'Dead jobs with the cause expired: they were not started in time.'),
    ('queues', 'oldest_ready_at', 'Since when the oldest ready job has been due.'),
    ('queues', 'workers', 'Live workers that work it.'),
    ('queues', 'lease', 'How long a claim lasts without renewal. Null, as in the columns below: the queue has no settings yet.'),
    ('queues', 'max_attempts', 'How often a job may be claimed before it is dead.'),
    ('queues', 'max_lost', 'How many workers may die in a row while they run a job before it is dead.'),
    ('queues', 'claim_size', 'The most jobs that one claim takes.'),
    ('queues', 'run_limit', 'How long a handler may run.'),
    ('queues', 'backoff_base', 'The wait after the first failure; it doubles each time.'),
    ('queues', 'backoff_cap', 'The longest wait after a failure.'),
    ('queues', 'keep_history', 'Whether finished jobs are kept in the history.'),
    ('queues', 'display_name', 'Its title on dashboards.'),
    ('queues', 'owner', 'The team that owns it.'),
    ('workers', 'id', 'The process.'),
    ('workers', 'name', 'The name from its configuration.'),
    ('workers', 'host', 'Its machine.'),
    ('workers', 'pid', 'Its process id there.'),
    ('workers', 'version', 'Its release.'),
    ('workers', 'queues', 'The queues that it works.'),
    ('workers', 'names', 'The job names that it has handlers for.'),
    ('workers', 'slots', 'How many jobs it can run at the same time.'),
    ('workers', 'busy', 'How many it ran when it was last seen.'),
    ('workers', 'started_at', 'When it started.'),
    ('workers', 'last_seen_at', 'When it last reported.'),
    ('workers', 'state', 'alive, draining, stopped, or dead: not seen for 30 s.'),
    ('schedules', 'name', 'Its name.'),
    ('schedules', 'cron', 'The pattern of its slots.'),
    ('schedules', 'zone', 'The time zone of the pattern.'),
    ('schedules', 'queue', 'The queue of its jobs.'),
    ('schedules', 'job_name', 'The name of its jobs.'),
    ('schedules', 'kwargs', 'The arguments of its jobs.'),
    ('schedules', 'tag', 'The tag of its jobs.'),
    ('schedules', 'priority', 'The priority of its jobs.'),
    ('schedules', 'missed', 'What happens to slots that passed while no worker ran: skip, once or all.'),
    ('schedules', 'state', 'active or paused.'),
    ('schedules', 'next_slot', 'When it fires next.'),
    ('schedules', 'last_slot', 'The slot that it fired last.'),
    ('schedules', 'last_job_id', 'The job of that slot.'),
    ('schedules', 'missed_slots', 'How many slots passed without a job.'),
    ('schedules', 'paused_at', 'Since when it is paused. Null: it is not.'),
    ('schedules', 'paused_by', 'Who paused it.'),
    ('schedules', 'paused_why', 'Why.'),
    ('schedules', 'declared_by', 'The worker whose code declares it. Null: an operator added it.'),
    ('schedules', 'last_declared_at', 'When a worker last declared it.'),
    ('schedules', 'created_at', 'When it was created.'),
    ('sweeps', 'name', 'Its name.'),
    ('sweeps', 'table_name', 'The table that it sweeps.'),
    ('sweeps', 'state', 'paused, running, due or idle.'),
    ('sweeps', 'cron', 'The pattern of its runs, or null.'),
    ('sweeps', 'zone', 'The time zone of the pattern.'),
    ('sweeps', 'every', 'The pause between two runs, or null.'),
    ('sweeps', 'next_run_at', 'When it is due next.'),
    ('sweeps', 'run_started_at', 'When the last run began.'),
    ('sweeps', 'run_ended_at', 'When it ended. Null: it has not.'),
    ('sweeps', 'watchdog_ran_at', 'When its watchdog last ran.'),
    ('sweeps', 'paused_at', 'Since when it is paused. Null: it is not.'),
    ('sweeps', 'paused_by', 'Who paused it.'),
    ('sweeps', 'paused_why', 'Why.'),
    ('sweeps', 'rows_claimed', 'Rows that all runs claimed.'),
    ('sweeps', 'rows_finished', 'Rows that all runs finished.'),
    ('sweeps', 'rows_failed', 'Failures of rows, over all runs.'),
    ('sweeps', 'rows_lost', 'Rows that were finished after the watchdog had reset them.'),
    ('sweeps', 'rows_reset', 'Rows that the watchdog reset.'),
    ('sweeps', 'failing', 'Rows that failed and wait for their next attempt, up to 10,000.'),
    ('sweeps', 'dead', 'Rows that failed too often, up to 10,000.'),
    ('mirrors', 'name', 'Its name.'),
    ('mirrors', 'table_name', 'The table that it mirrors.'),
    ('mirrors', 'queue', 'The queue of its jobs.'),
    ('mirrors', 'job_name', 'The name of its jobs.'),
    ('mirrors', 'phase', 'none, building, verifying or swapped: what happens to its second set.'),
    ('mirrors', 'serving', 'The set of documents that is searched. Null: the store has only one.'),
    ('mirrors', 'second', 'A second set that is written too.'),
    ('mirrors', 'rebuild_rows', 'Rows that the rebuild has written.'),
    ('mirrors', 'rebuild_started_at', 'When the last rebuild began.'),
    ('mirrors', 'rebuild_ended_at', 'When it ended.'),
    ('mirrors', 'round_started_at', 'When the current round of the check began.'),
    ('mirrors', 'round_rows', 'Rows that this round has compared.'),
    ('mirrors', 'compared_at', 'When the last whole round ended.'),
    ('mirrors', 'rows_compared', 'Rows that it compared.'),
    ('mirrors', 'repaired', 'Rows that it found different and repaired.'),
    ('mirrors', 'repaired_total', 'The same over all rounds.'),
    ('mirrors', 'rounds', 'Whole rounds so far.'),
    ('mirrors', 'equal_as_of', 'Every change committed before this is in the store.'),
    ('mirrors', 'differences', 'Rows that were found different and not yet equal.'),
    ('mirrors', 'oldest_difference', 'Since when the oldest of them has been known.'),
    ('mirrors', 'tombstones', 'How long deletions are remembered.'),
    ('alarms', 'id', 'The alarm.'),
    ('alarms', 'rule', 'Which rule is violated.'),
    ('alarms', 'subject', 'The queue, sweep or mirror that it concerns.'),
    ('alarms', 'state', 'open, acknowledged, silenced or cleared.'),
    ('alarms', 'raised_at', 'When it was raised.'),
    ('alarms', 'cleared_at', 'When it cleared. Null: it has not.'),
    ('alarms', 'seen_at', 'When a sample last found the rule violated.'),
    ('alarms', 'value', 'The value of that sample.'),
    ('alarms', 'threshold', 'The threshold that it violates.'),
    ('alarms', 'summary', 'What is wrong, in one sentence.'),
    ('alarms', 'acknowledged_at', 'When an operator acknowledged it.'),
    ('alarms', 'acknowledged_by', 'Who.'),
    ('alarms', 'acknowledged_why', 'With which note.'),
    ('alarms', 'silenced_until', 'Until when no notification is sent.'),
    ('alarms', 'silenced_by', 'Who silenced it.'),
    ('alarms', 'silenced_why', 'Why.'),
    ('alarms', 'notified_at', 'When its notifications were enqueued. Null: none was.'),
    ('alarms', 'delivered_at', 'When a receiver first delivered one.'),
    ('alarms', 'delivered_by', 'Which receiver.')
        ) as c (relation, name, text)
    loop
        execute format('comment on column leasehold.%I.%I is %L', each.relation, each.name, each.text);
    end loop;
end $$;

-- Least privilege. Roles belong to the whole server and need CREATEROLE; without it the engine works as
-- before and an administrator can create them later.
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

    revoke all on all functions in schema leasehold, leasehold_internal from public;
    if not exists (select from pg_roles where rolname = 'leasehold_operator') then
        return;
    end if;

    grant usage on schema leasehold, leasehold_internal
        to leasehold_producer, leasehold_worker, leasehold_housekeeper, leasehold_viewer,
           leasehold_operator;
    grant execute on function
        leasehold.contract
        to leasehold_producer, leasehold_worker, leasehold_housekeeper, leasehold_viewer, leasehold_operator;

    -- A producer adds work and sees nothing.
    grant insert (name, kwargs, queue, priority, enqueued_at, scheduled_at, expires_at, tag,
                  max_attempts, trace_context)
        on leasehold.job to leasehold_producer;
    grant execute on function
        leasehold.enqueue, leasehold.enqueue_many, leasehold_internal.check_enqueue,
        leasehold_internal.check_options, leasehold_internal.request_hash, leasehold_internal.check_expiry,
        leasehold_internal.check_kwargs_size, leasehold_internal.wake
        to leasehold_producer, leasehold_worker;

    -- A worker claims from any queue and finishes under the fence. `complete_waiting` completes jobs that
    -- wait: a role that works is trusted with all jobs. It cannot touch a row in any other way.
    grant execute on function
        leasehold_internal.queue_settings, leasehold_internal.claim_next, leasehold_internal.claim_alone,
        leasehold_internal.claim_around, leasehold_internal.lost_priority, leasehold_internal.has_deferred,
        leasehold.claim, leasehold.recover_claim, leasehold.renew, leasehold_internal.cancel_requests,
        leasehold.check_lease, leasehold_internal.complete_rows, leasehold.complete_many, leasehold.complete,
        leasehold_internal.settle,
        leasehold.complete_waiting, leasehold.fail, leasehold.bury, leasehold_internal.record_failure,
        leasehold_internal.ended_as, leasehold.snooze, leasehold.defer, leasehold_internal.defer_many,
        leasehold.release, leasehold.finish_cancelled,
        leasehold_internal.explain_finish, leasehold_internal.reclaim_leases, leasehold_internal.reclaim,
        leasehold_internal.reclaim_waiting, leasehold_internal.reclaim_dead, leasehold.once_start,
        leasehold.once_finish, leasehold.once_forget, leasehold_internal.register_worker,
        leasehold_internal.unregister_worker, leasehold_internal.begin_idle, leasehold_internal.end_idle,
        leasehold_internal.next_due
        to leasehold_worker;

    -- Its sweeps claim rows of tables of other roles: their owners grant that right.
    grant execute on function
        leasehold_internal.next_claim, leasehold_internal.begin_sweep, leasehold_internal.close_sweep,
        leasehold_internal.count_sweep, leasehold_internal.fail_swept
        to leasehold_worker;
    grant execute on function
        leasehold_internal.declare_sweep, leasehold_internal.begin_watchdog, leasehold_internal.note_watchdog,
        leasehold_internal.note_due, leasehold_internal.note_claimed, leasehold.run_sweep
        to leasehold_worker, leasehold_housekeeper;
    grant select, update, delete on
        leasehold_internal.sweep_failure
        to leasehold_worker, leasehold_housekeeper;

    -- A receiver of alarm notifications registers itself.
    grant execute on function
        leasehold_internal.declare_alarm_receiver, leasehold_internal.alarm_has_cleared,
        leasehold_internal.note_alarm_delivery
        to leasehold_worker;

    -- A role that changes a mirrored table enqueues jobs; a role that runs the mirror reads rows and
    -- calls the store.
    grant execute on function
        leasehold_internal.mirror_changed, leasehold_internal.mirror_removed, leasehold_internal.mirror_saved,
        leasehold_internal.mirror_restored, leasehold_internal.reindex_mirror
        to leasehold_producer, leasehold_worker;
    grant execute on function
        leasehold_internal.fingerprint, leasehold_internal.declare_mirror, leasehold_internal.mirror_entomb,
        leasehold_internal.mirror_recovered, leasehold_internal.claim_check,
        leasehold_internal.end_check, leasehold_internal.publish_check, leasehold_internal.mirror_differs,
        leasehold_internal.mirror_equal, leasehold_internal.mirror_seen, leasehold_internal.mirror_old_gone,
        leasehold_internal.mirror_forgotten, leasehold_internal.mirror_tally,
        leasehold_internal.mirror_serves, leasehold_internal.mirror_adopts, leasehold_internal.begin_rebuild,
        leasehold_internal.note_rebuild, leasehold_internal.note_swap, leasehold_internal.drop_second
        to leasehold_worker;
    grant select on
        leasehold_internal.mirror, leasehold_internal.mirror_gone, leasehold_internal.mirror_difference
        to leasehold_worker;

    -- A housekeeper reclaims, prunes and fires schedules; a worker process that does both has both
    -- roles.
    grant execute on function
        leasehold_internal.reclaim_leases, leasehold_internal.reclaim, leasehold_internal.reclaim_waiting,
        leasehold_internal.reclaim_dead, leasehold_internal.clamp_leases, leasehold_internal.expire_jobs,
        leasehold_internal.return_strays, leasehold_internal.walk_jobs, leasehold_internal.prune,
        leasehold_internal.prune_kind, leasehold_internal.prune_measures, leasehold_internal.extend_history,
        leasehold_internal.drop_history, leasehold.housekeep, leasehold_internal.fire_schedule,
        leasehold_internal.retire_schedule, leasehold_internal.undeclared_schedules,
        leasehold_internal.sample_due, leasehold_internal.sample, leasehold_internal.begin_sample,
        leasehold_internal.measure_part, leasehold_internal.end_sample, leasehold_internal.recount_queues,
        leasehold_internal.alarm_snapshot, leasehold_internal.apply_alarms
        to leasehold_housekeeper;
    grant select, insert, update, delete on
        leasehold_internal.schedule
        to leasehold_housekeeper;
    grant select on
        leasehold.schema_version
        to leasehold_worker, leasehold_housekeeper, leasehold_producer, leasehold_viewer, leasehold_operator;

    -- An operator cancels, redrives, deletes and pauses; the audit log records each action.
    grant execute on function
        leasehold.cancel, leasehold.promote, leasehold.redrive, leasehold.delete_jobs, leasehold.update_job,
        leasehold_internal.error_fingerprint, leasehold.pause, leasehold.resume, leasehold.set_queue,
        leasehold.add_schedule, leasehold.pause_schedule, leasehold.resume_schedule,
        leasehold.remove_schedule, leasehold.run_schedule, leasehold_internal.wake, leasehold.run_sweep,
        leasehold.pause_sweep, leasehold.resume_sweep, leasehold_internal.redrive_sweep,
        leasehold_internal.begin_watchdog, leasehold_internal.note_watchdog, leasehold_internal.run_watchdog,
        leasehold_internal.forget_sweep, leasehold.acknowledge_alarm, leasehold_internal.test_alarm, leasehold.silence_alarm,
        leasehold_internal.watch_queue, leasehold_internal.unwatch_queue, leasehold_internal.order_mirror, leasehold_internal.reindex_mirror
        to leasehold_operator;
    -- An operator who decides about a dead job needs its kwargs and its errors.
    grant select on
        leasehold.job, leasehold_internal.dead_job, leasehold_internal.finished_job, leasehold.jobs,
        leasehold_internal.lease, leasehold_internal.sweep_failure
        to leasehold_operator;
    if not pg_has_role('leasehold_operator', 'leasehold_viewer', 'member') then
        grant leasehold_viewer to leasehold_operator;
    end if;

    -- A viewer sees everything but kwargs, error texts, notes and trace contexts.
    grant select (id, queue, name, state, cause, priority, tag, idempotency_key, enqueued_at, scheduled_at,
                  expires_at, claimed_at, finished_at, attempts, max_attempts, lost_count, worker,
                  lease_generation, lease_expires_at, cancel_requested, stored_in, deferred)
        on leasehold.jobs to leasehold_viewer;
    grant execute on function
        leasehold_internal.queue_names, leasehold_internal.finished_at
        to leasehold_viewer;
    grant select on
        leasehold_internal.queue, leasehold.queues, leasehold.workers, leasehold.schedules,
        leasehold_internal.schedule, leasehold.audit, leasehold_internal.sweep, leasehold.sweeps,
        leasehold_internal.mirror, leasehold.mirrors, leasehold_internal.mirror_gone,
        leasehold_internal.mirror_difference
        to leasehold_viewer;
    grant select on
        leasehold_internal.measure, leasehold_internal.measure_hour, leasehold_internal.watch,
        leasehold_internal.alarm, leasehold.alarms, leasehold_internal.alarm_receiver, leasehold_internal.duty
        to leasehold_viewer;
    grant execute on function
        leasehold_internal.latest, leasehold_internal.measured, leasehold_internal.mirror_numbers,
        leasehold_internal.tag_subject, leasehold_internal.vacuum_holders,
        leasehold_internal.undeclared_schedules, leasehold_internal.series
        to leasehold_viewer;
    grant select (sweep, key, claim, attempts, failed_at, retry_at, dead_at)
        on leasehold_internal.sweep_failure to leasehold_viewer;
    grant select (id, queue, name, tag, priority, enqueued_at, scheduled_at, expires_at, attempts,
                  max_attempts, lost_count, held, deferred)
        on leasehold.job to leasehold_viewer;
end $$;


insert into leasehold.schema_version (version, name, checksum, release, oldest_reader) values (0, 'functions', '\x12e31fbf2eb072ba7de6e7ac9e3ed98f066bb70fe53f8665250f57d761d810c0', 999, 0) on conflict (version) do update set checksum = excluded.checksum, applied_at = statement_timestamp(), release = excluded.release, oldest_reader = excluded.oldest_reader;
commit;
