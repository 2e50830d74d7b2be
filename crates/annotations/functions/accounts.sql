-- Accounts, their sessions, and the groups that they read in.
--
-- Error codes: AN001 the name is taken, AN002 the idempotency key was used for another request,
-- AN003 no such note or not visible, AN004 other users have replied, AN005 no such group for this user,
-- AN006 another user's note, AN007 a reply with a group of its own, AN008 the account is deleted,
-- AN009 the note was changed meanwhile, AN010 the note would be empty, AN011 too many groups, AN012 no
-- such user, AN013 an owner would leave members behind, AN014 too many invitations, AN015 too many
-- blocked users.

-- Returns the groups whose notes a user may read, as ids that `annotation.group_id` can have; `viewer`
-- null: a reader without an account. Every query for notes uses it. A moved group counts as the one it
-- was moved to.
create or replace function annotations.readable(viewer bigint)
returns text[]
language sql stable set search_path = annotations, pg_temp as $$
    with own (id) as (
        select '__world__' union all
        select m.group_id
          from annotations.membership m join annotations.user_group g on g.id = m.group_id
         where m.user_id = viewer and g.moved_to is null
    )
    select array(select id from own union all
                 select g.id from own join annotations.user_group g on g.moved_to = own.id)
$$;

-- Like readable(), for one group and the groups that were moved into it.
create or replace function annotations.readable_as(viewer bigint, wanted text)
returns text[]
language sql stable set search_path = annotations, pg_temp as $$
    with own (id) as (
        select g.id from annotations.user_group g
         where g.id = wanted and g.moved_to is null
           and (wanted = '__world__'
                or exists (select from annotations.membership m
                            where m.user_id = viewer and m.group_id = wanted))
    )
    select array(select id from own union all
                 select g.id from own join annotations.user_group g on g.moved_to = own.id)
$$;

create or replace function annotations.sign_up(new_name text, display text, token_hash bytea)
returns bigint
language plpgsql volatile set search_path = annotations, pg_temp as $$
declare
    made bigint;
begin
    insert into annotations.user_account (name, display_name) values (new_name, display)
    on conflict on constraint user_name_is_taken do nothing
    returning id into made;
    -- Checked after the insert, which has waited for a rename that gives the name up.
    if made is null or exists (select from annotations.former_name f where f.name = new_name) then
        raise exception 'this name is taken' using errcode = 'AN001';
    end if;
    insert into annotations.token (hash, user_id) values (token_hash, made);
    return made;
end $$;

-- Opens a session for a browser whose user showed a token, and returns that user; no row if the token is
-- unknown. A session lasts 30 days. A token has at most 50 of them: the oldest ends when another one begins.
create or replace function annotations.log_in(shown_hash bytea, session_hash bytea)
returns table (id bigint, name text, display_name text)
language plpgsql volatile set search_path = annotations, pg_temp as $$
#variable_conflict use_column
begin
    -- The lock makes concurrent log-ins with one token count correctly.
    select u.id, u.name, u.display_name into id, name, display_name
      from annotations.token t join annotations.user_account u on u.id = t.user_id
     where t.hash = shown_hash and u.deleted_at is null
       for no key update of t;
    if not found then
        return;
    end if;
    delete from annotations.session s
     where s.hash in (select o.hash from annotations.session o
                       where o.token_hash = shown_hash order by o.expires_at desc offset 49);
    insert into annotations.session (hash, token_hash, expires_at)
    values (session_hash, shown_hash, statement_timestamp() + interval '30 days');
    return next;
end $$;

-- Starts a bulk operation: stores its row, and a job that does it in steps.
create or replace function annotations.begin_bulk(
    tag text, filter jsonb, priority int default 100, forced boolean default false
)
returns bigint
language plpgsql volatile set search_path = annotations, leasehold, pg_temp as $$
declare
    made bigint;
begin
    insert into annotations.bulk (tag, filter, priority, force)
    values (begin_bulk.tag, begin_bulk.filter, begin_bulk.priority, forced)
    returning id into made;
    insert into leasehold.job (name, queue, kwargs, priority, tag, max_attempts)
    values ('annotations.bulk', 'annotations.bulk', jsonb_build_object('bulk', made), begin_bulk.priority,
            begin_bulk.tag, 1000);
    return made;
end $$;

-- Renames a user. Rows of notes have no user names, so readers see the new name at once; the job updates
-- the index.
create or replace function annotations.rename_user(who bigint, new_name text)
returns bigint
language plpgsql volatile set search_path = annotations, pg_temp as $$
declare
    old_name text;
begin
    select name into old_name from annotations.user_account
     where id = who and deleted_at is null for update;
    if not found then
        raise exception 'there is no such user' using errcode = 'AN012';
    end if;
    if old_name = new_name then
        return null;
    end if;
    update annotations.user_account set name = new_name where id = who;
    -- Users may take back their own former names, not those of others. Checked after the update, which
    -- has waited for a rename that gives the name up.
    if exists (select from annotations.former_name f where f.name = new_name and f.user_id <> who) then
        raise exception 'this name is taken' using errcode = 'AN001';
    end if;
    insert into annotations.former_name (name, user_id) values (old_name, who)
    on conflict (name) do update set abandoned_at = excluded.abandoned_at;
    return annotations.begin_bulk('rename_user', jsonb_build_object('user_id', who));
exception
    when unique_violation then
        raise exception 'this name is taken' using errcode = 'AN001';
end $$;

-- Changes the arguments that are not null, all or none. Returns the id of the bulk operation that
-- updates the index; null if the name stays.
create or replace function annotations.change_user(who bigint, name text, display_name text)
returns bigint
language plpgsql volatile set search_path = annotations, pg_temp as $$
#variable_conflict use_column
begin
    update annotations.user_account u
       set display_name = coalesce(change_user.display_name, u.display_name)
     where u.id = who and u.deleted_at is null;
    if not found then
        raise exception 'there is no such user' using errcode = 'AN012';
    end if;
    return case when change_user.name is not null
                then annotations.rename_user(who, change_user.name) end;
end $$;

-- Deletes a user's account. The user's notes are hidden from this commit on; the job deletes them. A
-- group that the user owns passes to its oldest other member: without an owner it could invite no
-- user and remove none.
create or replace function annotations.delete_user(who bigint)
returns bigint
language plpgsql volatile set search_path = annotations, pg_temp as $$
declare
    groups text[];
begin
    -- The groups first, as everywhere (see groups.sql). Leaving and handing over take the same lock.
    groups := array(
        select g.id from annotations.user_group g
         where g.id in (select o.id from annotations.user_group o where o.owner_id = who
                        union
                        select m.group_id from annotations.membership m where m.user_id = who)
         order by g.id for no key update);
    -- Waits for saves in flight, and later saves wait for this: see create_annotation. An update alone
    -- does not conflict with their lock, and would leave a note behind for ever.
    perform from annotations.user_account where id = who for update;
    update annotations.user_account set deleted_at = statement_timestamp(), display_name = ''
     where id = who and deleted_at is null;
    if not found then
        raise exception 'there is no such user' using errcode = 'AN012';
    end if;
    delete from annotations.token where user_id = who;
    delete from annotations.membership where user_id = who;
    update annotations.user_group g
       set owner_id = (select m.user_id from annotations.membership m
                        where m.group_id = g.id order by m.joined_at, m.user_id limit 1)
     where g.owner_id = who and g.moved_to is null
       and exists (select from annotations.membership m where m.group_id = g.id);
    delete from annotations.invitation where user_id = who;
    delete from annotations.invitation where invited_by = who;
    perform annotations.close_empty(groups);
    delete from annotations.blocked where user_id = who;
    delete from annotations.blocked where blocked_id = who;
    return annotations.begin_bulk('delete_user', jsonb_build_object('user_id', who));
end $$;
