-- The tables of the annotation service. Nothing else lives in this schema; it takes no lock on
-- anything that existed before.

-- Accounts. A name stays taken after a rename and after the account was deleted: no user can take the name of
-- another one, who may be known by it.
create table annotations.user_account (
    id bigint generated always as identity primary key,
    name text collate "C" not null
        constraint user_name_form check (name ~ '^[a-z0-9][a-z0-9_.-]{1,29}$'),
    display_name text not null default ''
        constraint user_display_name_length check (char_length(display_name) <= 80),
    created_at timestamptz not null default statement_timestamp(),
    deleted_at timestamptz,
    constraint user_name_is_taken unique (name)
);
-- Names that users had before a rename. No other user can take them.
create table annotations.former_name (
    name text collate "C" primary key,
    user_id bigint not null references annotations.user_account,
    abandoned_at timestamptz not null default statement_timestamp()
);
create index former_name_of_user on annotations.former_name (user_id, abandoned_at);

-- The credentials of users and their programs. Only the hash is stored.
create table annotations.token (
    hash bytea primary key,
    user_id bigint not null references annotations.user_account,
    created_at timestamptz not null default statement_timestamp()
);
create index token_owner on annotations.token (user_id);

-- Groups of readers. Every reader belongs to `__world__`, with or without an account; it has no members.
create table annotations.user_group (
    id text collate "C" primary key
        constraint group_id_form check (id = '__world__' or id ~ '^[0-9A-Za-z]{8,22}$'),
    name text not null constraint group_name_length check (char_length(name) between 1 and 80),
    -- Every user who knows the id of an open group may join it; of another one, users whom its owner invites.
    open boolean not null default false,
    owner_id bigint references annotations.user_account,
    -- The group was moved into another one. From that commit on its notes belong to the other group, even
    -- while their rows still name this one.
    moved_to text collate "C" references annotations.user_group,
    created_at timestamptz not null default statement_timestamp(),
    constraint moved_somewhere_else
        check (moved_to is null or (moved_to <> id and id <> '__world__'))
);
create index group_moved_to on annotations.user_group (moved_to) where moved_to is not null;
insert into annotations.user_group (id, name, open) values ('__world__', 'Public', true);

create table annotations.membership (
    group_id text collate "C" not null references annotations.user_group,
    user_id bigint not null references annotations.user_account,
    joined_at timestamptz not null default statement_timestamp(),
    primary key (group_id, user_id)
);
create index membership_of_user on annotations.membership (user_id);

-- The pages that notes are about.
create table annotations.document (
    id bigint generated always as identity primary key,
    -- Canonical: without fragment, host in lower case.
    url text collate "C" not null
        constraint document_url_length check (octet_length(url) <= 2000),
    title text not null default ''
        constraint document_title_length check (char_length(title) <= 300),
    created_at timestamptz not null default statement_timestamp(),
    constraint document_url_is_known_once unique (url)
);

create table annotations.annotation (
    -- A random number of 128 bits, in base 62.
    id text collate "C" primary key
        constraint annotation_id_form check (id ~ '^[0-9A-Za-z]{22}$'),
    document_id bigint not null references annotations.document,
    user_id bigint not null references annotations.user_account,
    group_id text collate "C" not null references annotations.user_group,
    kind text collate "C" not null
        constraint annotation_kind check (kind in ('annotation', 'page_note', 'reply')),
    -- The note that a reply answers, and the first note of the conversation. No foreign keys: the replies to
    -- a deleted note stay.
    parent_id text collate "C",
    root_id text collate "C",
    quote text not null default '' constraint annotation_quote_length check (octet_length(quote) <= 16384),
    selectors jsonb not null default '[]'::jsonb,
    text text not null default '' constraint annotation_text_length check (octet_length(text) <= 65536),
    tags text[] not null default '{}' constraint annotation_tags check (cardinality(tags) <= 20),
    created_at timestamptz not null default statement_timestamp(),
    updated_at timestamptz not null default statement_timestamp(),
    -- A trigger raises it under the row's lock at every change.
    version bigint not null default 1,
    constraint replies_answer_something check
        ((kind = 'reply') = (parent_id is not null) and (kind = 'reply') = (root_id is not null)),
    constraint annotations_quote_something check ((kind = 'annotation') = (quote <> '')),
    constraint notes_say_something check (kind = 'annotation' or text <> '')
) with (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create index annotation_of_document on annotations.annotation (document_id, updated_at, id);
create index annotation_of_user on annotations.annotation (user_id, updated_at, id);
create index annotation_of_group on annotations.annotation (group_id, updated_at, id);
create index annotation_newest on annotations.annotation (updated_at, id);
create index annotation_of_root on annotations.annotation (root_id) where root_id is not null;
-- Users write the same tag in several ways. Here and not among the functions: an index needs it.
create function annotations.folded(tags text[])
returns text[]
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
    select array(select lower(t) from unnest(tags) as t)
$$;
create index annotation_tags_idx on annotations.annotation using gin (annotations.folded(tags));

-- The notes of requests that carried an idempotency key.
create table annotations.request (
    key_hash bytea primary key,
    request_hash bytea not null,
    annotation_id text collate "C" not null,
    created_at timestamptz not null default statement_timestamp()
);
create index request_age on annotations.request (created_at);

-- Bulk operations on annotations, in steps: what each covers, and how far it has come.
create table annotations.bulk (
    id bigint generated always as identity primary key,
    -- rename_user, delete_user, move_group, reindex_user, reindex_group, reindex_document,
    -- reindex_time, reindex_ids, reindex_all
    tag text collate "C" not null,
    -- Which notes it covers; the keys depend on the tag.
    filter jsonb not null default '{}'::jsonb,
    priority int not null default 100,
    force boolean not null default false,
    -- The cursor: the last note that a step handled, and when that note was last changed.
    after_at timestamptz not null default '-infinity',
    after_id text collate "C" not null default '',
    -- How many notes it covers; null before the first step, and from a million on.
    rows_total bigint,
    rows_done bigint not null default 0,
    created_at timestamptz not null default statement_timestamp(),
    finished_at timestamptz,
    cancelled_at timestamptz
);
create index bulk_open on annotations.bulk (id) where finished_at is null;
