-- Groups: their members, invitations and owners.
--
-- A function that needs both locks takes the group's row first, and then the rows of its members, so
-- that two of them cannot deadlock. Error codes: see accounts.sql.

-- Makes a user a member of a group, up to 1000 groups per user: every search reads all of them.
create or replace function annotations.enter(who bigint, which text)
returns void
language plpgsql volatile set search_path = annotations, pg_temp as $$
begin
    -- Locks the user, so that concurrent joins count correctly; saves do not wait for this lock.
    perform from annotations.user_account u
      where u.id = who and u.deleted_at is null for no key update;
    if not found then
        raise exception 'there is no such user' using errcode = 'AN012';
    end if;
    insert into annotations.membership (group_id, user_id)
    select which, who
     where (select count(*) from annotations.membership m where m.user_id = who) < 1000
    on conflict do nothing;
    if not found and not exists (select from annotations.membership m
                                  where m.group_id = which and m.user_id = who) then
        raise exception 'too many groups' using errcode = 'AN011';
    end if;
    delete from annotations.invitation i where i.group_id = which and i.user_id = who;
end $$;

create or replace function annotations.make_group(who bigint, new_id text, new_name text, is_open boolean)
returns void
language sql volatile set search_path = annotations, pg_temp as $$
    insert into annotations.user_group (id, name, open, owner_id)
    values (new_id, new_name, is_open, who);
    select annotations.enter(who, new_id);
$$;

-- Joins a group that is open or has invited the user.
create or replace function annotations.join_group(who bigint, which text)
returns void
language plpgsql volatile set search_path = annotations, pg_temp as $$
declare
    is_open boolean;
begin
    -- Held until this commits, so that no user joins a group that is being moved.
    select g.open into is_open from annotations.user_group g
      where g.id = which and g.id <> '__world__' and g.moved_to is null for key share;
    if not found then
        raise exception 'there is no such group' using errcode = 'AN005';
    end if;
    -- Deletes the invitation instead of only reading it: an owner who withdraws it at this moment either
    -- wins or comes too late.
    delete from annotations.invitation i where i.group_id = which and i.user_id = who;
    if not found and not is_open
       and not exists (select from annotations.membership m
                        where m.group_id = which and m.user_id = who) then
        raise exception 'there is no such group' using errcode = 'AN005';
    end if;
    perform annotations.enter(who, which);
end $$;

-- Adds a member on behalf of an operator.
create or replace function annotations.let_in(member bigint, which text)
returns void
language plpgsql volatile set search_path = annotations, pg_temp as $$
begin
    perform from annotations.user_group g
      where g.id = which and g.id <> '__world__' and g.moved_to is null for key share;
    if not found then
        raise exception 'there is no such group' using errcode = 'AN005';
    end if;
    perform annotations.enter(member, which);
end $$;

-- Raises unless the user owns the group and is a member; `who` null: an operator, who may. Locks the
-- group against other changes of its members.
create or replace function annotations.owned(who bigint, which text)
returns void
language plpgsql volatile set search_path = annotations, pg_temp as $$
begin
    perform from annotations.user_group g
      where g.id = which and g.id <> '__world__' and g.moved_to is null
        and (who is null or g.owner_id = who
             and exists (select from annotations.membership m
                          where m.group_id = g.id and m.user_id = who))
        for no key update;
    if not found then
        raise exception 'there is no such group' using errcode = 'AN005';
    end if;
end $$;

-- Invites a user into a group that `who` owns. Does nothing if that user has blocked the owner or
-- declined before, and the owner does not learn of it.
create or replace function annotations.invite(who bigint, which text, name text)
returns void
language plpgsql volatile set search_path = annotations, pg_temp as $$
#variable_conflict use_column
declare
    invited bigint;
begin
    perform annotations.owned(who, which);
    -- Locks the invited user, so that concurrent invitations count correctly; saves do not wait for this
    -- lock.
    select u.id into invited from annotations.user_account u
     where u.name = invite.name and u.deleted_at is null for no key update;
    if not found then
        raise exception 'there is no such user' using errcode = 'AN012';
    end if;
    if exists (select from annotations.membership m where m.group_id = which and m.user_id = invited)
       or exists (select from annotations.blocked b where b.user_id = invited and b.blocked_id = who)
       or exists (select from annotations.invitation i where i.group_id = which and i.user_id = invited) then
        return;
    end if;
    -- No single owner can use up a user's limit of open invitations.
    insert into annotations.invitation (group_id, user_id, invited_by)
    select which, invited, who
     where (select count(*) from annotations.invitation i
             where i.user_id = invited and i.declined_at is null) < 100
       and (select count(*) from annotations.invitation i
             where i.user_id = invited and i.declined_at is null and i.invited_by = who) < 10;
    if not found then
        raise exception 'too many invitations' using errcode = 'AN014';
    end if;
end $$;

-- Declines an invitation. The group cannot invite again, but the user may still join by this invitation.
create or replace function annotations.decline(who bigint, which text)
returns void
language plpgsql volatile set search_path = annotations, pg_temp as $$
begin
    update annotations.invitation i
       set declined_at = coalesce(i.declined_at, statement_timestamp())
     where i.group_id = which and i.user_id = who;
    if not found then
        raise exception 'there is no such group' using errcode = 'AN005';
    end if;
end $$;

-- Blocks invitations from a user, and deletes those that have arrived.
create or replace function annotations.block_user(who bigint, name text)
returns void
language plpgsql volatile set search_path = annotations, pg_temp as $$
#variable_conflict use_column
declare
    to_block bigint;
begin
    -- The same lock as in invite(): one of the two waits for the other.
    perform from annotations.user_account u where u.id = who for no key update;
    select u.id into to_block from annotations.user_account u
     where u.name = block_user.name and u.deleted_at is null and u.id <> who for key share;
    if not found then
        raise exception 'there is no such user' using errcode = 'AN012';
    end if;
    insert into annotations.blocked (user_id, blocked_id)
    select who, to_block
     where (select count(*) from annotations.blocked b where b.user_id = who) < 1000
    on conflict do nothing;
    if not found and not exists (select from annotations.blocked b
                                  where b.user_id = who and b.blocked_id = to_block) then
        raise exception 'too many users are blocked' using errcode = 'AN015';
    end if;
    delete from annotations.invitation i where i.user_id = who and i.invited_by = to_block;
end $$;

-- Withdraws the open invitations of these groups where no member is left: a user who accepted one would
-- be alone in a group whose owner is outside. The caller holds the locks of the groups.
create or replace function annotations.close_empty(groups text[])
returns void
language sql volatile set search_path = annotations, pg_temp as $$
    delete from annotations.invitation i
     where i.group_id = any (groups) and i.declined_at is null
       and not exists (select from annotations.membership m where m.group_id = i.group_id)
$$;

-- Leaves a group; not being a member is no error. An owner cannot leave while there are other members:
-- without an owner no new members could be invited.
create or replace function annotations.leave_group(who bigint, which text)
returns void
language plpgsql volatile set search_path = annotations, pg_temp as $$
begin
    perform from annotations.user_group g where g.id = which for no key update;
    if exists (select from annotations.user_group g
                where g.id = which and g.owner_id = who and g.moved_to is null)
       and exists (select from annotations.membership m where m.group_id = which and m.user_id = who)
       and exists (select from annotations.membership m where m.group_id = which and m.user_id <> who) then
        raise exception 'the owner must hand the group over first' using errcode = 'AN013';
    end if;
    delete from annotations.membership m where m.group_id = which and m.user_id = who;
    perform annotations.close_empty(array[which]);
end $$;

-- Removes a member, or withdraws an invitation; `who` owns the group, null: an operator. A declined
-- invitation stays, so that the group cannot invite again; the owner does not learn of it.
create or replace function annotations.remove_member(who bigint, which text, name text)
returns void
language plpgsql volatile set search_path = annotations, pg_temp as $$
#variable_conflict use_column
declare
    member bigint;
begin
    perform annotations.owned(who, which);
    select u.id into member from annotations.user_account u
     where u.name = remove_member.name and u.deleted_at is null
       and (exists (select from annotations.membership m
                     where m.group_id = which and m.user_id = u.id)
            or exists (select from annotations.invitation i
                        where i.group_id = which and i.user_id = u.id));
    if not found then
        raise exception 'there is no such user' using errcode = 'AN012';
    end if;
    delete from annotations.invitation i
     where i.group_id = which and i.user_id = member and i.declined_at is null;
    perform annotations.leave_group(member, which);
end $$;

-- Makes a member the owner of a group; `who` is the owner so far, null: an operator.
create or replace function annotations.hand_over(who bigint, which text, name text)
returns void
language plpgsql volatile set search_path = annotations, pg_temp as $$
#variable_conflict use_column
declare
    new_owner bigint;
begin
    -- Leaving takes the same lock: a member found here is still one when this commits.
    perform annotations.owned(who, which);
    select u.id into new_owner
      from annotations.user_account u
      join annotations.membership m on m.user_id = u.id and m.group_id = which
     where u.name = hand_over.name and u.deleted_at is null;
    if not found then
        raise exception 'there is no such user' using errcode = 'AN012';
    end if;
    update annotations.user_group g set owner_id = new_owner where g.id = which;
end $$;

-- Moves a group into another one. From this commit on only readers of the other group read its notes.
-- `who` must own both groups and be a member of both; otherwise an owner who left a group could read on
-- by moving its notes. Null: an operator.
create or replace function annotations.move_group(who bigint, which text, target text)
returns bigint
language plpgsql volatile set search_path = annotations, pg_temp as $$
begin
    -- Both rows, in one order: two concurrent moves cannot form a cycle.
    perform from annotations.user_group g where g.id in (which, target) order by g.id for update;
    if which = '__world__' or which = target
       or (select count(*) from annotations.user_group g
            where g.id in (which, target) and g.moved_to is null
              and (who is null or g.owner_id = who
                   and exists (select from annotations.membership m
                                where m.group_id = g.id and m.user_id = who))) <> 2
       -- Only an operator may make a group public: its members wrote for each other.
       or (target = '__world__' and who is not null) then
        raise exception 'there is no such group' using errcode = 'AN005';
    end if;
    update annotations.user_group set moved_to = target where id = which or moved_to = which;
    delete from annotations.membership where group_id = which;
    delete from annotations.invitation where group_id = which;
    return annotations.begin_bulk('move_group', jsonb_build_object('group_id', which));
end $$;
