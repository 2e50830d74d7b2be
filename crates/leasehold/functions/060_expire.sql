-- Returns since when the server has been up without a break: since its start, or since it recovered
-- from a crash or was promoted. Those two empty `server_start`; the first call after either, or after a
-- start, records the time.
create or replace function leasehold.answers_since()
returns timestamptz
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    noted timestamptz;
begin
    select s.since into noted from leasehold.server_start s where s.started = pg_postmaster_start_time();
    if noted > statement_timestamp() + interval '1 minute' then
        -- The clock was set back. Without this no loss would count until it catches up.
        update leasehold.server_start s set since = statement_timestamp()
         where s.since > statement_timestamp();
        noted := statement_timestamp();
    elsif noted is null then
        insert into leasehold.server_start as s default values
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
create or replace function leasehold.take_expired_lease(
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
      from leasehold.lease l left join leasehold.queue q on q.name = l.queue
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
        perform leasehold.cancel_rows(cancelling, true, gone.lease_generation,
                                      'cancelled; ' || gone.why);
    end if;
    buried := 0;
    if losing <> '{}' then
        buried := leasehold.bury_rows(losing, gone.lease_generation, 'lost',
                                      'workers kept dying under this job', gone.claimed_by);
    end if;
    if failing <> '{}' then
        buried := buried + leasehold.bury_rows(failing, gone.lease_generation, 'exhausted',
                                               'at the last attempt ' || gone.why, gone.claimed_by);
    end if;
    with back as (
        update leasehold.job j
           set held = false, lost_count = j.lost_count + gone.loss,
               scheduled_at = statement_timestamp()
                   + case when gone.loss = 0 or j.lost_count = 0 then interval '0'
                          else interval '5 seconds' * power(2, least(j.lost_count, 10)) end,
               last_error = gone.why,
               errors = leasehold.add_error(j.errors, j.attempts, gone.claimed_by, gone.claimed_at, gone.why)
         where j.id = any (going_back)
           and j.lease_generation = gone.lease_generation and j.held
        returning j.queue, j.tag
    ), counted as (
        -- An outage of the server is not a loss of the worker, here and for the alarm about losses.
        insert into leasehold.tally (queue, tag, what, n)
        select b.queue, b.tag, 'lost', count(*) from back b where gone.loss > 0 group by b.queue, b.tag
    )
    select count(*) into returned from back;
    if returned > 0 then
        perform leasehold.wake(gone.queue);
    end if;
    perform leasehold.end_lease(gone.lease_generation, cancelling || losing || failing || going_back);
    return next;
end $$;

-- Lease cleanup: reclaims the jobs of expired leases, the oldest lease first. `one_lease`: that one;
-- null: up to `up_to` leases of which some job could be taken. Leases whose jobs are all locked do not
-- count, or a few hundred of them would block all others. Returns one row per lease, or per job of a
-- lease with a job that a trigger or a constraint refuses. Internal.
create or replace function leasehold.take_expired(
    one_lease bigint, up_to int, burying boolean, returning_jobs boolean
)
returns table (queue text, returned int, buried int)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    answering timestamptz := leasehold.answers_since();
    latest timestamptz := statement_timestamp() + interval '10 seconds';
    overdue bigint;
    each bigint;
    leases int := 0;
begin
    for overdue in
        select l.lease_generation from leasehold.lease l
         where l.ended_at is null and l.lease_expires_at < statement_timestamp()
           and (one_lease is null or l.lease_generation = one_lease)
         order by l.lease_expires_at
    loop
        -- The time limit bounds the scan when very many leases are locked.
        exit when leases >= up_to or clock_timestamp() > latest;
        -- One block per lease: a job that is refused must not block other leases.
        begin
            return query
            select * from leasehold.take_expired_lease(overdue, answering, null, burying, returning_jobs);
            if found then
                leases := leases + 1;
            end if;
        exception when others then
            -- One block per job: it must not block the other jobs of its lease either.
            leases := leases + 1;
            for each in
                select j.id from leasehold.lease l
                  join leasehold.job j on j.id = any (l.job_ids)
                   and j.lease_generation = l.lease_generation and j.held
                 where l.lease_generation = overdue
            loop
                exit when clock_timestamp() > latest;
                begin
                    return query
                    select * from leasehold.take_expired_lease(overdue, answering, array[each], burying,
                                                               returning_jobs);
                exception when others then
                    raise warning 'job % of lease % could not be reclaimed: %', each, overdue, sqlerrm;
                end;
            end loop;
        end;
    end loop;
end $$;

-- Lease cleanup, first step: jobs of expired leases that have an attempt left go back to the queue.
-- Returns the number of jobs.
create or replace function leasehold.return_expired(one_lease bigint default null, up_to int default 100)
returns int
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select coalesce(sum(t.returned), 0)::int from leasehold.take_expired(one_lease, up_to, false, true) t
$$;

-- Lease cleanup, second step: buries the others, or cancels those with a cancel request. Returns the
-- number of jobs that it buried.
create or replace function leasehold.bury_expired(one_lease bigint default null, up_to int default 100)
returns int
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select coalesce(sum(t.buried), 0)::int from leasehold.take_expired(one_lease, up_to, true, false) t
$$;

-- Records which jobs an expiry took, and ends the lease when none is left. Internal: the caller holds
-- the lock on the lease.
create or replace function leasehold.end_lease(generation bigint, taken bigint[])
returns void
language sql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
    update leasehold.lease l
       set lost_ids = l.lost_ids || taken,
           ended_at = case when not exists (
               select from leasehold.job j
                where j.id = any (l.job_ids) and j.lease_generation = l.lease_generation and j.held)
               then statement_timestamp() end
     where l.lease_generation = generation and l.ended_at is null
$$;

-- Runs both steps of lease cleanup.
create or replace function leasehold.expire_leases(up_to int default 100)
returns table (returned int, buried int)
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select coalesce(sum(t.returned), 0)::int, coalesce(sum(t.buried), 0)::int
      from leasehold.take_expired(null, up_to, true, true) t
$$;

-- Runs lease cleanup unless another housekeeper does. The lock ends with the statement, so it cannot be
-- left in a pooled session; it saves work, and correctness does not depend on it. `anyway`: without the
-- election, in case the elected session hangs. Returns one row per queue whose jobs were returned or
-- buried, or a single row without a queue.
create or replace function leasehold.rescue(up_to int default 100, anyway boolean default false)
returns table (elected boolean, queue text, returned int, buried int)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
begin
    elected := anyway or pg_try_advisory_xact_lock(7305, 2);
    if elected then
        return query
        select true, t.queue, sum(t.returned)::int, sum(t.buried)::int
          from leasehold.take_expired(null, up_to, true, true) t
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
create or replace function leasehold.clamp_leases()
returns int
language sql volatile security definer set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    with shortened as (
        update leasehold.lease l set lease_expires_at = statement_timestamp() + l.lease
         where l.ended_at is null
           and l.lease_expires_at > statement_timestamp() + l.lease + interval '60 seconds'
        returning 1)
    select count(*)::int from shortened
$$;

-- Buries those of `late` that wait and have expired. Returns how many. Internal.
create or replace function leasehold.bury_late(late bigint[])
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    expired int;
begin
    with gone as (
        delete from leasehold.job j
         where j.id = any (array(
                select f.id from leasehold.job f
                 where f.id = any (late) and not f.held and f.expires_at <= statement_timestamp()
                 order by f.id for update skip locked))
           and not j.held and j.expires_at <= statement_timestamp()
        returning j.*
    ), counted as (
        insert into leasehold.tally (queue, tag, what, n)
        select g.queue, g.tag, 'expired', count(*) from gone g group by g.queue, g.tag
    )
    insert into leasehold.dead_job
        (id, enqueued_at, scheduled_at, expires_at, lease_generation, priority, attempts,
         max_attempts, lost_count, cause, queue, name, tag, kwargs, idempotency_key, last_error,
         trace_context, errors)
    select g.id, g.enqueued_at, g.scheduled_at, g.expires_at, g.lease_generation, g.priority,
           g.attempts, g.max_attempts, g.lost_count, 'expired', g.queue, g.name, g.tag, g.kwargs,
           g.idempotency_key, coalesce(g.last_error, 'not started before it expired'),
           g.trace_context, g.errors
      from gone g;
    get diagnostics expired = row_count;
    return expired;
end $$;

-- Reads up to `up_to` jobs after the id `after_id` and buries waiting ones that have expired. Returns
-- how many, and the id to read on from (null: the end was reached).
create or replace function leasehold.expire_jobs(after_id bigint default 0, up_to int default 5000)
returns table (expired int, next_id bigint)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    late bigint[];
    each bigint;
    seen int;
begin
    select count(*), max(j.id),
           coalesce(array_agg(j.id) filter (where not j.held and j.expires_at <= statement_timestamp()), '{}')
      into seen, next_id, late
      from (select id, held, expires_at from leasehold.job
             where id > after_id order by id limit up_to) j;
    begin
        expired := leasehold.bury_late(late);
    exception when others then
        -- One block per job: a job that a trigger or a constraint refuses must not stop the walk.
        expired := 0;
        foreach each in array late loop
            begin
                expired := expired + leasehold.bury_late(array[each]);
            exception when others then
                raise warning 'job % has expired and could not be buried: %', each, sqlerrm;
            end;
        end loop;
    end;
    if seen < up_to then
        next_id := null;
    end if;
    return next;
end $$;

-- Reclaims those of `strays` that are held by a lease that does not exist. Returns how many. Internal.
create or replace function leasehold.return_stray_rows(strays bigint[])
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_nestloop = on set enable_seqscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    returned int;
begin
    update leasehold.job j
       set held = false, lost_count = j.lost_count + 1, scheduled_at = statement_timestamp(),
           last_error = 'it was held by a lease that does not exist'
     where j.id = any (strays) and j.held
       and coalesce((select false from leasehold.lease l
                      where l.lease_generation = j.lease_generation
                        and coalesce(l.ended_at, 'infinity') = 'infinity'), true);
    get diagnostics returned = row_count;
    return returned;
end $$;

-- Reclaims jobs that are held by a lease that does not exist, among those after `after_id` and up to
-- `last_id`. No transition creates such a job, but a manual change can, and nothing else would free it.
create or replace function leasehold.return_strays(after_id bigint, last_id bigint)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_nestloop = on set enable_seqscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    strays bigint[];
    each bigint;
    returned int := 0;
begin
    -- Lock first and check again, in two statements: a job that was claimed meanwhile has a lease that
    -- the first one may not see. A look-up per job, not a join: a session that planned it while there
    -- was no lease would compare every job with every lease. Inner `coalesce`: see `settle_after`.
    select coalesce(array_agg(s.id), '{}') into strays
      from (select j.id from leasehold.job j
             where j.id > after_id and j.id <= last_id and j.held
               and coalesce((select false from leasehold.lease l
                              where l.lease_generation = j.lease_generation
                                and coalesce(l.ended_at, 'infinity') = 'infinity'), true)
             order by j.id for update of j skip locked) s;
    if strays = '{}' then
        return 0;
    end if;
    begin
        returned := leasehold.return_stray_rows(strays);
    exception when others then
        -- One block per job, as in `expire_jobs`.
        foreach each in array strays loop
            begin
                returned := returned + leasehold.return_stray_rows(array[each]);
            exception when others then
                raise warning 'job % is held by no lease and could not be reclaimed: %', each, sqlerrm;
            end;
        end loop;
    end;
    return returned;
end $$;

-- Walks the next piece of all jobs: buries expired ones and reclaims strays. All housekeepers share the
-- pieces, one per `every`.
create or replace function leasehold.walk_jobs(every interval default interval '1 second', up_to int default 5000)
returns table (expired int, strays int)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    place bigint;
    following bigint;
begin
    expired := 0;
    strays := 0;
    select d.after_id into place from leasehold.duty d
     where d.name = 'walk_jobs'
       and (d.ran_at + d.cooldown <= statement_timestamp() - every
            -- The clock was set back.
            or d.ran_at > statement_timestamp() + interval '1 minute')
       for update skip locked;
    if found then
        select e.expired, e.next_id into expired, following from leasehold.expire_jobs(place, up_to) e;
        strays := leasehold.return_strays(place, coalesce(following, 9223372036854775807));
        -- A walk past the dead tuples of many finished jobs is slow: the next one waits 50 times as
        -- long as this one took.
        update leasehold.duty d
           set after_id = coalesce(following, 0), ran_at = clock_timestamp(),
               cooldown = least(50 * (clock_timestamp() - statement_timestamp()), interval '30 minutes')
         where d.name = 'walk_jobs';
    end if;
    return next;
end $$;
