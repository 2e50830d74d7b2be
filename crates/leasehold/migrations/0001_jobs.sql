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
