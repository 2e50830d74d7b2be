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
