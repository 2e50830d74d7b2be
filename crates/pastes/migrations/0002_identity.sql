-- Gives every paste an identity. A name can be used again once its paste has ended, so a name alone does not
-- identify a paste: tokens, reports, takedowns, replays and jobs name `paste_id`.
--
-- Locks pastes.pastes exclusively and rewrites it, because every existing row gets an identity:
-- readers and creators wait until it is done. Functions get other arguments, so an older program returns 503
-- from then on, until it is replaced. Existing delete tokens become invalid.
alter table pastes.pastes add column paste_id uuid not null default gen_random_uuid();

-- Null: reported before pastes had an identity, and its paste had ended.
alter table pastes.reports add column paste_id uuid;
update pastes.reports r set paste_id = p.paste_id
  from pastes.pastes p
 where p.short_code = r.short_code and p.content_hash = r.content_hash
   and p.created_at <= r.reported_at;
create index reports_of_code on pastes.reports (short_code);

-- A request and its paste have the same time: one statement created both.
alter table pastes.requests add column paste_id uuid;
update pastes.requests r set paste_id = p.paste_id
  from pastes.pastes p where p.short_code = r.short_code and p.created_at = r.created_at;

-- The order in which bans are listed, page by page.
alter table pastes.banned add column id bigint generated always as identity unique;

-- The actions of operators, and their reasons. Nothing deletes these rows.
create table pastes.moderation (
    id bigint generated always as identity primary key,
    action varchar(10) not null check (action in ('takedown', 'ban', 'unban')),
    short_code varchar(64) collate "C",
    paste_id uuid,
    content_hash varchar(64) collate "C" not null,
    report_id bigint,
    -- Pastes that this ended.
    ended bigint not null default 0,
    -- The content was banned with it.
    banned boolean not null default false,
    who text not null,
    why text,
    acted_at timestamptz not null default statement_timestamp()
);

-- Which store belongs to this database: the store has an object with the same id.
create table pastes.store (
    only_one boolean primary key default true check (only_one),
    store_id uuid not null default gen_random_uuid(),
    -- Where the store is. Null: no store has the id yet.
    location text
);
insert into pastes.store default values;

drop function if exists pastes.create_paste(
    text, boolean, bytea, text, bytea, interval, text, boolean, bytea, bytea, interval, int);
drop function if exists pastes.create_many(
    text[], text[], bytea[], double precision[], text[], boolean[], interval, int);
drop function if exists pastes.to_upload(text[]);
drop function if exists pastes.look(text[]);
drop function if exists pastes.end_now(text);
drop function if exists pastes.burn(text);
drop function if exists pastes.take_down(text, text, boolean);
