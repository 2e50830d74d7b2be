-- Ends a lease when none of its jobs is held any more. Skips a lease that another transaction has
-- locked: that transaction ends it, or the next reclaim does. `completed`: how many of its jobs the caller
-- has just completed. When those are all of them, nothing is looked up. Internal: a caller that passes a
-- wrong number would end a lease whose jobs run.
create or replace function leasehold_internal.settle_after(generation bigint, completed bigint)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
begin
    -- A renewal after the snapshot of such a transaction would make this update fail each time, and the job with
    -- it. The next reclaim ends the lease.
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
        return;
    end if;
    update leasehold_internal.lease
       set ended_at = statement_timestamp()
     where lease_generation = (
        select l.lease_generation from leasehold_internal.lease l
         where l.lease_generation = generation
           -- Not `is null`: that would offer the index of all open leases, in place of the primary key.
           and coalesce(l.ended_at, 'infinity') = 'infinity'
           and (cardinality(l.job_ids) = completed
                or not exists (select from leasehold.job j
                                where j.id = any (l.job_ids)
                                  and j.lease_generation = generation and j.held))
           for update skip locked);
end $$;

-- The same for callers that have completed none. `just_finished` is not read: a caller that passes a wrong
-- list must not end a lease whose jobs run.
create or replace function leasehold_internal.settle(generation bigint, just_finished bigint[] default null)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select leasehold_internal.settle_after(generation, 0)
$$;

-- Completes jobs of one lease. The generation is the fence: once a lease has expired, the old
-- worker matches no row and cannot touch the newer attempt. Returns the ids it completed; an id
-- that is missing was lost, or completed before.
-- It leaves the lease row alone: the transaction of a handler stays open, and a lock on the row would
-- keep the worker from renewing.
-- Rows are read by the primary key and by nothing else, so they are locked in the order of the ids:
-- a batch that is sent again while the first try still runs waits for it instead of deadlocking.
create or replace function leasehold_internal.complete_rows(ids bigint[], generation bigint)
returns setof bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_bitmapscan = off set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    keeping boolean;
    extras boolean;
    holder text;
    since timestamptz;
    ended leasehold_internal.ended_job[];
begin
    select l.keep_history, l.has_extras, l.claimed_by, l.claimed_at into keeping, extras, holder, since
      from leasehold_internal.lease l where l.lease_generation = generation;
    if extras then
        -- Locked here and deleted below: no job becomes held by a generation that has let it go.
        select array_agg(row(e.id, e.queue, e.limit_key, e.batch_id, 'completed')::leasehold_internal.ended_job)
               filter (where e.limit_key is not null or e.batch_id is not null)
          into ended
          from (select j.id, j.queue, j.limit_key, j.batch_id from leasehold.job j
                 where j.id = any (ids) and j.lease_generation = generation and j.held
                 order by j.id for update) e;
    end if;
    if keeping then
        return query
        with finished as (
            delete from leasehold.job j
             where j.id = any (ids) and j.lease_generation = generation and j.held
            returning j.id, j.queue, j.name, j.tag, j.attempts, j.enqueued_at, j.kwargs, j.priority,
                      j.idempotency_key, j.max_attempts, j.scheduled_at, j.errors
        ), filed as (
            -- `cancel_rows` and `complete_waiting` file the same columns, in a row per job and per queue. One function
            -- would take the jobs as an array of rows, and every completion would pay for building it; a test
            -- compares the lists.
            insert into leasehold_internal.history
                (outcome, queue, lease_generation, claimed_by, claimed_at, job_ids, names, tags,
                 attempts, enqueued_at, kwargs, priorities, keys, max_attempts, scheduled_at, errors)
            select 'completed', min(f.queue), generation, holder, since, array_agg(f.id),
                   array_agg(f.name), array_agg(f.tag), array_agg(f.attempts),
                   array_agg(f.enqueued_at), array_agg(f.kwargs),
                   -- An array in which every job has the default is not worth its bytes. The inner
                   -- queries run only when their condition is true: most jobs do not pay for them.
                   case when bool_or(f.priority <> 0)
                        then (select array_agg(g.priority) from finished g) end,
                   case when count(f.idempotency_key) > 0
                        then (select array_agg(g.idempotency_key) from finished g) end,
                   case when count(f.max_attempts) > 0
                        then (select array_agg(g.max_attempts) from finished g) end,
                   case when bool_or(greatest(f.scheduled_at, '0001-01-01 00:00Z') - interval '1 second' > f.enqueued_at)
                        then (select array_agg(g.scheduled_at) from finished g) end,
                   case when count(f.errors) > 0
                        then (select array_agg(g.errors) from finished g) end
              from finished f having count(*) > 0
        )
        select f.id from finished f;
    else
        -- Without history, only this count shows that the queue is alive.
        return query
        with finished as (
            delete from leasehold.job j
             where j.id = any (ids) and j.lease_generation = generation and j.held
            returning j.id, j.queue, j.tag
        ), counted as (
            insert into leasehold_internal.tally (queue, tag, what, n)
            select f.queue, f.tag, 'completed', count(*) from finished f group by f.queue, f.tag
        )
        select f.id from finished f;
    end if;
    if ended is not null then
        perform leasehold_internal.jobs_ended(ended);
    end if;
end $$;

-- Completes jobs of one lease, and ends the lease when it has none left. Returns the ids it completed.
create or replace function leasehold.complete_many(ids bigint[], generation bigint)
returns setof bigint
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    completed bigint;
begin
    return query select leasehold_internal.complete_rows(ids, generation);
    get diagnostics completed = row_count;
    perform leasehold_internal.settle_after(generation, completed);
end $$;

-- Returns the reason an operator gave for cancelling a running job, or who cancelled it; null: no operator did.
create or replace function leasehold_internal.cancel_reason(job_id bigint)
returns text
language sql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
    select coalesce(nullif(substr(a.detail, length('cancel_requested: ') + 1), ''), 'cancelled by ' || a.actor)
      from leasehold.audit a
     where a.subject = 'job ' || cancel_reason.job_id
       and a.action = 'cancel' and a.detail like 'cancel_requested%'
     order by a.at desc limit 1
$$;

-- Moves cancelled jobs to the history. The note of a job with a cancel request is the operator's reason;
-- `why` is for the others.
create or replace function leasehold_internal.cancel_rows(ids bigint[], only_held boolean, generation bigint, why text)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    cancelled int;
    ended leasehold_internal.ended_job[];
begin
    with gone as (
        delete from leasehold.job j
         where j.id = any (ids) and j.held = only_held
           and (not only_held or j.lease_generation = generation)
        returning j.*
    ), filed as (
        insert into leasehold_internal.history
            (outcome, queue, lease_generation, claimed_by, claimed_at, job_ids, names, tags, attempts,
             enqueued_at, kwargs, note, priorities, keys, max_attempts, scheduled_at, errors)
        select 'cancelled', g.queue, g.lease_generation, l.claimed_by, l.claimed_at, array[g.id],
           array[g.name], array[g.tag], array[g.attempts], array[g.enqueued_at], array[g.kwargs],
           left(coalesce(case when g.held and g.cancel_requested
                              then leasehold_internal.cancel_reason(g.id) end, why), 4096), array[g.priority],
           case when g.idempotency_key is not null then array[g.idempotency_key] end,
           case when g.max_attempts is not null then array[g.max_attempts] end,
           array[g.scheduled_at], case when g.errors is not null then array[g.errors] end
      from gone g
      left join leasehold_internal.lease l on only_held and l.lease_generation = g.lease_generation
    )
    select count(*), array_agg(row(g.id, g.queue, g.limit_key, g.batch_id, 'cancelled')::leasehold_internal.ended_job)
               filter (where g.limit_key is not null or g.batch_id is not null)
      into cancelled, ended from gone g;
    perform leasehold_internal.jobs_ended(ended);
    return cancelled;
end $$;

-- Returns a wait that a due time can hold: from none to ten years. With a date beyond the calendar the
-- statement would fail each time, and the job could never be finished.
create or replace function leasehold_internal.clamp_wait(wait interval)
returns interval
language sql immutable as $$
    select least(greatest(wait, interval '0'), interval '10 years')
$$;

-- Snoozes a job. Not a failure: the attempt does not count. Returns false if the lease was lost.
create or replace function leasehold.snooze(job_id bigint, generation bigint, wait interval)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    unwanted boolean;
    from_queue text;
    key text;
    due timestamptz := statement_timestamp() + leasehold_internal.clamp_wait(wait);
begin
    -- Lock first: a job with a fresh cancel request must not be snoozed.
    select j.cancel_requested, j.queue, j.limit_key into unwanted, from_queue, key from leasehold.job j
     where j.id = job_id and j.lease_generation = generation and j.held
       for update;
    if not found then
        return false;
    end if;
    if unwanted then
        perform leasehold_internal.cancel_rows(array[job_id], true, generation, 'cancelled while it snoozed');
    else
        update leasehold.job j
           set held = false, lost_count = 0, attempts = j.attempts - 1, deferred = false, scheduled_at = due,
               permit = case when j.permit then leasehold_internal.keeps_permit(j.queue, j.limit_key) else false end,
               expires_at = leasehold_internal.moved_expiry(j.expires_at, j.scheduled_at, due)
         where j.id = job_id and j.lease_generation = generation and j.held;
        perform leasehold_internal.job_returned(from_queue, key, due);
    end if;
    perform leasehold_internal.settle(generation);
    return true;
end $$;

-- Defers jobs of one lease, many at once. They return behind all jobs of their queue that are not deferred:
-- however many of them are due, a claim has room for the others. Priority and limits stay as they are.
-- `counted`: the attempt was a failure; it stays counted, and the last one buries the job. Otherwise it does
-- not count, and such jobs end when an attempt succeeds, or when they expire. Returns each job that the lease
-- still held, with 'deferred', 'buried' or 'cancelled'. Internal.
create or replace function leasehold_internal.defer_many(
    ids bigint[], generation bigint, waits float8[], reasons text[], counted boolean[]
)
returns table (job_id bigint, outcome text)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_nestloop = on set enable_bitmapscan = off set enable_seqscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    unwanted bigint[];
    spent bigint[];
    holder text;
    since timestamptz;
    most int;
begin
    select l.claimed_by, l.claimed_at, (leasehold_internal.queue_settings(l.queue)).max_attempts
      into holder, since, most
      from leasehold_internal.lease l where l.lease_generation = generation;
    -- Lock first, in the order of the ids: see `snooze`.
    select coalesce(array_agg(mine.id) filter (where mine.cancel_requested), '{}'),
           coalesce(array_agg(mine.id) filter (where not mine.cancel_requested
                                                 and mine.attempts >= coalesce(mine.max_attempts, most)), '{}')
      into unwanted, spent
      from (select j.id, j.cancel_requested, j.attempts, j.max_attempts from leasehold.job j
             where j.id = any (ids) and j.lease_generation = generation and j.held
             order by j.id for update) mine;
    if unwanted <> '{}' then
        perform leasehold_internal.cancel_rows(unwanted, true, generation, 'cancelled while it was deferred');
        return query select u.id, 'cancelled' from unnest(unwanted) as u (id);
    end if;
    if spent <> '{}' then
        for job_id, outcome in
            select o.id, o.why from unnest(ids, reasons, counted) as o (id, why, counted)
             where o.counted and o.id = any (spent)
        loop
            perform leasehold_internal.bury_rows(array[job_id], generation, 'exhausted', outcome, holder);
            outcome := 'buried';
            return next;
        end loop;
    end if;
    return query
    with back as (
    update leasehold.job j
       set held = false, lost_count = 0, deferred = true,
           permit = case when j.permit then leasehold_internal.keeps_permit(j.queue, j.limit_key) else false end,
           attempts = j.attempts - (case when o.counted then 0 else 1 end),
           scheduled_at = statement_timestamp()
               + make_interval(secs => least(greatest(o.wait, 0), 315360000)),
           last_error = coalesce(left(o.why, 4096), j.last_error),
           errors = case when o.counted
                         then leasehold_internal.add_error(j.errors, j.attempts, holder, since, o.why)
                         else j.errors end
      from unnest(ids, waits, reasons, counted) as o (id, wait, why, counted)
     -- An array of one, not `=`: for a plain join the planner may read every job in the order of ids.
     where j.id = any (array[o.id]) and j.lease_generation = generation and j.held
    returning j.id, j.queue, j.limit_key, j.scheduled_at
    ), returned as materialized (
        select leasehold_internal.job_returned(d.queue, d.limit_key, d.scheduled_at)
          from back d where d.limit_key is not null
    )
    -- The join with nothing makes the calls happen.
    select d.id, 'deferred' from back d where (select count(*) from returned r) >= 0;
    perform leasehold_internal.settle(generation);
end $$;

-- Defers one job. Not a failure: the attempt does not count. Returns false if the lease was lost.
create or replace function leasehold.defer(job_id bigint, generation bigint, wait interval, why text default null)
returns boolean
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select exists (select from leasehold_internal.defer_many(
        array[job_id], generation,
        array[extract(epoch from leasehold_internal.clamp_wait(wait))::float8], array[why], array[false]))
$$;

-- Releases jobs that were not run: the attempt does not count, and the time that they were held does
-- not count towards their expiry. A deferred job stays deferred: nothing was learned about it. Returns the
-- ids it released.
create or replace function leasehold.release(ids bigint[], generation bigint)
returns setof bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    unwanted bigint[];
    since timestamptz;
begin
    -- Lock first, in the order of the ids: see `snooze`.
    select coalesce(array_agg(mine.id) filter (where mine.cancel_requested), '{}') into unwanted
      from (select j.id, j.cancel_requested from leasehold.job j
             where j.id = any (ids) and j.lease_generation = generation and j.held
             order by j.id for update) mine;
    perform leasehold_internal.cancel_rows(unwanted, true, generation, 'cancelled before it ran');
    select l.claimed_at into since from leasehold_internal.lease l where l.lease_generation = generation;
    return query
    with released as (
    update leasehold.job j
       set held = false, attempts = j.attempts - 1,
           permit = case when j.permit then leasehold_internal.keeps_permit(j.queue, j.limit_key) else false end,
           expires_at = case when j.expires_at < timestamptz '9999-01-01 00:00Z'
                             -- `greatest` ignores a null.
                             then greatest(j.expires_at, j.expires_at + (statement_timestamp() - since))
                             else j.expires_at end
     where j.id = any (ids) and j.lease_generation = generation and j.held
    returning j.id, j.queue, j.limit_key
    ), returned as materialized (
        select leasehold_internal.job_returned(r.queue, r.limit_key, statement_timestamp())
          from released r where r.limit_key is not null
    )
    select r.id from released r where (select count(*) from returned) >= 0;
    -- The jobs are ready, and this worker is stopping.
    perform leasehold_internal.wake(l.queue) from leasehold_internal.lease l where l.lease_generation = generation;
    perform leasehold_internal.settle(generation);
end $$;

-- Appends the handler's last error to the job's errors; the note is taken by the operator's reason.
create or replace function leasehold_internal.add_final_error(job_id bigint, generation bigint, why text)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
begin
    update leasehold.job j
       set errors = leasehold_internal.add_error(j.errors, j.attempts, l.claimed_by, l.claimed_at, why)
      from leasehold_internal.lease l
     where j.id = any (array[job_id]) and j.lease_generation = generation and j.held and j.cancel_requested
       and l.lease_generation = generation and why <> '';
end $$;

-- Ends a job of the caller's lease as cancelled. Returns false if the lease was lost.
create or replace function leasehold.finish_cancelled(job_id bigint, generation bigint, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    cancelled int;
begin
    perform leasehold_internal.add_final_error(job_id, generation, why);
    cancelled := leasehold_internal.cancel_rows(array[job_id], true, generation, why);
    perform leasehold_internal.settle(generation);
    return cancelled > 0;
end $$;

-- Returns the outcome of jobs whose finish had no reply:
--   held       not written; finish again
--   finished   written by this generation
--   lost       a reclaim took the job from the lease before, or the lease is too old to know
create or replace function leasehold_internal.explain_finish(ids bigint[], generation bigint)
returns table (job_id bigint, state text)
language sql stable security definer
set search_path = leasehold, pg_temp set enable_nestloop = on set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set enable_material = off as $$
    select asked.id,
           case when j.held and j.lease_generation = generation then 'held'
                when asked.id = any (l.job_ids) and not asked.id = any (l.lost_ids) then 'finished'
                else 'lost' end
      from unnest(ids) as asked (id)
      left join leasehold.job j on j.id = asked.id
      left join leasehold_internal.lease l on l.lease_generation = generation
$$;

-- Returns how this generation ended a job, for a worker whose finish had no reply and for which
-- `explain_finish` returned 'finished': 'completed', 'cancelled', 'buried', or 'waiting' for a job that
-- waits for another attempt.
create or replace function leasehold_internal.ended_as(job_id bigint, generation bigint)
returns text
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    since timestamptz;
    keeping boolean;
    filed text;
begin
    select l.claimed_at, l.keep_history into since, keeping
      from leasehold_internal.lease l where l.lease_generation = generation;
    select h.outcome into filed from leasehold_internal.history h
     where h.finished_at >= since and h.lease_generation = generation and h.job_ids @> array[job_id]
     limit 1;
    if filed is not null then
        return filed;
    end if;
    if exists (select from leasehold_internal.dead_job d where d.id = job_id and d.lease_generation = generation) then
        return 'buried';
    end if;
    -- Without history a completion leaves no trace; a job that waited for another attempt and has finished
    -- since looks the same.
    if keeping or exists (select from leasehold.job j where j.id = job_id) then
        return 'waiting';
    end if;
    return 'completed';
end $$;

-- Completes jobs that are not claimed yet: their work was done elsewhere, in the caller's transaction.
-- A job that a worker holds is left to it; its handler finds nothing to do. Returns how many were
-- completed.
create or replace function leasehold.complete_waiting(ids bigint[])
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_bitmapscan = off set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    completed int;
    ended leasehold_internal.ended_job[];
begin
    -- Never wait for a lock here: a locked row belongs to the transaction that locked it.
    with picked as materialized (
        select j.id from leasehold.job j
         where j.id = any (ids) and not j.held order by j.id for update skip locked
    ), finished as (
        delete from leasehold.job j
         where j.id = any (array(select p.id from picked p)) and not j.held
        returning j.id, j.queue, j.name, j.tag, j.attempts, j.enqueued_at, j.kwargs, j.priority,
                  j.idempotency_key, j.max_attempts, j.scheduled_at, j.errors, j.limit_key, j.batch_id
    ), filed as (
        insert into leasehold_internal.history
            (outcome, queue, lease_generation, job_ids, names, tags, attempts, enqueued_at, kwargs,
             priorities, keys, max_attempts, scheduled_at, errors)
        select 'completed', f.queue, 0, array_agg(f.id), array_agg(f.name), array_agg(f.tag),
               array_agg(f.attempts), array_agg(f.enqueued_at), array_agg(f.kwargs),
               case when bool_or(f.priority <> 0) then array_agg(f.priority) end,
               case when count(f.idempotency_key) > 0 then array_agg(f.idempotency_key) end,
               case when count(f.max_attempts) > 0 then array_agg(f.max_attempts) end,
               case when bool_or(greatest(f.scheduled_at, '0001-01-01 00:00Z') - interval '1 second' > f.enqueued_at)
                    then array_agg(f.scheduled_at) end,
               case when count(f.errors) > 0 then array_agg(f.errors) end
          from finished f group by f.queue
        having coalesce((select q.keep_history from leasehold_internal.queue q where q.name = f.queue), true)
    ), counted as (
        insert into leasehold_internal.tally (queue, tag, what, n)
        select f.queue, f.tag, 'completed', count(*) from finished f group by f.queue, f.tag
        having not coalesce((select q.keep_history from leasehold_internal.queue q where q.name = f.queue), true)
    )
    select count(*), array_agg(row(f.id, f.queue, f.limit_key, f.batch_id, 'completed')::leasehold_internal.ended_job)
               filter (where f.limit_key is not null or f.batch_id is not null)
      into completed, ended from finished f;
    perform leasehold_internal.jobs_ended(ended);
    return completed;
end $$;
