-- Bulk operations on annotations, in steps. Each call is one short transaction, so that a save waits for
-- one step at most.

-- Returns the notes that a bulk operation covers, the least recently changed first. Notes that were
-- written one after the other are adjacent on disk, so a step touches few pages. A note that changes
-- meanwhile moves to the end, where a later step meets it (again).
create or replace function annotations.covered_notes(
    filter jsonb, after_at timestamptz default '-infinity', after_id text default '',
    most int default null
)
returns table (id text, updated_at timestamptz)
language plpgsql stable
set search_path = annotations, pg_temp set plan_cache_mode = force_custom_plan set jit = off as $$
#variable_conflict use_column
declare
    by_user bigint := (filter ->> 'user_id')::bigint;
    in_group text := filter ->> 'group_id';
    on_document bigint := (filter ->> 'document_id')::bigint;
    since timestamptz := (filter ->> 'since')::timestamptz;
    until timestamptz := (filter ->> 'until')::timestamptz;
    ids text[] := array(select jsonb_array_elements_text(filter -> 'ids'));
begin
    return query
        select a.id, a.updated_at from annotations.annotation a
         where (a.updated_at, a.id) > (after_at, after_id)
           and (by_user is null or a.user_id = by_user)
           and (in_group is null or a.group_id = in_group)
           and (on_document is null or a.document_id = on_document)
           and (since is null or a.updated_at >= since)
           and (until is null or a.updated_at < until)
           and (filter -> 'ids' is null or a.id = any (ids))
         order by a.updated_at, a.id
         limit most;
end $$;

-- Does one step of a bulk operation.
create or replace function annotations.bulk_step(which bigint, most int default 250)
returns table (rows_changed int, finished boolean)
language plpgsql volatile set search_path = annotations, leasehold, pg_temp as $$
#variable_conflict use_column
declare
    work annotations.bulk;
    ids text[];
    times timestamptz[];
begin
    -- Two runs of the same operation take turns.
    select * into work from annotations.bulk b where b.id = which for update;
    if not found or work.finished_at is not null or work.cancelled_at is not null then
        return query select 0, true;
        return;
    end if;
    -- A crash can undo this step only as a whole, and the operation resumes from there. So saves that
    -- wait for this transaction need not wait for its flush to disk.
    perform set_config('synchronous_commit', 'off', true);
    if work.rows_total is null and work.rows_done = 0 then
        update annotations.bulk b
           set rows_total = (select nullif(count(*), 1000000)
                               from annotations.covered_notes(work.filter, most => 1000000))
         where b.id = which;
    end if;
    select array_agg(m.id order by m.updated_at, m.id), array_agg(m.updated_at order by m.updated_at, m.id)
      into ids, times
      from annotations.covered_notes(work.filter, work.after_at, work.after_id, most) m;
    if ids is null then
        -- A transaction that was open when the cursor passed may have committed a note behind it. These
        -- operations leave no row that matches their filter, so a row that still matches was missed:
        -- start over.
        if work.tag in ('delete_user', 'move_group') and work.after_at > '-infinity'
           and exists (select from annotations.covered_notes(work.filter, most => 1)) then
            update annotations.bulk b set after_at = '-infinity', after_id = '' where b.id = which;
            return query select 0, false;
            return;
        end if;
        update annotations.bulk b set finished_at = statement_timestamp() where b.id = which;
        return query select 0, true;
        return;
    end if;
    perform set_config('leasehold.tag', work.tag, true);
    perform set_config('leasehold.priority', work.priority::text, true);
    case work.tag
    when 'rename_user' then
        -- Changes nothing but the version, which the trigger raises: the mirror then reads the new name
        -- for the index.
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
       set after_at = times[cardinality(times)], after_id = ids[cardinality(ids)],
           rows_done = b.rows_done + cardinality(ids)
     where b.id = which;
    return query select cardinality(ids), false;
end $$;

-- Stops a re-index. Deletes its jobs that are not running, and returns their number; -1 if it is another
-- kind of operation, which cannot be stopped; null if there is none with this id.
create or replace function annotations.cancel_bulk(which bigint)
returns bigint
language plpgsql volatile set search_path = annotations, leasehold, pg_temp as $$
declare
    work annotations.bulk;
    removed bigint;
begin
    -- No step runs while this lock is held.
    select * into work from annotations.bulk b where b.id = which for update;
    if not found then
        return null;
    end if;
    if work.tag not like 'reindex\_%' then
        return -1;
    end if;
    select count(*) into removed from leasehold.delete_jobs(array(
        select j.id from leasehold.jobs j
         where j.stored_in = 'job' and j.queue = 'annotations' and j.name = 'index'
           and j.priority >= work.priority and j.tag = work.tag
           and j.kwargs ->> 'bulk' = which::text and j.state <> 'running'),
        actor => 'annotations', why => 'bulk operation ' || which || ' was cancelled');
    update annotations.bulk b set cancelled_at = statement_timestamp()
     where b.id = which and b.cancelled_at is null and (b.finished_at is null or removed > 0);
    return removed;
end $$;

-- Returns the progress of a bulk operation. `waiting`: its jobs that are not completed. Jobs of a
-- re-index name it. For other operations the triggers make the jobs, so jobs that other operations of
-- the same kind have made since count, too.
create or replace function annotations.bulk_progress(which bigint)
returns table (tag text, rows_total bigint, rows_done bigint, waiting bigint, finished boolean,
               cancelled boolean)
language sql stable set search_path = annotations, leasehold, pg_temp as $$
    select b.tag, b.rows_total, b.rows_done,
           (select count(*) from leasehold.jobs j
             where j.stored_in = 'job' and j.queue = 'annotations' and j.name = 'index'
               and j.priority >= b.priority and j.tag = b.tag
               and case when b.tag like 'reindex\_%' then j.kwargs ->> 'bulk' = b.id::text
                        else j.enqueued_at >= b.created_at end),
           b.finished_at is not null, b.cancelled_at is not null
      from annotations.bulk b where b.id = which
$$;

-- Deletes what is past its retention, up to `most` rows of a kind, and returns how many.
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
    gone := gone + more;
    -- An invitation ends after 90 days; the group may invite again then.
    delete from annotations.invitation i
     where (i.group_id, i.user_id) in (select o.group_id, o.user_id from annotations.invitation o
                                        where o.invited_at < statement_timestamp() - interval '90 days'
                                        order by o.invited_at limit most);
    get diagnostics more = row_count;
    gone := gone + more;
    delete from annotations.session s
     where s.hash in (select o.hash from annotations.session o
                       where o.expires_at < statement_timestamp() order by o.expires_at limit most);
    get diagnostics more = row_count;
    return gone + more;
end $$;
