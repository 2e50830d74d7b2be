-- Work on many annotations, a piece at a time: each call is one short transaction, so that whoever
-- saves in between waits for a piece at most.

-- The notes that a piece of work means, in the order of their ids.
create or replace function annotations.meant(of_tag text, filter jsonb, after text, most int)
returns text[]
language plpgsql stable
set search_path = annotations, pg_temp set plan_cache_mode = force_custom_plan set jit = off as $$
declare
    by_user bigint := (filter ->> 'user_id')::bigint;
    in_group text := filter ->> 'group_id';
    on_document bigint := (filter ->> 'document_id')::bigint;
    since timestamptz := (filter ->> 'since')::timestamptz;
    until timestamptz := (filter ->> 'until')::timestamptz;
    ids text[] := array(select jsonb_array_elements_text(filter -> 'ids'));
begin
    return array(
        select a.id from annotations.annotation a
         where a.id > after
           and (by_user is null or a.user_id = by_user)
           and (in_group is null or a.group_id = in_group)
           and (on_document is null or a.document_id = on_document)
           and (since is null or a.updated_at >= since)
           and (until is null or a.updated_at < until)
           and (filter -> 'ids' is null or a.id = any (ids))
         order by a.id
         limit most);
end $$;

-- Does a piece. Notes are looked up many at a time: the way to them may lead past all that the same
-- person ever wrote.
create or replace function annotations.bulk_step(which bigint, most int default 250)
returns table (rows_changed int, finished boolean)
language plpgsql volatile set search_path = annotations, leasehold, pg_temp as $$
#variable_conflict use_column
declare
    work annotations.bulk;
    ids text[];
begin
    -- Whoever runs it twice at once takes turns.
    select * into work from annotations.bulk b where b.id = which for update;
    if not found or work.finished_at is not null or work.cancelled_at is not null then
        return query select 0, true;
        return;
    end if;
    -- What a crash takes back here, it takes back as a whole, and the work goes on from there. People
    -- who save need not wait until the disk has it.
    perform set_config('synchronous_commit', 'off', true);
    if work.taken >= cardinality(work.ahead) then
        update annotations.bulk b
           set ahead = annotations.meant(work.tag, work.filter, work.after_id, 5000), taken = 0
         where b.id = which
        returning * into work;
    end if;
    ids := work.ahead[work.taken + 1 : work.taken + most];
    perform set_config('leasehold.tag', work.tag, true);
    perform set_config('leasehold.priority', work.priority::text, true);
    case work.tag
    when 'rename_user' then
        -- Nothing but the version, which the trigger raises: the index asks for the name anew.
        update annotations.annotation set version = version where id = any (ids);
    when 'delete_user' then
        delete from annotations.annotation where id = any (ids);
    when 'move_group' then
        update annotations.annotation a
           set group_id = (select g.moved_to from annotations.user_group g where g.id = a.group_id)
         where a.id = any (ids)
           and exists (select from annotations.user_group g
                        where g.id = a.group_id and g.moved_to is not null);
    else
        -- A re-index asks for a comparison, and changes no row.
        insert into leasehold.job (name, queue, kwargs, priority, tag)
        select 'index', 'annotations',
               jsonb_build_object('annotation_id', u.id, 'bulk', work.id)
                   || case when work.force then '{"force": true}'::jsonb else '{}'::jsonb end,
               work.priority, work.tag
          from unnest(ids) as u (id);
    end case;
    update annotations.bulk b
       set after_id = coalesce(ids[cardinality(ids)], b.after_id),
           taken = b.taken + cardinality(ids), rows_done = b.rows_done + cardinality(ids),
           finished_at = case when ids = '{}' then statement_timestamp() end
     where b.id = which;
    return query select cardinality(ids), ids = '{}';
end $$;

-- Stops a piece of work; jobs that it made and nobody runs are removed.
create or replace function annotations.cancel_bulk(which bigint)
returns bigint
language plpgsql volatile set search_path = annotations, leasehold, pg_temp as $$
declare
    work annotations.bulk;
    removed bigint;
begin
    update annotations.bulk set cancelled_at = coalesce(cancelled_at, statement_timestamp())
     where id = which returning * into work;
    if not found then
        return null;
    end if;
    with going as (
        select j.id from leasehold.job j
         where j.queue = 'annotations' and j.name = 'index' and j.priority >= work.priority
           and j.tag = work.tag and j.kwargs ->> 'bulk' = which::text and not j.held
           for update skip locked
    )
    delete from leasehold.job j using going g where j.id = g.id and not j.held;
    get diagnostics removed = row_count;
    return removed;
end $$;

-- How far a piece of work has come; `waiting`: jobs of it that nobody has completed.
create or replace function annotations.bulk_progress(which bigint)
returns table (tag text, rows_done bigint, waiting bigint, finished boolean, cancelled boolean)
language sql stable set search_path = annotations, leasehold, pg_temp as $$
    select b.tag, b.rows_done,
           (select count(*) from leasehold.job j
             where j.queue = 'annotations' and j.name = 'index' and j.priority >= b.priority
               and j.tag = b.tag and j.kwargs ->> 'bulk' = b.id::text),
           b.finished_at is not null, b.cancelled_at is not null
      from annotations.bulk b where b.id = which
$$;

-- Throws away what is over: up to `most` rows of each kind.
create or replace function annotations.purge(most int default 10000)
returns bigint
language plpgsql volatile set search_path = annotations, pg_temp as $$
declare
    gone bigint;
    more bigint;
begin
    delete from annotations.request r
     where r.key_hash in (select o.key_hash from annotations.request o
                           where o.created_at < statement_timestamp() - interval '24 hours'
                           order by o.created_at limit most);
    get diagnostics gone = row_count;
    delete from annotations.bulk b
     where coalesce(b.finished_at, b.cancelled_at) < statement_timestamp() - interval '7 days';
    get diagnostics more = row_count;
    return gone + more;
end $$;
