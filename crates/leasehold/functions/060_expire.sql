-- Lease cleanup, first step: jobs of expired leases that have an attempt left go back to the
-- queue at once, their loss counted. A job that was lost before waits a little longer each time.
-- `one_lease`: that one; null: every expired one. Answers with the number of jobs.
create or replace function leasehold.return_expired(one_lease bigint default null, up_to int default 100)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    gone record;
    taken bigint[];
    total int := 0;
begin
    -- A lease that is being renewed, settled or expired by someone else is theirs.
    for gone in
        select l.lease_generation, l.job_ids, q.max_attempts, q.max_lost
          from leasehold.lease l join leasehold.queue q on q.name = l.queue
         where l.ended_at is null and l.lease_expires_at < statement_timestamp()
           and (one_lease is null or l.lease_generation = one_lease)
         order by l.lease_expires_at limit up_to
           for update of l skip locked
    loop
        -- A row that a transaction still works on is left for the next round: never wait here.
        with free as (
            select j.id from leasehold.job j
             where j.id = any (gone.job_ids) and j.lease_generation = gone.lease_generation and j.held
               and not j.cancel_requested
               and j.attempts < coalesce(j.max_attempts, gone.max_attempts)
               and j.lost_count + 1 < gone.max_lost
             order by j.id for update skip locked
        ), returned as (
            update leasehold.job j
               set held = false, lost_count = j.lost_count + 1,
                   scheduled_at = statement_timestamp()
                       + case when j.lost_count = 0 then interval '0'
                              else interval '5 seconds' * power(2, least(j.lost_count, 10)) end,
                   last_error = 'the worker was lost: its lease ran out'
             where j.id in (select id from free)
               and j.lease_generation = gone.lease_generation and j.held
            returning j.id, j.queue, j.tag
        ), counted as (
            insert into leasehold.tally (queue, tag, what, n)
            select r.queue, r.tag, 'lost', count(*) from returned r group by r.queue, r.tag
        )
        select coalesce(array_agg(r.id), '{}') into taken from returned r;
        total := total + cardinality(taken);
        perform leasehold.end_lease(gone.lease_generation, taken);
    end loop;
    return total;
end $$;

-- Lease cleanup, second step: jobs of expired leases that have no attempt left, or that too many
-- workers died under, are buried; those that someone asked to cancel are cancelled.
create or replace function leasehold.bury_expired(one_lease bigint default null, up_to int default 100)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    gone record;
    cancelling bigint[];
    losing bigint[];
    failing bigint[];
    total int := 0;
begin
    for gone in
        select l.lease_generation, l.job_ids, l.claimed_by, q.max_attempts, q.max_lost
          from leasehold.lease l join leasehold.queue q on q.name = l.queue
         where l.ended_at is null and l.lease_expires_at < statement_timestamp()
           and (one_lease is null or l.lease_generation = one_lease)
         order by l.lease_expires_at limit up_to
           for update of l skip locked
    loop
        select coalesce(array_agg(f.id) filter (where f.cancel_requested), '{}'),
               coalesce(array_agg(f.id) filter (where not f.cancel_requested
                   and f.lost_count + 1 >= gone.max_lost), '{}'),
               coalesce(array_agg(f.id) filter (where not f.cancel_requested
                   and f.lost_count + 1 < gone.max_lost), '{}')
          into cancelling, losing, failing
          from (
            select j.id, j.cancel_requested, j.lost_count from leasehold.job j
             where j.id = any (gone.job_ids) and j.lease_generation = gone.lease_generation and j.held
               and (j.cancel_requested
                    or j.attempts >= coalesce(j.max_attempts, gone.max_attempts)
                    or j.lost_count + 1 >= gone.max_lost)
             order by j.id for update skip locked) f;
        continue when cardinality(cancelling || losing || failing) = 0;
        perform leasehold.cancel_rows(cancelling, true, gone.lease_generation,
                                      'cancelled; its worker was lost');
        total := total
            + leasehold.bury_rows(losing, gone.lease_generation, 'lost',
                                  'workers kept dying under this job', gone.claimed_by)
            + leasehold.bury_rows(failing, gone.lease_generation, 'exhausted',
                                  'the worker of the last attempt was lost: its lease ran out',
                                  gone.claimed_by);
        perform leasehold.end_lease(gone.lease_generation, cancelling || losing || failing);
    end loop;
    return total;
end $$;

-- Notes which jobs an expiry took, and ends the lease when none is left.
-- Only for the functions here: the caller holds the lock on the lease.
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

-- Both steps of lease cleanup.
create or replace function leasehold.expire_leases(up_to int default 100)
returns table (returned int, buried int)
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    buried := leasehold.bury_expired(null, up_to);
    returned := leasehold.return_expired(null, up_to);
    return next;
end $$;

-- Lease cleanup by one of many: does nothing when another housekeeper is at it. The lock ends with
-- the statement, so it cannot be stranded in a pooled session; it saves work and guards nothing.
-- `anyway`: without the election, in case that the elected one is a ghost. Says whose jobs they were: one row
-- a queue, or a single one without.
create or replace function leasehold.rescue(up_to int default 100, anyway boolean default false)
returns table (elected boolean, queue text, returned int, buried int)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    lost_before jsonb;
begin
    elected := anyway or pg_try_advisory_xact_lock(7305, 2);
    returned := 0;
    buried := 0;
    if not elected then
        return next;
        return;
    end if;
    buried := leasehold.bury_expired(null, up_to);
    -- What was just written down: by this transaction, at this moment. Some of the buried were lost as well.
    select coalesce(jsonb_object_agg(t.queue, t.n), '{}') into lost_before
      from (select t.queue, sum(t.n) as n from leasehold.tally t
             where t.at = statement_timestamp() and t.xmin = pg_current_xact_id()::xid
               and t.what = 'lost' group by t.queue) t
     where buried > 0;
    returned := leasehold.return_expired(null, up_to);
    if returned + buried = 0 then
        return next;
        return;
    end if;
    return query
    select true, t.queue,
           (coalesce(sum(t.n) filter (where t.what = 'lost'), 0)
               - coalesce((lost_before ->> t.queue)::bigint, 0))::int,
           coalesce(sum(t.n) filter (where t.what = 'buried'), 0)::int
      from leasehold.tally t
     where t.at = statement_timestamp() and t.xmin = pg_current_xact_id()::xid
       and t.what in ('lost', 'buried')
     group by t.queue;
end $$;

-- A lease that ends later than its length allows was written by a clock that has since gone back:
-- shorten it, or a dead worker's jobs would wait for the clock to catch up.
create or replace function leasehold.clamp_leases()
returns int
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    with shortened as (
        update leasehold.lease l set lease_expires_at = statement_timestamp() + l.lease
         where l.ended_at is null
           and l.lease_expires_at > statement_timestamp() + l.lease + interval '60 seconds'
        returning 1)
    select count(*)::int from shortened
$$;

-- Looks at up to `up_to` waiting jobs after the id `after_id` and sets aside those that were not
-- started in time. Answers how many, and where to go on (null: the end was reached).
create or replace function leasehold.expire_jobs(after_id bigint default 0, up_to int default 5000)
returns table (expired int, next_id bigint)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    late bigint[];
    seen int;
begin
    select count(*), max(j.id),
           coalesce(array_agg(j.id) filter (where not j.held and j.expires_at <= statement_timestamp()), '{}')
      into seen, next_id, late
      from (select id, held, expires_at from leasehold.job
             where id > after_id order by id limit up_to) j;
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
         trace_context)
    select g.id, g.enqueued_at, g.scheduled_at, g.expires_at, g.lease_generation, g.priority,
           g.attempts, g.max_attempts, g.lost_count, 'expired', g.queue, g.name, g.tag, g.kwargs,
           g.idempotency_key, coalesce(g.last_error, 'not started before it expired'),
           g.trace_context
      from gone g;
    get diagnostics expired = row_count;
    if seen < up_to then
        next_id := null;
    end if;
    return next;
end $$;

-- Gives back jobs that are held by a lease which is not there, among those after `after_id` and up
-- to `last_id`. No transition makes such a job, but a hand can, and nothing else would free it.
create or replace function leasehold.return_strays(after_id bigint, last_id bigint)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    strays bigint[];
    seen bigint[];
    returned int;
begin
    select array_agg(j.id), array_agg(j.lease_generation) into strays, seen
      from leasehold.job j
     where j.id > after_id and j.id <= last_id and j.held
       and not exists (select from leasehold.lease l
                        where l.lease_generation = j.lease_generation and l.ended_at is null);
    if strays is null then
        return 0;
    end if;
    -- The generation that was seen: a job that was claimed meanwhile has another one, and a lease
    -- that this statement may not see yet.
    with free as (
        select j.id from unnest(strays, seen) as s (id, generation)
          join leasehold.job j on j.id = s.id and j.lease_generation = s.generation and j.held
         order by j.id for update of j skip locked
    )
    update leasehold.job j
       set held = false, lost_count = j.lost_count + 1, scheduled_at = statement_timestamp(),
           last_error = 'it was held by a lease that does not exist'
     where j.id in (select id from free) and j.held
       and not exists (select from leasehold.lease l
                        where l.lease_generation = j.lease_generation and l.ended_at is null);
    get diagnostics returned = row_count;
    return returned;
end $$;

-- The next piece of the walk over all jobs: sets late ones aside and gives strays back. The pieces
-- are shared by all housekeepers, one every `every`.
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
     where d.name = 'walk_jobs' and d.ran_at <= statement_timestamp() - every
       for update skip locked;
    if found then
        select e.expired, e.next_id into expired, following from leasehold.expire_jobs(place, up_to) e;
        strays := leasehold.return_strays(place, coalesce(following, 9223372036854775807));
        -- A walk past the remains of many finished jobs is slow: the next one waits fifty times as
        -- long as this one took.
        update leasehold.duty d
           set after_id = coalesce(following, 0),
               ran_at = clock_timestamp() + 50 * (clock_timestamp() - statement_timestamp())
         where d.name = 'walk_jobs';
    end if;
    return next;
end $$;
