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
