-- Limits: how many jobs of one limit key may run.
--
-- Why: a job with a limit key waits in `job_key_idx`, outside the order of its queue. These tables hold
-- the rules, which keys have something to claim, and what tells claimers so.
-- Locks: none that matter; every object here is new.
-- An older program sees: nothing of this, and no job with a limit key: it cannot run one without its limit.

-- How many jobs may run for a key, or for all keys of a prefix. An operator's rule comes before the one
-- that a worker's code declares.
create table leasehold_internal.limit_rule (
    queue text collate "C" not null
        constraint limit_rule_queue_form check (queue <> '' and octet_length(queue) <= 64),
    -- A limit key, or the text before the first ':' of many.
    key text collate "C" not null
        constraint limit_rule_key_form check (octet_length(key) between 1 and 200),
    by_operator boolean not null,
    -- Null: no limit.
    max_running int constraint limit_rule_max_running check (max_running between 1 and 1000000),
    -- How many jobs a key gets for one job of a key with weight 1.
    weight int not null default 1 constraint limit_rule_weight check (weight between 1 and 100),
    -- The worker that declared it, or the operator that set it.
    set_by text not null,
    set_at timestamptz not null default statement_timestamp(),
    constraint limit_rule_pkey primary key (queue, key, by_operator)
);

-- One row per limit key: claimers lock it while they count and claim. A claimer creates it, and
-- housekeeping prunes it when the key has no job.
create table leasehold_internal.limit_key (
    queue text collate "C" not null,
    key text collate "C" not null,
    -- When a claimer looks at the key again. Null: a signal comes first.
    look_at timestamptz,
    paused_at timestamptz,
    paused_by text,
    paused_why text,
    constraint limit_key_pkey primary key (queue, key),
    constraint limit_key_pause_is_signed check (paused_at is null or paused_by is not null)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
create index limit_key_look_idx on leasehold_internal.limit_key (queue, look_at) where look_at is not null;

-- Look at this key, from then on. Whatever gives a key work or room inserts a row in the same
-- transaction: producers and finishers neither lock nor read the row of the key, so none waits for
-- another. Only the claimer that has locked the key deletes its signals, those that it had read before.
create table leasehold_internal.limit_signal (
    id bigint generated always as identity (cache 50) constraint limit_signal_pkey primary key,
    due_at timestamptz not null,
    queue text collate "C" not null,
    key text collate "C" not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_vacuum_cost_delay = 0);
create index limit_signal_due_idx on leasehold_internal.limit_signal (queue, due_at);

-- Wakes idle workers as a new job does, see `job_wakes_idle`.
create constraint trigger limit_signal_wakes_idle after insert on leasehold_internal.limit_signal
    deferrable initially deferred for each row
    when (new.due_at <= clock_timestamp() + interval '1 second'
          and case when current_setting('leasehold.woken_queue', true) = new.queue then false
                   else set_config('leasehold.woken_queue', new.queue, true) is not null end)
    execute function leasehold_internal.wake_idle();

-- Where the walk over limit keys reads on.
create table leasehold_internal.limit_walk (
    only_row boolean primary key default true constraint limit_walk_is_one_row check (only_row),
    queue text collate "C" not null default '',
    key text collate "C" not null default '',
    walked_at timestamptz not null default '-infinity',
    cooldown interval not null default interval '0'
);
insert into leasehold_internal.limit_walk default values;
