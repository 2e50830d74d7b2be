-- Ends a lease when none of its jobs is held any more. Skips a lease that someone else is at work
-- on: whoever that is ends it, or the next expiry does.
-- `just_finished`: the ids the caller let go of; when they are all of the lease's, nothing needs
-- to be looked up.
create or replace function leasehold.settle(generation bigint, just_finished bigint[] default null)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
begin
    update leasehold.lease
       set ended_at = statement_timestamp()
     where lease_generation = (
        select l.lease_generation from leasehold.lease l
         where l.lease_generation = generation and l.ended_at is null
           and (l.job_ids = just_finished
                or not exists (select from leasehold.job j
                                where j.id = any (l.job_ids)
                                  and j.lease_generation = generation and j.held))
           for update skip locked);
end $$;

-- Completes jobs of one lease. The generation is the fence: once a lease has expired, the old
-- worker matches no row and cannot touch the newer attempt. Returns the ids it completed; an id
-- that is missing was lost, or completed before.
-- `settling` false leaves the lease row alone, for callers whose transaction stays open: a lock on
-- it would keep the worker from renewing.
-- Rows are read by the primary key and by nothing else, so they are locked in the order of the ids:
-- a batch that is sent again while the first try still runs waits for it instead of deadlocking.
create or replace function leasehold.complete_many(ids bigint[], generation bigint, settling boolean default true)
returns setof bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_bitmapscan = off set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    keeping boolean;
    holder text;
begin
    select l.keep_history, l.claimed_by into keeping, holder
      from leasehold.lease l where l.lease_generation = generation;
    if keeping then
        return query
        with finished as (
            delete from leasehold.job j
             where j.id = any (ids) and j.lease_generation = generation and j.held
            returning j.id, j.queue, j.name, j.tag, j.attempts, j.enqueued_at, j.kwargs
        ), filed as (
            insert into leasehold.history
                (outcome, queue, lease_generation, claimed_by, job_ids, names, tags, attempts,
                 enqueued_at, kwargs)
            select 'completed', min(f.queue), generation, holder, array_agg(f.id), array_agg(f.name),
                   array_agg(f.tag), array_agg(f.attempts), array_agg(f.enqueued_at),
                   array_agg(f.kwargs)
              from finished f having count(*) > 0
        )
        select f.id from finished f;
    else
        -- Without history nothing else would tell that the queue is alive.
        return query
        with finished as (
            delete from leasehold.job j
             where j.id = any (ids) and j.lease_generation = generation and j.held
            returning j.id, j.queue, j.tag
        ), counted as (
            insert into leasehold.tally (queue, tag, what, n)
            select f.queue, f.tag, 'completed', count(*) from finished f group by f.queue, f.tag
        )
        select f.id from finished f;
    end if;
    if settling then
        perform leasehold.settle(generation, ids);
    end if;
end $$;

-- Completes one job; false: the lease was lost, nothing changed.
create or replace function leasehold.complete(job_id bigint, generation bigint)
returns boolean
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select exists (select from leasehold.complete_many(array[job_id], generation, true))
$$;

-- Moves jobs out of the hot table for good. `cause` is one of `dead_job.cause`.
-- Only for the functions here: the caller has checked the fence and holds the row lock.
create or replace function leasehold.bury_rows(ids bigint[], generation bigint, why text, error text, worker text)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    buried int;
begin
    with dead as (
        delete from leasehold.job j
         where j.id = any (ids) and j.lease_generation = generation and j.held
        returning j.*
    ), counted as (
        insert into leasehold.tally (queue, tag, what, n)
        select d.queue, d.tag, w.what, count(*)
          from dead d cross join unnest(case when why = 'lost' then '{buried,lost}'::text[]
                                             else '{buried}' end) as w (what)
         group by d.queue, d.tag, w.what
    )
    insert into leasehold.dead_job
        (id, enqueued_at, scheduled_at, expires_at, lease_generation, priority, attempts,
         max_attempts, lost_count, cause, claimed_by, queue, name, tag, kwargs, idempotency_key,
         last_error, trace_context)
    select d.id, d.enqueued_at, d.scheduled_at, d.expires_at, d.lease_generation, d.priority,
           d.attempts, d.max_attempts,
           d.lost_count + (case when why = 'lost' then 1 else 0 end), why, worker, d.queue,
           d.name, d.tag, d.kwargs, d.idempotency_key, left(coalesce(error, d.last_error), 4096),
           d.trace_context
      from dead d;
    get diagnostics buried = row_count;
    return buried;
end $$;

-- Files jobs that were cancelled and removes them.
create or replace function leasehold.cancel_rows(ids bigint[], only_held boolean, generation bigint, why text)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    cancelled int;
begin
    with gone as (
        delete from leasehold.job j
         where j.id = any (ids) and j.held = only_held
           and (not only_held or j.lease_generation = generation)
        returning j.*
    )
    insert into leasehold.history
        (outcome, queue, lease_generation, job_ids, names, tags, attempts, enqueued_at, kwargs, note)
    select 'cancelled', g.queue, g.lease_generation, array[g.id], array[g.name], array[g.tag],
           array[g.attempts], array[g.enqueued_at], array[g.kwargs], left(why, 4096)
      from gone g;
    get diagnostics cancelled = row_count;
    return cancelled;
end $$;

-- An attempt failed. The job comes back after `after` (default: the queue's back-off), or is
-- buried when it has no attempt left. Answers 'retry', 'buried', 'cancelled' or 'lost'.
create or replace function leasehold.fail(
    job_id bigint, generation bigint, error text, after interval default null
)
returns text
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    mine leasehold.job;
    settings leasehold.queue;
    holder text;
    verdict text;
begin
    select * into mine from leasehold.job j
     where j.id = job_id and j.lease_generation = generation and j.held
       for update;
    if not found then
        return 'lost';
    end if;
    settings := leasehold.queue_settings(mine.queue);
    select l.claimed_by into holder from leasehold.lease l where l.lease_generation = generation;
    if mine.cancel_requested then
        perform leasehold.cancel_rows(array[job_id], true, generation, error);
        verdict := 'cancelled';
    elsif mine.attempts >= coalesce(mine.max_attempts, settings.max_attempts) then
        perform leasehold.bury_rows(array[job_id], generation, 'exhausted', error, holder);
        verdict := 'buried';
    else
        update leasehold.job j
           set held = false, last_error = left(error, 4096),
               scheduled_at = statement_timestamp() + coalesce(
                   after, leasehold.backoff(j.attempts, settings.backoff_base, settings.backoff_cap))
         where j.id = job_id and j.lease_generation = generation and j.held;
        insert into leasehold.tally (queue, tag, what, n) values (mine.queue, mine.tag, 'retried', 1);
        verdict := 'retry';
    end if;
    perform leasehold.settle(generation);
    return verdict;
end $$;

-- Gives a job up for good: another attempt would not help. False: the lease was lost.
create or replace function leasehold.bury(
    job_id bigint, generation bigint, error text, cause text default 'refused'
)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    holder text;
    buried int;
begin
    select l.claimed_by into holder from leasehold.lease l where l.lease_generation = generation;
    buried := leasehold.bury_rows(array[job_id], generation, cause, error, holder);
    perform leasehold.settle(generation);
    return buried > 0;
end $$;

-- Puts a job off. Not a failure: the attempt is given back. False: the lease was lost.
create or replace function leasehold.snooze(job_id bigint, generation bigint, wait interval)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    unwanted boolean;
begin
    -- Lock first: a cancel that was asked for a moment ago must not be put off with the job.
    select j.cancel_requested into unwanted from leasehold.job j
     where j.id = job_id and j.lease_generation = generation and j.held
       for update;
    if not found then
        return false;
    end if;
    if unwanted then
        perform leasehold.cancel_rows(array[job_id], true, generation, 'cancelled while it snoozed');
    else
        update leasehold.job j
           set held = false, attempts = j.attempts - 1, scheduled_at = statement_timestamp() + wait
         where j.id = job_id and j.lease_generation = generation and j.held;
    end if;
    perform leasehold.settle(generation);
    return true;
end $$;

-- Hands jobs back that were not run: the attempt is given back and nothing else changes.
-- Returns the ids it released.
create or replace function leasehold.release(ids bigint[], generation bigint)
returns setof bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    unwanted bigint[];
begin
    -- Lock first, in the order of the ids: see `snooze`.
    select coalesce(array_agg(mine.id) filter (where mine.cancel_requested), '{}') into unwanted
      from (select j.id, j.cancel_requested from leasehold.job j
             where j.id = any (ids) and j.lease_generation = generation and j.held
             order by j.id for update) mine;
    perform leasehold.cancel_rows(unwanted, true, generation, 'cancelled before it ran');
    return query
    update leasehold.job j
       set held = false, attempts = j.attempts - 1
     where j.id = any (ids) and j.lease_generation = generation and j.held
    returning j.id;
    perform leasehold.settle(generation);
end $$;

-- The owner of a job ends it as cancelled. False: the lease was lost.
create or replace function leasehold.finish_cancelled(job_id bigint, generation bigint, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    cancelled int := leasehold.cancel_rows(array[job_id], true, generation, why);
begin
    perform leasehold.settle(generation);
    return cancelled > 0;
end $$;

-- What became of jobs whose finish had no answer:
--   held       not written; finish again
--   finished   written by this generation
--   lost       an expiry took the job away before, or the lease is too old to know
create or replace function leasehold.explain_finish(ids bigint[], generation bigint)
returns table (job_id bigint, state text)
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select asked.id,
           case when j.held and j.lease_generation = generation then 'held'
                when asked.id = any (l.job_ids) and not asked.id = any (l.lost_ids) then 'finished'
                else 'lost' end
      from unnest(ids) as asked (id)
      left join leasehold.job j on j.id = asked.id
      left join leasehold.lease l on l.lease_generation = generation
$$;

-- Completes jobs that nobody has claimed yet: their work was done elsewhere, in the caller's
-- transaction. A job that a worker holds is left to it; its handler finds nothing to do. Answers
-- how many were completed.
create or replace function leasehold.complete_waiting(ids bigint[])
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_bitmapscan = off set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    completed int;
begin
    -- Nothing waits for a lock here: a row that someone is at work on is theirs.
    with picked as materialized (
        select j.id from leasehold.job j
         where j.id = any (ids) and not j.held order by j.id for update skip locked
    ), finished as (
        delete from leasehold.job j
         where j.id = any (array(select p.id from picked p)) and not j.held
        returning j.id, j.queue, j.name, j.tag, j.attempts, j.enqueued_at, j.kwargs
    ), filed as (
        insert into leasehold.history
            (outcome, queue, lease_generation, job_ids, names, tags, attempts, enqueued_at, kwargs)
        select 'completed', f.queue, 0, array_agg(f.id), array_agg(f.name), array_agg(f.tag),
               array_agg(f.attempts), array_agg(f.enqueued_at), array_agg(f.kwargs)
          from finished f group by f.queue
        having coalesce((select q.keep_history from leasehold.queue q where q.name = f.queue), true)
    ), counted as (
        insert into leasehold.tally (queue, tag, what, n)
        select f.queue, f.tag, 'completed', count(*) from finished f group by f.queue, f.tag
        having not coalesce((select q.keep_history from leasehold.queue q where q.name = f.queue), true)
    )
    select count(*) into completed from finished;
    return completed;
end $$;
