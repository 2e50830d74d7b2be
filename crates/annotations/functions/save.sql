-- Saving: a note and the job that brings it into the index commit together, or not at all. The mirror's
-- triggers on the table make the job; `leasehold.tag` names its origin.

create or replace function annotations.document_of(url text, title text)
returns bigint
language plpgsql volatile set search_path = annotations, pg_temp as $$
declare
    found_id bigint;
begin
    select d.id into found_id from annotations.document d where d.url = document_of.url;
    if found_id is not null then
        return found_id;
    end if;
    insert into annotations.document (url, title) values (document_of.url, document_of.title)
    on conflict on constraint document_url_is_known_once do nothing
    returning id into found_id;
    if found_id is null then
        -- A concurrent save inserted the document first, and has committed.
        select d.id into found_id from annotations.document d where d.url = document_of.url;
    end if;
    return found_id;
end $$;

create or replace function annotations.create_annotation(
    author bigint, new_id text, url text, title text, group_id text, kind text,
    reply_to text, quote text, selectors jsonb, text text, tags text[],
    request_key bytea, request_digest bytea
)
returns table (id text, replayed boolean)
language plpgsql volatile set search_path = annotations, leasehold, pg_temp as $$
#variable_conflict use_column
declare
    known annotations.request;
    parent annotations.annotation;
    root text;
    into_group text := create_annotation.group_id;
    on_document bigint;
begin
    -- The lock that the foreign key to the account takes anyway: saves of one author do not wait for
    -- each other, and delete_user() waits for all of them.
    perform from annotations.user_account u
      where u.id = author and u.deleted_at is null for key share;
    if not found then
        raise exception 'the account was deleted' using errcode = 'AN008';
    end if;
    if request_key is not null then
        insert into annotations.request (key_hash, request_hash, annotation_id)
        values (request_key, request_digest, new_id) on conflict (key_hash) do nothing;
        if not found then
            -- A request with this key came before. If that one was still in flight, the insert has
            -- waited for it.
            select * into known from annotations.request r where r.key_hash = request_key;
            if known.request_hash <> request_digest then
                raise exception 'this idempotency key was used for another request' using errcode = 'AN002';
            end if;
            return query select known.annotation_id, true;
            return;
        end if;
    end if;
    if reply_to is not null then
        -- A reply is in the group of its conversation. Lock the root, so that it cannot move to another
        -- group while this reply relies on the old one. Lock nothing but the root, because a move locks
        -- it first: a save that held another reply and waited here would deadlock with such a move.
        select coalesce(a.root_id, a.id) into root from annotations.annotation a where a.id = reply_to;
        perform from annotations.annotation a where a.id = root for share;
        select a.* into parent
          from annotations.annotation a join annotations.user_account u on u.id = a.user_id
         where a.id = reply_to and u.deleted_at is null
           and a.group_id = any (annotations.readable(author));
        if not found then
            raise exception 'there is no such note' using errcode = 'AN003';
        end if;
        -- A caller who names a group means its readers. Writing for other readers would be a leak.
        if create_annotation.group_id is not null and create_annotation.group_id <> parent.group_id
           and create_annotation.group_id is distinct from (
               select g.moved_to from annotations.user_group g where g.id = parent.group_id) then
            raise exception 'a reply is in the group of its conversation' using errcode = 'AN007';
        end if;
        into_group := parent.group_id;
        on_document := parent.document_id;
    else
        -- Only groups that the author may read and that were not moved take new notes.
        perform from annotations.user_group g
          where g.id = into_group and g.moved_to is null
            and g.id = any (annotations.readable(author)) for key share;
        if not found then
            raise exception 'there is no such group' using errcode = 'AN005';
        end if;
        on_document := annotations.document_of(create_annotation.url, create_annotation.title);
    end if;
    perform set_config('leasehold.tag', 'storage.create_annotation', true);
    insert into annotations.annotation
        (id, document_id, user_id, group_id, kind, parent_id, root_id, quote, selectors, text, tags)
    values (new_id, on_document, author, into_group, create_annotation.kind, reply_to, root,
            create_annotation.quote, create_annotation.selectors, create_annotation.text,
            create_annotation.tags);
    return query select new_id, false;
end $$;

-- Locks and returns a note that its author wants to change, or raises the reason why not. A note that
-- the author cannot see counts as missing. `expected`: the versions that the note may have; null: any.
create or replace function annotations.own(author bigint, which text, expected bigint[])
returns annotations.annotation
language plpgsql volatile set search_path = annotations, pg_temp as $$
declare
    found annotations.annotation;
begin
    select a.* into found
      from annotations.annotation a join annotations.user_account u on u.id = a.user_id
     where a.id = which and u.deleted_at is null
       and a.group_id = any (annotations.readable(author))
       for update of a;
    if found.id is null then
        raise exception 'there is no such note' using errcode = 'AN003';
    end if;
    if found.user_id <> author then
        raise exception 'another user wrote this note' using errcode = 'AN006';
    end if;
    if found.version <> all (expected) then
        raise exception 'the note was changed meanwhile' using errcode = 'AN009';
    end if;
    return found;
end $$;

-- Changes the arguments that are not null.
create or replace function annotations.update_annotation(
    author bigint, which text, new_text text, new_tags text[], new_group text, expected bigint[]
)
returns void
language plpgsql volatile set search_path = annotations, leasehold, pg_temp as $$
declare
    old annotations.annotation := annotations.own(author, which, expected);
begin
    perform set_config('leasehold.tag', 'storage.update_annotation', true);
    if new_text = '' and old.kind <> 'annotation' then
        raise exception 'a note without a passage must have a text' using errcode = 'AN010';
    end if;
    -- A moved group matches by the id that users see, and by the one that the row still has.
    if new_group = old.group_id
       or new_group = (select g.moved_to from annotations.user_group g where g.id = old.group_id) then
        new_group := null;
    end if;
    if new_group is not null then
        if old.kind = 'reply' then
            raise exception 'a reply is in the group of its conversation' using errcode = 'AN007';
        end if;
        perform from annotations.user_group g
          where g.id = new_group and g.moved_to is null
            and g.id = any (annotations.readable(author)) for key share;
        if not found then
            raise exception 'there is no such group' using errcode = 'AN005';
        end if;
        -- Other users replied for the readers of the old group. A reply that is being saved right now
        -- holds the lock that own() waited for, or finds the new group.
        if exists (select from annotations.annotation r
                    where r.root_id = which and r.user_id <> author) then
            raise exception 'other users have replied' using errcode = 'AN004';
        end if;
        update annotations.annotation set group_id = new_group where root_id = which;
    end if;
    update annotations.annotation a
       set text = coalesce(new_text, a.text), tags = coalesce(new_tags, a.tags),
           group_id = coalesce(new_group, a.group_id), updated_at = statement_timestamp()
     where a.id = which;
end $$;

-- Deletes a note of the author, also in a group that the author has left.
create or replace function annotations.delete_annotation(
    author bigint, which text, expected bigint[]
)
returns void
language plpgsql volatile set search_path = annotations, leasehold, pg_temp as $$
begin
    perform set_config('leasehold.tag', 'storage.delete_annotation', true);
    delete from annotations.annotation a
     where a.id = which and a.user_id = author
       and (expected is null or a.version = any (expected))
       and exists (select from annotations.user_account u
                    where u.id = author and u.deleted_at is null);
    if not found then
        -- Raises the reason.
        perform annotations.own(author, which, expected);
        raise exception 'there is no such note' using errcode = 'AN003';
    end if;
end $$;
