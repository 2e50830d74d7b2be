-- Prunes what is past its retention, a bounded number of rows per call and one kind per call: a kind
-- that fails, or that has millions of rows to remove, does not delay the other kinds.
--
-- Each kind has a function that returns how many rows it removed, whether it may have left some
-- (`more`), and where to read on (`reached`): while an old snapshot is open, the index entries of
-- removed rows stay, and a read from the start would pass all of them with every call.

-- Prunes ended leases. Only for `prune_kind`.
create or replace function leasehold_internal.prune_leases(
    up_to int, keep interval, after text, out removed int, out more boolean, out reached text
)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    -- In the order of their generations, which is roughly the order of their ends.
    with old as materialized (
        select l.lease_generation from leasehold_internal.lease l
         where l.lease_generation > coalesce(after::bigint, 0)
           and l.ended_at < statement_timestamp() - coalesce(keep, interval '2 minutes')
         order by l.lease_generation limit up_to for update skip locked
    ), gone as (
        delete from leasehold_internal.lease l
         where l.lease_generation = any (array(select o.lease_generation from old o))
        returning l.lease_generation
    )
    select count(*), max(g.lease_generation)::text into removed, reached from gone g;
    more := removed = up_to;
end $$;

-- Prunes expired keys whose job has finished. Only for `prune_kind`.
create or replace function leasehold_internal.prune_keys(
    up_to int, keep interval, after text, out removed int, out more boolean, out reached text
)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
declare
    queues text[];
    keys text[];
begin
    -- A key stays while its job waits or runs. Look for its job after the key is locked, in another
    -- statement: one that looked before would miss a job that was created meanwhile.
    select array_agg(e.queue), array_agg(e.key), to_json(max(e.due)) #>> '{}' into queues, keys, reached
      from (select k.queue, k.key, greatest(k.holds_until, k.recheck_at) as due
              from leasehold_internal.idempotency_key k
             where greatest(k.holds_until, k.recheck_at) < statement_timestamp()
               and greatest(k.holds_until, k.recheck_at)
                   >= coalesce(after::timestamptz, timestamptz '-infinity')
             order by greatest(k.holds_until, k.recheck_at)
             limit up_to for update skip locked) e;
    delete from leasehold_internal.idempotency_key k
     using unnest(queues, keys) as old (queue, key)
     where k.queue = old.queue and k.key = old.key
       and not exists (select from leasehold.job j where j.id = k.job_id);
    get diagnostics removed = row_count;
    more := coalesce(cardinality(keys), 0) = up_to;
    -- Look at the others again when their job may have finished, later each time. Otherwise every call
    -- would read a million keyed jobs that wait for next week.
    if removed < coalesce(cardinality(keys), 0) then
        update leasehold_internal.idempotency_key k
           set recheck_at = least(
                greatest(j.scheduled_at, statement_timestamp() + least(greatest(
                    (statement_timestamp() - k.created_at) / 2, interval '1 minute'), interval '6 hours')),
                statement_timestamp() + interval '1 day')
          from unnest(queues, keys) as old (queue, key), leasehold.job j
         where k.queue = old.queue and k.key = old.key and j.id = k.job_id;
    end if;
end $$;

-- Prunes expired once-markers whose job cannot run again. Only for `prune_kind`.
create or replace function leasehold_internal.prune_marks(
    up_to int, keep interval, after text, out removed int, out more boolean, out reached text
)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
declare
    scopes text[];
    steps text[];
begin
    -- As for keys: lock, then look.
    select array_agg(e.scope), array_agg(e.step), to_json(max(e.keep_until)) #>> '{}' into scopes, steps, reached
      from (select m.scope, m.step, m.keep_until from leasehold_internal.once_marker m
             where m.keep_until < statement_timestamp()
               and m.keep_until >= coalesce(after::timestamptz, timestamptz '-infinity')
             order by m.keep_until limit up_to for update skip locked) e;
    delete from leasehold_internal.once_marker m
     using unnest(scopes, steps) as old (scope, step)
     where m.scope = old.scope and m.step = old.step
       and not exists (select from leasehold.job j where j.id = m.job_id)
       and not exists (select from leasehold_internal.dead_job d where d.id = m.job_id);
    get diagnostics removed = row_count;
    more := coalesce(cardinality(steps), 0) = up_to;
    -- The job of the others waits, runs or may be redriven. They are kept, longer each time.
    if removed < coalesce(cardinality(steps), 0) then
        update leasehold_internal.once_marker m
           set keep_until = statement_timestamp() + least(greatest(
                (statement_timestamp() - m.started_at) / 2, interval '1 minute'), interval '1 day')
          from unnest(scopes, steps) as old (scope, step)
         where m.scope = old.scope and m.step = old.step;
    end if;
end $$;

-- Prunes workers that were last seen a day ago. Only for `prune_kind`.
create or replace function leasehold_internal.prune_workers(
    up_to int, keep interval, after text, out removed int, out more boolean, out reached text
)
language plpgsql volatile security definer set search_path = leasehold, pg_temp set jit = off as $$
begin
    delete from leasehold_internal.worker w where w.id = any (array(
        select e.id from leasehold_internal.worker e
         where e.last_seen_at < statement_timestamp() - coalesce(keep, interval '1 day')
         limit up_to for update skip locked));
    get diagnostics removed = row_count;
    more := removed = up_to;
end $$;

-- Prunes dead jobs, where a retention was set. By queue, because the index begins with it: otherwise
-- every call would read all of them. Only for `prune_kind`.
create or replace function leasehold_internal.prune_dead(
    up_to int, keep interval, after text, out removed int, out more boolean, out reached text
)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    one_queue text := (select d.queue from leasehold_internal.dead_job d order by d.queue limit 1);
    gone int;
begin
    removed := 0;
    while keep is not null and one_queue is not null and removed < up_to loop
        delete from leasehold_internal.dead_job d where d.id = any (array(
            select e.id from leasehold_internal.dead_job e
             where e.queue = one_queue and e.died_at < statement_timestamp() - keep
             order by e.died_at limit up_to - removed for update skip locked));
        get diagnostics gone = row_count;
        removed := removed + gone;
        one_queue := (select d.queue from leasehold_internal.dead_job d where d.queue > one_queue
                       order by d.queue limit 1);
    end loop;
    more := removed >= up_to;
end $$;

-- Prunes default settings: rows that a claim created, of queues without jobs, schedules, a watch or a
-- living worker. The next claim creates the row again. Only for `prune_kind`.
create or replace function leasehold_internal.prune_queues(
    up_to int, keep interval, after text, out removed int, out more boolean, out reached text
)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    -- Every column but these two has its default, whatever columns there are.
    untouched text := (
        select string_agg(format('q.%I is not distinct from %s', a.attname,
                                 coalesce(pg_get_expr(d.adbin, d.adrelid), 'null')), ' and ')
          from pg_attribute a
          left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
         where a.attrelid = 'leasehold_internal.queue'::regclass and a.attnum > 0 and not a.attisdropped
           and a.attgenerated = '' and a.attname not in ('name', 'created_at'));
begin
    execute 'delete from leasehold_internal.queue g where g.name = any (array('
        'select q.name from leasehold_internal.queue q'
        ' where q.created_at < statement_timestamp() - $1 and ' || untouched ||
        ' and not exists (select from leasehold.job j where j.queue = q.name and j.limit_key is null)'
        ' and not exists (select from leasehold.job j where j.queue = q.name and j.limit_key is not null)'
        ' and not exists (select from leasehold_internal.limit_rule r where r.queue = q.name)'
        ' and not exists (select from leasehold_internal.dead_job d where d.queue = q.name)'
        ' and not exists (select from leasehold_internal.watch w where w.queue = q.name)'
        ' and not exists (select from leasehold_internal.schedule s where s.queue = q.name)'
        ' and not exists (select from leasehold.workers w'
        '                  where w.state in (''alive'', ''draining'') and q.name = any (w.queues))'
        -- Expiry reads the settings of the queues of open leases.
        ' and q.name <> all (array(select l.queue from leasehold_internal.lease l where l.ended_at is null))'
        ' order by q.name limit $2 for update of q skip locked))'
      using coalesce(keep, interval '1 day'), up_to;
    get diagnostics removed = row_count;
    more := removed = up_to;
end $$;

-- Prunes the rows of limit keys without jobs. A claimer creates the row again. A row that a claimer has
-- locked stays, and a job that arrives meanwhile has its signal. Only for `prune_kind`.
create or replace function leasehold_internal.prune_limits(
    up_to int, keep interval, after text, out removed int, out more boolean, out reached text
)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    seen int;
begin
    -- A queue and a key, with a line feed between them.
    with page as materialized (
        select k.queue, k.key, k.look_at is null and k.paused_at is null and k.key <> ''
               and coalesce(k.full_at <= statement_timestamp(), true) as is_idle
          from leasehold_internal.limit_key k
         where (k.queue, k.key) > (split_part(coalesce(after, ''), E'\n', 1), split_part(coalesce(after, ''), E'\n', 2))
         order by k.queue, k.key limit up_to
    ), gone as (
        delete from leasehold_internal.limit_key g
         where g.ctid = any (array(
                select k.ctid from page p
                  join leasehold_internal.limit_key k on k.queue = p.queue and k.key = p.key
                 where p.is_idle and k.look_at is null and k.paused_at is null
                   and coalesce(k.full_at <= statement_timestamp(), true)
                   and not exists (select from leasehold.job j
                                    where j.queue = k.queue and j.limit_key = k.key)
                   for update of k skip locked))
        returning 1
    )
    select (select count(*) from page), (select count(*) from gone),
           (select p.queue || E'\n' || p.key from page p order by p.queue desc, p.key desc limit 1)
      into seen, removed, reached;
    more := seen = up_to;
    delete from leasehold_internal.limit_throttle t
     where t.ctid = any (array(
            select e.ctid from leasehold_internal.limit_throttle e
             where e.ends_at < statement_timestamp() limit up_to for update skip locked));
end $$;

-- Prunes closed batches whose follow-up has ended, with the results of their jobs, and open batches without a
-- job after 30 days. Only for `prune_kind`.
create or replace function leasehold_internal.prune_batches(
    up_to int, keep interval, after text, out removed int, out more boolean, out reached text
)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
declare
    old bigint[];
    found_open int;
begin
    select array_agg(e.id), to_json(max(e.closed_at)) #>> '{}' into old, reached
      from (select b.id, b.closed_at from leasehold_internal.batch b
             where b.closed_at < statement_timestamp() - coalesce(keep, interval '7 days')
               and b.closed_at >= coalesce(after::timestamptz, timestamptz '-infinity')
             order by b.closed_at limit up_to for update skip locked) e;
    more := coalesce(cardinality(old), 0) = up_to;
    -- Its follow-up may still read the results.
    old := array(select o.id from unnest(old) as o (id)
                   join leasehold_internal.batch b on b.id = o.id
                  where not exists (select from leasehold.job j where j.id = b.follow_up_job_id));
    delete from leasehold_internal.job_result r where r.job_id = any (array(
        select w.job_id from leasehold_internal.job_result w where w.batch_id = any (old) limit up_to));
    get diagnostics removed = row_count;
    if removed = up_to then
        more := true;
        reached := after;
        return;
    end if;
    delete from leasehold_internal.batch b where b.id = any (old);
    get diagnostics found_open = row_count;
    removed := removed + found_open;
    -- No lock on members: an add holds a lock on its batch.
    delete from leasehold_internal.batch b where b.id = any (array(
        select o.id from leasehold_internal.batch o
         where o.sealed_at is null and o.created_at < statement_timestamp() - interval '30 days'
           and not leasehold_internal.has_members(o.id)
         order by o.id limit 100 for update skip locked))
       and not leasehold_internal.has_members(b.id)
       and b.completed + b.cancelled + b.dead + b.deleted = 0
       and not exists (select from leasehold_internal.batch_end e where e.batch_id = b.id);
    get diagnostics found_open = row_count;
    removed := removed + found_open;
end $$;

-- Prunes results of jobs without a batch. Only for `prune_kind`.
create or replace function leasehold_internal.prune_results(
    up_to int, keep interval, after text, out removed int, out more boolean, out reached text
)
language plpgsql volatile security definer set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
begin
    with old as materialized (
        select r.job_id, r.kept_at from leasehold_internal.job_result r
         where r.batch_id is null and r.kept_at < statement_timestamp() - coalesce(keep, interval '7 days')
           and r.kept_at >= coalesce(after::timestamptz, timestamptz '-infinity')
         order by r.kept_at limit up_to for update skip locked
    ), gone as (
        delete from leasehold_internal.job_result r where r.job_id = any (array(select o.job_id from old o))
        returning r.kept_at
    )
    select count(*), to_json(max(g.kept_at)) #>> '{}' into removed, reached from gone g;
    more := removed = up_to;
end $$;

-- Prunes one kind: leases, keys, marks, workers, dead, queues, limits, batches or results. `keep` null: the default retention;
-- dead jobs then stay. One housekeeper is elected per kind, for the statement; `anyway`: without the
-- election, in case the elected one hangs. `after`: what the last call reached.
create or replace function leasehold_internal.prune_kind(
    kind text, up_to int default 5000, keep interval default null, anyway boolean default false,
    after text default null
)
returns table (elected boolean, removed int, more boolean, reached text)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
declare
    kinds text[] := array['leases', 'keys', 'marks', 'workers', 'dead', 'queues', 'limits', 'batches', 'results'];
begin
    if coalesce(kind <> all (kinds), true) then
        raise exception 'there is no kind % to prune', coalesce(quote_literal(kind), 'null')
            using errcode = 'LH002', constraint = 'LH002', hint = 'Use one of ' || array_to_string(kinds, ', ') || '.';
    end if;
    perform leasehold_internal.check_time('keep', keep);
    elected := anyway or pg_try_advisory_xact_lock(7305, 10 + array_position(kinds, kind));
    removed := 0;
    more := false;
    if elected then
        case kind
            when 'leases' then select p.* into removed, more, reached from leasehold_internal.prune_leases(up_to, keep, after) p;
            when 'keys' then select p.* into removed, more, reached from leasehold_internal.prune_keys(up_to, keep, after) p;
            when 'marks' then select p.* into removed, more, reached from leasehold_internal.prune_marks(up_to, keep, after) p;
            when 'workers' then select p.* into removed, more, reached from leasehold_internal.prune_workers(up_to, keep, after) p;
            when 'dead' then select p.* into removed, more, reached from leasehold_internal.prune_dead(up_to, keep, after) p;
            when 'queues' then select p.* into removed, more, reached from leasehold_internal.prune_queues(up_to, keep, after) p;
            when 'limits' then select p.* into removed, more, reached from leasehold_internal.prune_limits(up_to, keep, after) p;
            when 'batches' then select p.* into removed, more, reached from leasehold_internal.prune_batches(up_to, keep, after) p;
            when 'results' then select p.* into removed, more, reached from leasehold_internal.prune_results(up_to, keep, after) p;
        end case;
    end if;
    return next;
end $$;

-- Prunes every kind but queues, once each and in one transaction. `prune_kind` keeps them apart.
-- Finished jobs are removed by dropping partitions: see `drop_history`.
create or replace function leasehold_internal.prune(
    up_to int default 5000,
    dead_for interval default null,
    ended_leases_for interval default interval '2 minutes'
)
returns table (leases int, keys int, markers int, workers int, dead int)
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    leases := (select p.removed from leasehold_internal.prune_kind('leases', up_to, ended_leases_for, true) p);
    keys := (select p.removed from leasehold_internal.prune_kind('keys', up_to, null, true) p);
    markers := (select p.removed from leasehold_internal.prune_kind('marks', up_to, null, true) p);
    workers := (select p.removed from leasehold_internal.prune_kind('workers', up_to, null, true) p);
    dead := (select p.removed from leasehold_internal.prune_kind('dead', up_to, dead_for, true) p);
    return next;
end $$;
