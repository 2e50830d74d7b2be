-- The tables of the paste service. Locks nothing that existed before.

-- Owners list and delete their own pastes. Only the hash of an owner's token is stored.
create table pastes.owners (
    user_id bigint generated always as identity primary key,
    token_hash bytea not null unique,
    created_at timestamptz not null default statement_timestamp()
);

-- A paste has two states: `status` is that of its upload, `deletion_status` that of its end. They are
-- independent. Triggers refuse every move that docs/states.md does not draw.
create table pastes.pastes (
    short_code varchar(64) collate "C" primary key,
    user_id bigint,
    -- SHA-256 in hex.
    content_hash varchar(64) collate "C" not null,
    s3_url varchar(512) null,
    status VARCHAR(20) NOT NULL DEFAULT 'IN_PROGRESS'
        CHECK (status IN ('IN_PROGRESS', 'PROCESSED', 'FAILED')),
    deletion_status VARCHAR(20) NOT NULL DEFAULT 'NOT_EXPIRED'
        CHECK (deletion_status IN ('NOT_EXPIRED', 'DELETION_IN_PROGRESS', 'DELETED')),
    deletion_initiated_at TIMESTAMPTZ NULL,
    -- The claim that may make it DELETED: the sweep's fence.
    deletion_claim bigint,
    content_id bigint not null,
    created_at timestamptz not null default statement_timestamp(),
    -- Deleting a paste, taking it down and burning it set this to the present. A paste is DELETED only after it.
    expires_at timestamptz not null,
    language varchar(40),
    burn boolean not null default false,
    constraint processed_has_its_url check ((status = 'PROCESSED') = (s3_url is not null)),
    constraint claimed_has_its_claim check (
        (deletion_status = 'NOT_EXPIRED') = (deletion_initiated_at is null)
        and (deletion_status = 'NOT_EXPIRED') = (deletion_claim is null))
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create index idx_cleanup_expired on pastes.pastes (expires_at)
    where deletion_status = 'NOT_EXPIRED';
create index idx_watchdog_stuck on pastes.pastes (deletion_initiated_at)
    where deletion_status = 'DELETION_IN_PROGRESS';
-- Tombstones in the order in which they are purged.
create index idx_tombstones on pastes.pastes (deletion_initiated_at)
    where deletion_status = 'DELETED';
-- The pastes that wait for one upload.
create index idx_waiting_for_upload on pastes.pastes (content_id) where status = 'IN_PROGRESS';
create index idx_own_pastes on pastes.pastes (user_id, created_at) where user_id is not null;

-- Bytes that pastes share. Each row is one upload intent: one object key, never used again.
--
-- STAGED: waits for its upload. LIVE: the object was read back with the right bytes. DOOMED: no paste
-- refers to it, and its object waits for its deletion. GONE: the object was deleted; the row stays for 30
-- days and records that the key is dead. A paste of the same bytes that
-- comes after DOOMED gets a row and a key of its own.
create table pastes.contents (
    content_id bigint generated always as identity primary key,
    content_hash varchar(64) collate "C" not null
        constraint content_hash_is_sha256 check (octet_length(content_hash) = 64),
    size int not null check (size > 0),
    -- How many pastes that are not DELETED refer to it.
    ref_count int not null default 1 constraint ref_count_not_negative check (ref_count >= 0),
    state varchar(10) not null default 'STAGED'
        check (state in ('STAGED', 'LIVE', 'DOOMED', 'GONE')),
    object_id uuid not null default gen_random_uuid(),
    changed_at timestamptz not null default statement_timestamp(),
    constraint doomed_when_nothing_refers check ((ref_count = 0) = (state in ('DOOMED', 'GONE')))
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create unique index contents_in_use on pastes.contents (content_hash)
    where state in ('STAGED', 'LIVE');
create index contents_doomed on pastes.contents (changed_at) where state in ('DOOMED', 'GONE');

-- The bytes of a paste between its commit and its upload.
create table pastes.staged (
    short_code varchar(64) collate "C" primary key,
    content_id bigint not null,
    job_id bigint not null,
    size int not null,
    staged_at timestamptz not null default statement_timestamp(),
    bytes bytea compression lz4 not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Requests that carried an idempotency key, and their pastes.
create table pastes.requests (
    key_hash bytea primary key,
    request_hash bytea not null,
    short_code varchar(64) collate "C" not null,
    created_at timestamptz not null default statement_timestamp()
);
create index requests_age on pastes.requests (created_at);

-- Content that the service refuses to store, and the reports of readers.
create table pastes.banned (
    content_hash varchar(64) collate "C" primary key
        constraint banned_hash_is_sha256 check (content_hash ~ '^[0-9a-f]{64}$'),
    reason text not null,
    banned_at timestamptz not null default statement_timestamp()
);
create table pastes.reports (
    id bigint generated always as identity primary key,
    short_code varchar(64) collate "C" not null,
    content_hash varchar(64) collate "C" not null,
    reason text not null,
    contact text,
    reported_at timestamptz not null default statement_timestamp()
);

-- The secret that delete tokens are derived from. One row.
create table pastes.secret (
    only_one boolean primary key default true check (only_one),
    key bytea not null
);
insert into pastes.secret (key)
    select decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex');
