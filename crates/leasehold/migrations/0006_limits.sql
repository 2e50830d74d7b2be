-- Limits: how many jobs of one limit key may run, wait and start, and in which order.
--
-- Why: a job with a limit key waits in `job_key_idx`, outside the order of its queue. These tables hold
-- the rules, which keys have something to claim, and what tells claimers so.
-- Locks: `leasehold_internal.queue` and `dead_job` for a moment; every other object here is new.
-- An older program sees: nothing of this, and no job with a limit key: it cannot run one without its limit.

-- The rule of a key, or of each key of a prefix. An operator's rule comes before the one
-- that a worker's code declares.
create table leasehold_internal.limit_rule (
    queue text collate "C" not null
        constraint limit_rule_queue_form check (queue <> '' and octet_length(queue) <= 64),
    -- A limit key, or the text before the first ':' of many. Empty: the rule is for the whole queue.
    key text collate "C" not null constraint limit_rule_key_form check (octet_length(key) <= 200),
    by_operator boolean not null,
    -- Null: no limit.
    max_running int constraint limit_rule_max_running check (max_running between 1 and 1000000),
    -- How many jobs a key gets for one job of a key with weight 1.
    weight int not null default 1 constraint limit_rule_weight check (weight between 1 and 100),
    -- At most `rate` jobs start per `per`, after `burst` at once. Null: any number.
    rate int constraint limit_rule_rate check (rate between 1 and 1000000),
    per interval,
    burst int,
    -- One job at a time, in order. `on_failure`: whether a job that waits for its next attempt blocks those behind
    -- it. `on_death`: whether the key stops until a dead job is redriven or deleted.
    ordered boolean not null default false,
    on_failure text not null default 'block' constraint limit_rule_on_failure check (on_failure in ('block', 'pass')),
    on_death text not null default 'continue'
        constraint limit_rule_on_death check (on_death in ('continue', 'stop')),
    -- The most jobs that wait: an enqueue of one more is refused. Null: any number.
    max_waiting int constraint limit_rule_max_waiting check (max_waiting between 1 and 1000000),
    -- A job is due after this time without another enqueue, and at the latest `debounce_max` after the first one.
    debounce interval,
    debounce_max interval,
    -- An enqueue this soon after another one stores nothing.
    throttle interval,
    -- The key is the name of jobs: those without a limit key get it.
    by_name boolean not null default false,
    -- The worker that declared it, or the operator that set it.
    set_by text not null,
    set_at timestamptz not null default statement_timestamp(),
    constraint limit_rule_pkey primary key (queue, key, by_operator),
    constraint limit_rule_has_a_whole_rate check ((rate is null) = (per is null) and (rate is null) = (burst is null)),
    constraint limit_rule_per check (per between interval '1 millisecond' and interval '366 days'),
    constraint limit_rule_burst check (burst between 1 and 1000000),
    constraint limit_rule_times check (
        debounce between interval '1 millisecond' and interval '366 days'
        and debounce_max between debounce and interval '366 days'
        and throttle between interval '1 millisecond' and interval '366 days'),
    constraint limit_rule_has_a_whole_debounce check ((debounce is null) = (debounce_max is null)),
    constraint limit_rule_debounce_or_throttle check (debounce is null or throttle is null),
    constraint limit_rule_of_queue check (key <> '' or (not ordered and weight = 1 and debounce is null
        and throttle is null and not by_name))
);

-- A rule for the whole queue, or for a name, exists: enqueues and claims look for it. Kept by `note_limits`.
alter table leasehold_internal.queue add is_limited boolean not null default false;

-- Whether an ordered key stops because a job of it is dead.
create index dead_job_key_idx on leasehold_internal.dead_job (queue, limit_key) where limit_key is not null;

-- One row per limit key: claimers lock it while they count and claim. A claimer creates it, and
-- housekeeping prunes it when the key has no job. The empty key is the queue itself.
create table leasehold_internal.limit_key (
    queue text collate "C" not null,
    key text collate "C" not null,
    -- When a claimer looks at the key again. Null: a signal comes first.
    look_at timestamptz,
    -- When the bucket of the rate is full again. Null or past: it is full.
    full_at timestamptz,
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

-- The last job that a throttled key stored, and until when further ones are left out.
create table leasehold_internal.limit_throttle (
    queue text collate "C" not null,
    key text collate "C" not null,
    job_id bigint not null,
    ends_at timestamptz not null,
    constraint limit_throttle_pkey primary key (queue, key)
);

-- Where the walk over limit keys reads on.
create table leasehold_internal.limit_walk (
    only_row boolean primary key default true constraint limit_walk_is_one_row check (only_row),
    queue text collate "C" not null default '',
    key text collate "C" not null default '',
    walked_at timestamptz not null default '-infinity',
    cooldown interval not null default interval '0'
);
insert into leasehold_internal.limit_walk default values;
