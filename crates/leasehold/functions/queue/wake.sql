-- Wake-ups: NOTIFY makes an idle worker look for jobs at once. It is a hint: a worker that misses it
-- polls.
--
-- NOTIFY takes a server-wide lock at commit, so producers that send one in every transaction wait for
-- each other's disk writes. They send it only while a worker is idle. An idle worker holds a shared
-- advisory lock per queue, on the session that listens: that writes no row, a transaction with an old
-- snapshot sees it, and it ends with the worker.

-- Sends the wake-up. Not when half of the server's notification queue is full: some listener does not
-- read, and a commit with NOTIFY fails once the queue is full. Not in PREPARE TRANSACTION, which
-- refuses a transaction with a NOTIFY.
create or replace function leasehold.wake(queue text default 'default')
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select pg_notify('leasehold_wake', queue)
     where pg_notification_queue_usage() < 0.5
       -- Null at a commit that ends an extended query.
       and coalesce(current_query(), '') !~* 'prepare\s+transaction'
$$;

-- Runs at the commit of a transaction that stored jobs. Lock and unlock are one expression, because an
-- interrupt between two statements would leave the lock with the producer's session. Producers that run
-- this at the same moment mistake each other for an idle worker and send a needless wake-up. Runs as
-- owner: a producer needs no right on what it calls.
create or replace function leasehold_internal.wake_idle()
returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    key int := hashtext(new.queue collate "C");
begin
    if not (case when pg_try_advisory_lock(7306, key) then pg_advisory_unlock(7306, key)
                 else false end) then
        perform leasehold.wake(new.queue);
    end if;
    return null;
end $$;

-- A worker calls this on the session that listens, before its last look: jobs of the queue that are
-- stored from now on wake it. It holds until `end_idle` or the end of the session. Returns false if a
-- producer checked at the same moment (call again), null if the queue is paused (`resume` wakes every
-- listening worker).
create or replace function leasehold_internal.begin_idle(queue text)
returns boolean
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
    select pg_try_advisory_lock_shared(7306, hashtext(begin_idle.queue collate "C"))
     where not exists (select from leasehold_internal.queue q
                        where q.name = begin_idle.queue and q.paused_at is not null)
$$;

-- Ends the announcement of `begin_idle`: producers need not wake a busy worker.
create or replace function leasehold_internal.end_idle(queue text)
returns boolean
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
    select pg_advisory_unlock_shared(7306, hashtext(queue collate "C"))
$$;

-- Returns the seconds until the next job of these names is due, at most `within` from now; null: none.
-- Infinity: the queue is paused. Reads up to 100 rows per priority: the given ones, `(at_deferred,
-- at_priority)` in the order of claims, and those between them. Where 100 jobs of other names come first,
-- returns the time of the last of them: the caller asks again then.
create or replace function leasehold_internal.next_due(
    queue text, names text[], at_deferred boolean[], at_priority int[], within interval
)
returns float8
language plpgsql stable security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_nestloop = on
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    found_at timestamptz;
begin
    if exists (select from leasehold_internal.queue q
                where q.name = next_due.queue and q.paused_at is not null) then
        return 'Infinity';
    end if;
    -- As in `claim_next`.
    with recursive hop (deferred, priority, next) as (
        select false, null::bigint, 1
        union all
        select h.deferred or (gap.priority is null and not cursor.here),
               case when gap.priority is not null then gap.priority
                    when cursor.here then next_due.at_priority[h.next] end,
               case when gap.priority is null and cursor.here then h.next + 1 else h.next end
          from hop h
         cross join lateral (
            select coalesce(next_due.at_deferred[h.next] = h.deferred, false) as here) cursor
          left join lateral (
            select j.priority from leasehold.job j
             where j.queue = next_due.queue and j.limit_key is null and j.deferred = h.deferred
               and j.priority > coalesce(h.priority, -2147483649)
               and j.priority < case when cursor.here then next_due.at_priority[h.next]::bigint
                                     else 2147483648 end
             order by j.queue, j.deferred, j.priority, j.scheduled_at limit 1) gap on true
         where gap.priority is not null or cursor.here or not h.deferred
    )
    select min(due.scheduled_at) into found_at
      from hop h
     cross join lateral (
        select n.scheduled_at
          from (select j.scheduled_at, j.name, row_number() over () as position
                  from leasehold.job j
                 where j.queue = next_due.queue and j.limit_key is null
                   and j.deferred = h.deferred and j.priority = h.priority
                   and j.scheduled_at > statement_timestamp()
                   and j.scheduled_at <= statement_timestamp() + next_due.within
                   and not j.held
                 order by j.queue, j.deferred, j.priority, j.scheduled_at, +j.id limit 100) n
         where next_due.names is null or n.name = any (next_due.names) or n.position = 100
         limit 1) due;
    return extract(epoch from found_at - clock_timestamp());
end $$;
