-- Until now an owner made any user a member of a group, and could remove no member. From now on an owner
-- invites, and the user accepts, declines, or blocks the owner. Also adds a key that seals the cursors of
-- clients, so that a cursor reveals nothing about its note, and a record of the index that belongs to this
-- database.
--
-- The references to accounts and groups lock those tables against writes for as long as it takes to make empty
-- tables. An older program does not find its functions, and responds with 503 until it is replaced.

create table annotations.invitation (
    group_id text collate "C" not null references annotations.user_group,
    user_id bigint not null references annotations.user_account,
    invited_by bigint not null references annotations.user_account,
    invited_at timestamptz not null default statement_timestamp(),
    -- A declined invitation stays, so that the group cannot invite again.
    declined_at timestamptz,
    primary key (group_id, user_id)
);
create index invitation_of_user on annotations.invitation (user_id, invited_at);
create index invitation_age on annotations.invitation (invited_at);

-- Owners whose invitations a user does not get.
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

-- The index that was used first. The service uses another one only after an operator removed this record.
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
