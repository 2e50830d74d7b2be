-- Owners put any person into their groups, and could not take anybody out again. From here on they
-- invite; the person accepts, declines, or blocks them. Also: a key, so that the place in a list that a
-- client carries tells nothing about the note that stands there; and which index is this database's own.
--
-- Locks: the references to accounts and groups lock those tables against writes for as long as it takes
-- to make empty tables. A program of before this migration finds its functions gone, and answers 503
-- until it is replaced.

create table annotations.invitation (
    group_id text collate "C" not null references annotations.user_group,
    user_id bigint not null references annotations.user_account,
    invited_by bigint not null references annotations.user_account,
    invited_at timestamptz not null default statement_timestamp(),
    -- Kept, so that the group does not ask again.
    declined_at timestamptz,
    primary key (group_id, user_id)
);
create index invitation_of_user on annotations.invitation (user_id, invited_at);
create index invitation_age on annotations.invitation (invited_at);

-- Whose invitations a person does not want.
create table annotations.blocked (
    user_id bigint not null references annotations.user_account,
    blocked_id bigint not null references annotations.user_account,
    blocked_at timestamptz not null default statement_timestamp(),
    primary key (user_id, blocked_id)
);
create index blocked_by on annotations.blocked (blocked_id);

create table annotations.secret (
    only_row boolean primary key default true constraint one_secret check (only_row),
    cursor_key bytea not null constraint cursor_key_length check (octet_length(cursor_key) = 32)
);
insert into annotations.secret (cursor_key)
values (sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));

-- The index that was used first. Another one is not taken without a person's word.
create table annotations.index_identity (
    only_row boolean primary key default true constraint one_index check (only_row),
    identity text not null constraint index_identity_length check (octet_length(identity) <= 400),
    place text not null,
    recorded_at timestamptz not null default statement_timestamp()
);

drop function if exists annotations.add_member(bigint, text, text);
drop function if exists annotations.find(
    bigint, text, text, text, text, text, text, text[], timestamptz, text, timestamptz, text[], int);
drop function if exists annotations.has_words(text[], text, text, text[]);
