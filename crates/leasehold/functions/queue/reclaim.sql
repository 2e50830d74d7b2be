-- Returns since when the server has been up without a break: since its start, or since it recovered
-- from a crash or was promoted. Those two empty `server_start`; the first call after either, or after a
-- start, records the time.
create or replace function leasehold_internal.server_up_since()
returns timestamptz
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    noted timestamptz;
begin
    select s.since into noted from leasehold_internal.server_start s where s.started = pg_postmaster_start_time();
    if noted > statement_timestamp() + interval '1 minute' then
        -- The clock was set back. Without this no loss would count until it catches up.
        update leasehold_internal.server_start s set since = statement_timestamp()
         where s.since > statement_timestamp();
        noted := statement_timestamp();
    elsif noted is null then
        insert into leasehold_internal.server_start as s default values
        on conflict (only_row) do update set since = excluded.since, started = excluded.started
         where s.started <> excluded.started;
        noted := statement_timestamp();
    end if;
    return noted;
end $$;

-- Reclaims the jobs of one expired lease, or of them only `only_jobs`. `burying`: jobs that have no
-- attempt left, or under which too many workers died, are buried; those with a cancel request are
-- cancelled. `returning_jobs`: the others go back to the queue at once, with their loss counted. A job
-- that was lost before waits longer each time. Returns one row if any job could be taken or none is
-- left. Internal.
create or replace function leasehold_internal.reclaim_lease(
    overdue bigint, answering timestamptz, only_jobs bigint[], burying boolean, returning_jobs boolean
)
returns table (queue text, returned int, buried int)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    gone record;
    cancelling bigint[];
    losing bigint[];
    failing bigint[];
    going_back bigint[];
begin
    -- A lease that another transaction renews, settles or expires is skipped.
    select l.lease_generation, l.job_ids, l.claimed_by, l.claimed_at, l.queue,
           -- A queue without a row has the defaults.
           coalesce(q.max_attempts, 25) as max_attempts, coalesce(q.max_lost, 3) as max_lost,
           -- A lease that was last renewed before the server came back proves nothing about its
           -- worker.
           lost.n as loss,
           case when lost.n = 0 then 'the server was away: its lease could not be renewed'
                else 'the worker was lost: its lease ran out' end as why
      into gone
      from leasehold_internal.lease l left join leasehold_internal.queue q on q.name = l.queue
     cross join lateral (select case when answering > greatest(l.claimed_at, l.lease_expires_at - l.lease)
                                     then 0 else 1 end as n) lost
     where l.lease_generation = overdue
       and l.ended_at is null and l.lease_expires_at < statement_timestamp()
       for update of l skip locked;
    if not found then
        return;
    end if;
    -- A row that another transaction has locked is left for the next round: never wait here.
    select coalesce(array_agg(f.id) filter (where f.cancel_requested), '{}'),
           coalesce(array_agg(f.id) filter (where not f.cancel_requested and f.worn), '{}'),
           coalesce(array_agg(f.id) filter (where not f.cancel_requested and not f.worn
                                              and f.spent), '{}'),
           coalesce(array_agg(f.id) filter (where not f.cancel_requested and not f.worn
                                              and not f.spent), '{}')
      into cancelling, losing, failing, going_back
      from (
        select j.id, j.cancel_requested,
               gone.loss > 0 and j.lost_count + gone.loss >= gone.max_lost as worn,
               j.attempts >= coalesce(j.max_attempts, gone.max_attempts) as spent
          from leasehold.job j
         where j.id = any (coalesce(only_jobs, gone.job_ids)) and j.id = any (gone.job_ids)
           and j.lease_generation = gone.lease_generation and j.held
         order by j.id for update skip locked) f;
    if not burying then
        cancelling := '{}';
        losing := '{}';
        failing := '{}';
    end if;
    if not returning_jobs then
        going_back := '{}';
    end if;
    if cardinality(cancelling || losing || failing || going_back) = 0
       and exists (select from leasehold.job j
                    where j.id = any (gone.job_ids) and j.lease_generation = gone.lease_generation
                      and j.held) then
        return;
    end if;
    queue := gone.queue;
    if cancelling <> '{}' then
        perform leasehold_internal.cancel_rows(cancelling, true, gone.lease_generation,
                                      'cancelled; ' || gone.why);
    end if;
    buried := 0;
    if losing <> '{}' then
        buried := leasehold_internal.bury_rows(losing, gone.lease_generation, 'lost',
                                      'workers kept dying under this job', gone.claimed_by);
    end if;
    if failing <> '{}' then
        buried := buried + leasehold_internal.bury_rows(failing, gone.lease_generation, 'exhausted',
                                               'at the last attempt ' || gone.why, gone.claimed_by);
    end if;
    with back as (
        update leasehold.job j
           set held = false, deferred = false, lost_count = j.lost_count + gone.loss,
               permit = case when j.permit then leasehold_internal.keeps_permit(j.queue, j.limit_key) else false end,
               scheduled_at = statement_timestamp()
                   + case when gone.loss = 0 or j.lost_count = 0 then interval '0'
                          else leasehold_internal.doubled(j.lost_count, '10 seconds', '90 minutes') end,
               last_error = gone.why,
               errors = leasehold_internal.add_error(j.errors, j.attempts, gone.claimed_by, gone.claimed_at, gone.why)
         where j.id = any (going_back)
           and j.lease_generation = gone.lease_generation and j.held
        returning j.queue, j.tag, j.limit_key, j.scheduled_at
    ), signalled as materialized (
        select leasehold_internal.job_returned(b.queue, b.limit_key, b.scheduled_at)
          from back b where b.limit_key is not null
    ), counted as (
        -- An outage of the server is not a loss of the worker, here and for the alarm about losses.
        insert into leasehold_internal.tally (queue, tag, what, n)
        select b.queue, b.tag, 'lost', count(*) from back b where gone.loss > 0 group by b.queue, b.tag
    )
    -- The condition makes the calls of `signalled` happen.
    select count(*) into returned from back where (select count(*) from signalled) >= 0;
    if returned > 0 then
        perform leasehold.wake(gone.queue);
    end if;
    perform leasehold_internal.end_lease(gone.lease_generation, cancelling || losing || failing || going_back);
    return next;
end $$;

-- Lease cleanup: reclaims the jobs of expired leases, the oldest lease first. `one_lease`: that one;
-- null: up to `up_to` leases of which some job could be taken, among the first 20 times as many. Leases whose
-- jobs are all locked, or have all ended, do not count, or a few hundred of them would block all others. Returns one row per lease, or per job of a
-- lease with a job that a trigger or a constraint refuses. Internal.
create or replace function leasehold_internal.reclaim_jobs(
    one_lease bigint, up_to int, burying boolean, returning_jobs boolean
)
returns table (queue text, returned int, buried int)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    answering timestamptz := leasehold_internal.server_up_since();
    latest timestamptz := statement_timestamp() + interval '10 seconds';
    overdue bigint;
    each bigint;
    reclaimed record;
    leases int := 0;
    seen int := 0;
begin
    for overdue in
        select l.lease_generation from leasehold_internal.lease l
         where l.ended_at is null and l.lease_expires_at < statement_timestamp()
           and (one_lease is null or l.lease_generation = one_lease)
         order by l.lease_expires_at
    loop
        -- The time limit bounds the scan when very many leases are locked.
        exit when leases >= up_to or seen >= 20 * up_to or clock_timestamp() > latest;
        seen := seen + 1;
        -- One block per lease: a job that is refused must not block other leases.
        begin
            select * into reclaimed from leasehold_internal.reclaim_lease(overdue, answering, null, burying, returning_jobs);
            if found then
                -- A lease that held no job any more is only ended. Thousands of those must not keep the
                -- jobs of a dead worker waiting behind them.
                leases := leases + case when reclaimed.returned + reclaimed.buried > 0 then 1 else 0 end;
                queue := reclaimed.queue;
                returned := reclaimed.returned;
                buried := reclaimed.buried;
                return next;
            end if;
        exception when others then
            -- One block per job: it must not block the other jobs of its lease either.
            leases := leases + 1;
            for each in
                select j.id from leasehold_internal.lease l
                  join leasehold.job j on j.id = any (l.job_ids)
                   and j.lease_generation = l.lease_generation and j.held
                 where l.lease_generation = overdue
            loop
                exit when clock_timestamp() > latest;
                begin
                    return query
                    select * from leasehold_internal.reclaim_lease(overdue, answering, array[each], burying,
                                                               returning_jobs);
                exception when others then
                    raise warning 'job % of lease % could not be reclaimed: %', each, overdue, sqlerrm;
                end;
            end loop;
        end;
    end loop;
end $$;

-- Lease cleanup, first step: returns jobs of leases that ran out to the queue, if an attempt is left.
-- Returns the number of jobs.
create or replace function leasehold_internal.reclaim_waiting(one_lease bigint default null, up_to int default 100)
returns int
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select coalesce(sum(t.returned), 0)::int from leasehold_internal.reclaim_jobs(one_lease, up_to, false, true) t
$$;

-- Lease cleanup, second step: buries the others, or cancels those with a cancel request. Returns the
-- number of jobs that it buried.
create or replace function leasehold_internal.reclaim_dead(one_lease bigint default null, up_to int default 100)
returns int
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select coalesce(sum(t.buried), 0)::int from leasehold_internal.reclaim_jobs(one_lease, up_to, true, false) t
$$;

-- Records which jobs a reclaim took, and ends the lease when none is left. Internal: the caller holds
-- the lock on the lease.
create or replace function leasehold_internal.end_lease(generation bigint, taken bigint[])
returns void
language sql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
    update leasehold_internal.lease l
       set lost_ids = l.lost_ids || taken,
           ended_at = case when not exists (
               select from leasehold.job j
                where j.id = any (l.job_ids) and j.lease_generation = l.lease_generation and j.held)
               then statement_timestamp() end
     where l.lease_generation = generation and l.ended_at is null
$$;

-- Runs both steps of lease cleanup.
create or replace function leasehold_internal.reclaim_leases(up_to int default 100)
returns table (returned int, buried int)
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select coalesce(sum(t.returned), 0)::int, coalesce(sum(t.buried), 0)::int
      from leasehold_internal.reclaim_jobs(null, up_to, true, true) t
$$;

-- Runs lease cleanup unless another housekeeper does. The lock ends with the statement, so it cannot be
-- left in a pooled session; it saves work, and correctness does not depend on it. `anyway`: without the
-- election, in case the elected session hangs. Returns one row per queue whose jobs were returned or
-- buried, or a single row without a queue.
create or replace function leasehold_internal.reclaim(up_to int default 100, anyway boolean default false)
returns table (elected boolean, queue text, returned int, buried int)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
begin
    elected := anyway or pg_try_advisory_xact_lock(7305, 2);
    if elected then
        return query
        select true, t.queue, sum(t.returned)::int, sum(t.buried)::int
          from leasehold_internal.reclaim_jobs(null, up_to, true, true) t
         group by t.queue having sum(t.returned) + sum(t.buried) > 0;
        if found then
            return;
        end if;
    end if;
    returned := 0;
    buried := 0;
    return next;
end $$;

-- Shortens leases that end later than their length allows: a clock that has been set back since wrote
-- them. Otherwise a dead worker's jobs would wait for the clock to catch up.
create or replace function leasehold_internal.clamp_leases()
returns int
language sql volatile security definer set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    with shortened as (
        update leasehold_internal.lease l set lease_expires_at = statement_timestamp() + l.lease
         where l.ended_at is null
           and l.lease_expires_at > statement_timestamp() + l.lease + interval '60 seconds'
        returning 1)
    select count(*)::int from shortened
$$;
