-- Drops one reference for each content named (a content may be named many times), in the statement that
-- makes its pastes DELETED. Dooms contents without a reference and enqueues the deletion of their objects.
--
-- Contents are locked in the order of their hashes: sweepers and creators that share contents wait for
-- each other instead of deadlocking.
create or replace function pastes.drop_references(ids bigint[])
returns int
language plpgsql volatile
set search_path = pastes, leasehold, pg_temp
set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
    doomed bigint[];
begin
    if ids is null then
        return 0;
    end if;
    with counted as materialized (
        select u.id, count(*)::int as times from unnest(ids) as u (id) group by u.id
    ), locked as materialized (
        select c.content_id, c.ref_count from pastes.contents c
         where c.content_id = any (array(select k.id from counted k order by k.id))
         order by c.content_hash for update
    ), dropped as (
        update pastes.contents c
           set ref_count = c.ref_count - k.times,
               state = case when c.ref_count = k.times then 'DOOMED' else c.state end,
               changed_at = statement_timestamp()
          from locked l join counted k on k.id = l.content_id
         where c.content_id = l.content_id
        returning c.content_id, c.state
    )
    select array_agg(d.content_id) into doomed from dropped d where d.state = 'DOOMED';
    perform pastes.enqueue_deletions(doomed);
    return coalesce(cardinality(doomed), 0);
end $$;

-- Enqueues the deletion of objects, 1,000 per job: the most that the store accepts in one call.
create or replace function pastes.enqueue_deletions(ids bigint[])
returns void
language sql volatile set search_path = pastes, leasehold, pg_temp as $$
    insert into leasehold.job (name, queue, kwargs, max_attempts, tag)
    select k.name, k.queue, jsonb_build_object('contents', jsonb_agg(u.id)), k.max_attempts,
           'pastes.expiry'
      from pastes.jobs() k, unnest(ids) with ordinality as u (id, position)
     where k.job = 'delete_objects'
     group by k.name, k.queue, k.max_attempts, (u.position - 1) / 1000
$$;

-- Marks these contents GONE: their objects were deleted. Returns how many changed.
--
-- `case` hides the state from the planner: it must find the rows by their ids, not scan the index of
-- everything that was ever doomed.
create or replace function pastes.objects_gone(ids bigint[])
returns int
language plpgsql volatile
set search_path = pastes, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    gone int;
begin
    update pastes.contents c set state = 'GONE', changed_at = statement_timestamp()
     where c.content_id = any (ids) and case when c.state = 'DOOMED' then true else false end;
    get diagnostics gone = row_count;
    return gone;
end $$;

-- Deletes what is past its retention: tombstones, dead intents, staged bytes of pastes that have ended
-- or were uploaded, old request keys. Deletes at most `most` of each, oldest first, and returns the
-- number of rows deleted.
create or replace function pastes.purge(most int, keep_tombstones interval, keep_intents interval)
returns bigint
language plpgsql volatile
set search_path = pastes, pg_temp set enable_seqscan = off set jit = off as $$
declare
    gone bigint := 0;
    n bigint;
begin
    delete from pastes.pastes p where p.ctid = any (array(
        select q.ctid from pastes.pastes q
         where q.deletion_status = 'DELETED'
           and q.deletion_initiated_at < statement_timestamp() - keep_tombstones
         order by q.deletion_initiated_at limit most for update skip locked))
       and p.deletion_status = 'DELETED';
    get diagnostics n = row_count;
    gone := gone + n;
    -- Both conditions on the state: the first one is that of the index.
    delete from pastes.contents c where c.ctid = any (array(
        select d.ctid from pastes.contents d
         where d.state in ('DOOMED', 'GONE') and d.state = 'GONE'
           and d.changed_at < statement_timestamp() - keep_intents
         order by d.changed_at limit most for update skip locked))
       and c.state = 'GONE';
    get diagnostics n = row_count;
    gone := gone + n;
    -- Staged bytes stay while their paste may still need them.
    delete from pastes.staged s where s.short_code = any (array(
        select t.short_code from pastes.staged t
         where not exists (
            select from pastes.pastes p
             where p.short_code = t.short_code and p.status <> 'PROCESSED'
               and p.deletion_status <> 'DELETED')
         order by t.short_code limit most for update skip locked));
    get diagnostics n = row_count;
    gone := gone + n;
    delete from pastes.requests r where r.key_hash = any (array(
        select o.key_hash from pastes.requests o
         where o.created_at < statement_timestamp() - interval '24 hours'
         order by o.created_at limit most for update skip locked));
    get diagnostics n = row_count;
    return gone + n;
end $$;

-- Enqueues a new deletion job for contents that have been DOOMED for longer than `older_than`: an
-- operator may have removed theirs.
create or replace function pastes.repeat_deletions(older_than interval, most int)
returns int
language plpgsql volatile set search_path = pastes, pg_temp set enable_seqscan = off as $$
declare
    late bigint[];
begin
    late := array(
        select c.content_id from pastes.contents c
         -- Both conditions on the state: the first one is that of the index.
         where c.state in ('DOOMED', 'GONE') and c.state = 'DOOMED'
           and c.changed_at < statement_timestamp() - older_than
         order by c.changed_at limit most);
    perform pastes.enqueue_deletions(late);
    return cardinality(late);
end $$;
