-- People and the groups that they read in.
--
-- Refusals: AN001 the name is taken, AN002 the key came with something else, AN003 no such note or not
-- visible, AN004 others have replied, AN005 no such group for this person, AN006 somebody else's,
-- AN007 a reply with a group of its own, AN008 the account is gone,
-- AN009 it was changed meanwhile, AN010 nothing would be left of it, AN011 too many groups,
-- AN012 no such person.

-- The groups whose notes a person may read, by the names that rows have; null: nobody in particular.
-- Every question about notes asks this. A group that was moved counts as the one it was moved to.
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

-- The same, but only what counts as one group.
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
    -- Asked after the insert: it has waited for a rename that gives the name up.
    if made is null or exists (select from annotations.former_name f where f.name = new_name) then
        raise exception 'the name is taken' using errcode = 'AN001';
    end if;
    insert into annotations.token (hash, user_id) values (token_hash, made);
    return made;
end $$;

-- Begins work on many annotations: a row that says what, and a job that does it in pieces.
create or replace function annotations.begin_bulk(
    of_tag text, of_filter jsonb, of_priority int default 100, forced boolean default false
)
returns bigint
language plpgsql volatile set search_path = annotations, leasehold, pg_temp as $$
declare
    made bigint;
begin
    insert into annotations.bulk (tag, filter, priority, force)
    values (of_tag, of_filter, of_priority, forced)
    returning id into made;
    insert into leasehold.job (name, queue, kwargs, priority, tag, max_attempts)
    values ('annotations.bulk', 'annotations.bulk', jsonb_build_object('bulk', made), of_priority,
            of_tag, 1000);
    return made;
end $$;

-- Gives a person another name. Rows of notes do not carry names, so readers see it at once; the
-- index learns it by the job.
create or replace function annotations.rename_user(who bigint, new_name text)
returns bigint
language plpgsql volatile set search_path = annotations, pg_temp as $$
declare
    old_name text;
begin
    select name into old_name from annotations.user_account
     where id = who and deleted_at is null for update;
    if not found then
        raise exception 'no such person' using errcode = 'AN012';
    end if;
    if old_name = new_name then
        return null;
    end if;
    update annotations.user_account set name = new_name where id = who;
    -- One's own former name may come back; others' may not. Asked after the update: it has waited for
    -- a rename that gives the name up.
    if exists (select from annotations.former_name f where f.name = new_name and f.user_id <> who) then
        raise exception 'the name is taken' using errcode = 'AN001';
    end if;
    insert into annotations.former_name (name, user_id) values (old_name, who)
    on conflict (name) do update set given_up_at = excluded.given_up_at;
    return annotations.begin_bulk('rename_user', jsonb_build_object('user_id', who));
exception
    when unique_violation then
        raise exception 'the name is taken' using errcode = 'AN001';
end $$;

-- A person leaves: nothing of theirs can be seen from this commit on, and the job removes it.
create or replace function annotations.delete_user(who bigint)
returns bigint
language plpgsql volatile set search_path = annotations, pg_temp as $$
begin
    -- Waits for saves that are on their way, and those that come later wait for this: see
    -- create_annotation. An update alone would pass them by, and a note would be left for ever.
    perform from annotations.user_account where id = who for update;
    update annotations.user_account set deleted_at = statement_timestamp(), display_name = ''
     where id = who and deleted_at is null;
    if not found then
        raise exception 'no such person' using errcode = 'AN012';
    end if;
    delete from annotations.token where user_id = who;
    delete from annotations.membership where user_id = who;
    return annotations.begin_bulk('delete_user', jsonb_build_object('user_id', who));
end $$;

-- Puts somebody into a group, if they have room for one more. Every search reads all of a person's
-- groups.
create or replace function annotations.enter(who bigint, which text)
returns void
language plpgsql volatile set search_path = annotations, pg_temp as $$
begin
    -- One at a time, so that the count is right; saves do not wait for this.
    perform from annotations.user_account u
      where u.id = who and u.deleted_at is null for no key update;
    if not found then
        raise exception 'no such person' using errcode = 'AN012';
    end if;
    insert into annotations.membership (group_id, user_id)
    select which, who
     where (select count(*) from annotations.membership m where m.user_id = who) < 1000
    on conflict do nothing;
    if not found and not exists (select from annotations.membership m
                                  where m.group_id = which and m.user_id = who) then
        raise exception 'too many groups' using errcode = 'AN011';
    end if;
end $$;

create or replace function annotations.make_group(who bigint, new_id text, new_name text, is_open boolean)
returns void
language sql volatile set search_path = annotations, pg_temp as $$
    insert into annotations.user_group (id, name, open, owner_id)
    values (new_id, new_name, is_open, who);
    select annotations.enter(who, new_id);
$$;

-- Joins an open group.
create or replace function annotations.join_group(who bigint, which text)
returns void
language plpgsql volatile set search_path = annotations, pg_temp as $$
begin
    -- Held until this commits: a group that is being moved takes nobody in.
    perform from annotations.user_group g
      where g.id = which and g.id <> '__world__' and g.moved_to is null
        and (g.open or exists (select from annotations.membership m
                                where m.group_id = g.id and m.user_id = who))
        for key share;
    if not found then
        raise exception 'no such group' using errcode = 'AN005';
    end if;
    perform annotations.enter(who, which);
end $$;

-- Whoever runs the service lets somebody in.
create or replace function annotations.let_in(member bigint, which text)
returns void
language plpgsql volatile set search_path = annotations, pg_temp as $$
begin
    perform from annotations.user_group g
      where g.id = which and g.id <> '__world__' and g.moved_to is null for key share;
    if not found then
        raise exception 'no such group' using errcode = 'AN005';
    end if;
    perform annotations.enter(member, which);
end $$;

-- The owner of a group lets somebody in.
create or replace function annotations.add_member(who bigint, which text, member_name text)
returns void
language plpgsql volatile set search_path = annotations, pg_temp as $$
declare
    member bigint;
begin
    if not exists (select from annotations.user_group g
                     join annotations.membership m on m.group_id = g.id and m.user_id = who
                    where g.id = which and g.owner_id = who and g.moved_to is null) then
        raise exception 'no such group' using errcode = 'AN005';
    end if;
    select id into member from annotations.user_account
     where name = member_name and deleted_at is null;
    if not found then
        raise exception 'no such person' using errcode = 'AN012';
    end if;
    perform annotations.let_in(member, which);
end $$;

-- Moves a group into another one: whoever reads the other one reads its notes from this commit on,
-- and nobody else. `who` owns both and is in both, else somebody who left could read on by taking
-- the notes along; null: an operator.
create or replace function annotations.move_group(who bigint, which text, target text)
returns bigint
language plpgsql volatile set search_path = annotations, pg_temp as $$
begin
    -- Both rows, in one order: two moves cannot meet half-way and make a circle.
    perform from annotations.user_group g where g.id in (which, target) order by g.id for update;
    if which = '__world__' or which = target
       or (select count(*) from annotations.user_group g
            where g.id in (which, target) and g.moved_to is null
              and (who is null or g.owner_id = who
                   and exists (select from annotations.membership m
                                where m.group_id = g.id and m.user_id = who))) <> 2
       -- To everybody only by an operator: the members wrote for each other.
       or (target = '__world__' and who is not null) then
        raise exception 'no such group' using errcode = 'AN005';
    end if;
    update annotations.user_group set moved_to = target where id = which or moved_to = which;
    delete from annotations.membership where group_id = which;
    return annotations.begin_bulk('move_group', jsonb_build_object('group_id', which));
end $$;
