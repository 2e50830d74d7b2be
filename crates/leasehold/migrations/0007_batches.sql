-- The tables of batches: groups of jobs with a follow-up.
--
-- Why: a job that must run once, when a group of others has ended.
-- Locks: none that matter; every object here is new.
-- An older program sees: nothing. It ends members of batches as before, because the functions do it.

-- A group of jobs that is closed once all of them have ended. Closing it enqueues its follow-up.
create table leasehold_internal.batch (
    id bigint generated always as identity primary key,
    created_at timestamptz not null default statement_timestamp(),
    -- Null: more jobs may be added.
    sealed_at timestamptz,
    -- Set in the statement that enqueues the follow-up.
    closed_at timestamptz,
    cancelled_at timestamptz,
    cancelled_by text,
    cancelled_why text,
    description text constraint batch_description_length check (octet_length(description) <= 1000),
    -- The follow-up jobs as drafts; at most one of them is enqueued.
    on_success jsonb,
    on_end jsonb,
    on_death jsonb,
    follow_up_job_id bigint,
    -- Ends that were counted. Those that follow are in `batch_end`.
    completed bigint not null default 0,
    cancelled bigint not null default 0,
    dead bigint not null default 0,
    deleted bigint not null default 0,
    constraint batch_is_closed_when_sealed check (closed_at is null or sealed_at is not null)
) with (fillfactor = 70);
create unique index batch_follow_up_idx on leasehold_internal.batch (follow_up_job_id)
    where follow_up_job_id is not null;
create index batch_closed_idx on leasehold_internal.batch (closed_at) where closed_at is not null;
create index batch_cancelling_idx on leasehold_internal.batch (id)
    where cancelled_at is not null and closed_at is null;

-- Jobs of a batch that have not ended. The end of a job deletes its row.
create table leasehold_internal.batch_member (
    batch_id bigint not null,
    job_id bigint not null,
    primary key (batch_id, job_id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

-- Ends that are not counted in `batch` yet. Rows are only inserted here, so that ends of one batch do not
-- wait for each other; the transaction that holds the lock of the batch counts and deletes them. A row also
-- says that the batch needs another look: two transactions that end its last two jobs at the same time do not see
-- each other.
create table leasehold_internal.batch_end (
    id bigint generated always as identity (cache 50) primary key,
    batch_id bigint not null,
    outcome text not null
        constraint batch_end_outcome check (outcome in ('completed', 'cancelled', 'dead', 'deleted')),
    -- Negative: that many dead jobs are members again.
    n int not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
create index batch_end_batch_idx on leasehold_internal.batch_end (batch_id);

-- What handlers keep for the jobs that follow.
create table leasehold_internal.job_result (
    job_id bigint primary key,
    batch_id bigint,
    kept_at timestamptz not null default statement_timestamp(),
    result jsonb not null
);
create index job_result_batch_idx on leasehold_internal.job_result (batch_id, job_id)
    where batch_id is not null;
create index job_result_single_idx on leasehold_internal.job_result (kept_at) where batch_id is null;

insert into leasehold_internal.duty (name) values ('look_at_batches'), ('walk_members');
