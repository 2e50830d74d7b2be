-- Adds the failure of one attempt to those of earlier ones and keeps the last ten. Each text is cut to
-- 1,000 characters; `last_error` holds up to 4,096 of the last one.
create or replace function leasehold_internal.add_error(
    errors jsonb, attempt int, worker text, claimed_at timestamptz, error text
)
returns jsonb
language sql stable set search_path = leasehold, pg_temp as $$
    select case when jsonb_array_length(earlier.list) >= 10 then earlier.list - 0 else earlier.list end
           || jsonb_build_array(jsonb_build_object(
                'at', statement_timestamp(), 'attempt', attempt, 'worker', worker,
                'ms', round(extract(epoch from statement_timestamp() - claimed_at) * 1000),
                'error', left(error, 1000)))
      -- A list that was damaged by hand must not keep a job from being let go.
      from (select case when jsonb_typeof(errors) = 'array' then errors else '[]' end) as earlier (list)
$$;

-- Moves jobs out of the hot table for good. `why` is one of `dead_job.cause`. Internal: the caller
-- has checked the fence and holds the row lock. Columns move by name: those that only one of the two
-- tables has are named here.
create or replace function leasehold_internal.bury_rows(ids bigint[], generation bigint, why text, error text, worker text)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    buried int;
    since timestamptz;
    ended leasehold_internal.ended_job[];
begin
    select l.claimed_at into since from leasehold_internal.lease l where l.lease_generation = generation;
    with dead as (
        delete from leasehold.job j
         where j.id = any (ids) and j.lease_generation = generation and j.held
        returning j.*
    ), counted as (
        insert into leasehold_internal.tally (queue, tag, what, n)
        select d.queue, d.tag, w.what, count(*)
          from dead d cross join unnest(case when why = 'lost' then '{buried,lost}'::text[]
                                             else '{buried}' end) as w (what)
         group by d.queue, d.tag, w.what
    ), filed as (
    insert into leasehold_internal.dead_job
    select x.* from dead d cross join lateral jsonb_populate_record(
        null::leasehold_internal.dead_job, to_jsonb(d) || jsonb_build_object(
            'died_at', statement_timestamp(), 'cause', why, 'claimed_by', worker,
            'lost_count', d.lost_count + (case when why = 'lost' then 1 else 0 end),
            'last_error', left(coalesce(error, d.last_error), 4096),
            'errors', case when error is null then d.errors
                else leasehold_internal.add_error(d.errors, d.attempts, worker, since, error) end)) x
    )
    select count(*), array_agg(row(d.id, d.queue, d.limit_key, d.batch_id, 'dead')::leasehold_internal.ended_job)
               filter (where d.limit_key is not null or d.batch_id is not null)
      into buried, ended from dead d;
    perform leasehold_internal.jobs_ended(ended);
    return buried;
end $$;

-- Records that an attempt failed. The job is retried after `after` (default: the queue's backoff), or
-- buried when it has no attempt left. Returns 'retry' with the wait, 'buried', 'cancelled' or 'lost'.
-- `blocking` false: a job that another transaction has locked is left alone, and the outcome is 'busy'.
create or replace function leasehold_internal.record_failure(
    job_id bigint, generation bigint, error text, after interval default null,
    blocking boolean default true
)
returns table (outcome text, next_in interval)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    mine leasehold.job;
    settings leasehold_internal.queue;
    holder text;
    since timestamptz;
    due timestamptz;
    expiry timestamptz;
begin
    if blocking then
        select * into mine from leasehold.job j
         where j.id = job_id and j.lease_generation = generation and j.held
           for update;
    else
        select * into mine from leasehold.job j
         where j.id = job_id and j.lease_generation = generation and j.held
           for update skip locked;
    end if;
    if not found then
        outcome := case when not blocking and exists (
                            select from leasehold.job j
                             where j.id = job_id and j.lease_generation = generation and j.held)
                        then 'busy' else 'lost' end;
        return next;
        return;
    end if;
    settings := leasehold_internal.queue_settings(mine.queue);
    select l.claimed_by, l.claimed_at into holder, since
      from leasehold_internal.lease l where l.lease_generation = generation;
    if mine.cancel_requested then
        perform leasehold_internal.add_final_error(job_id, generation, error);
        perform leasehold_internal.cancel_rows(array[job_id], true, generation, error);
        outcome := 'cancelled';
    elsif mine.attempts >= coalesce(mine.max_attempts, settings.max_attempts) then
        perform leasehold_internal.bury_rows(array[job_id], generation, 'exhausted', error, holder);
        outcome := 'buried';
    else
        next_in := leasehold_internal.clamp_wait(coalesce(
            after, leasehold_internal.backoff(mine.attempts, settings.backoff_base, settings.backoff_cap)));
        due := statement_timestamp() + next_in;
        expiry := mine.expires_at;
        -- A job that fails again and again ends at its expiry. But a wait longer than the whole time
        -- from its enqueue to its expiry is deliberate: without moving the expiry the job would never
        -- run.
        if after is not null and isfinite(expiry) and isfinite(mine.enqueued_at) then
            if mine.enqueued_at + next_in >= expiry then
                expiry := leasehold_internal.moved_expiry(expiry, mine.scheduled_at, due);
            end if;
        end if;
        update leasehold.job j
           -- Its worker is alive: only consecutive losses count.
           set held = false, lost_count = 0, deferred = false, last_error = left(error, 4096),
               permit = case when j.permit then leasehold_internal.keeps_permit(j.queue, j.limit_key) else false end,
               scheduled_at = due, expires_at = expiry,
               errors = leasehold_internal.add_error(j.errors, j.attempts, holder, since, error)
         where j.id = job_id and j.lease_generation = generation and j.held;
        perform leasehold_internal.job_returned(mine.queue, mine.limit_key, due);
        insert into leasehold_internal.tally (queue, tag, what, n) values (mine.queue, mine.tag, 'retried', 1);
        outcome := 'retry';
    end if;
    perform leasehold_internal.settle(generation);
    return next;
end $$;

-- The same for callers that do not need the wait. Returns 'retry', 'buried', 'cancelled' or 'lost'.
create or replace function leasehold.fail(
    job_id bigint, generation bigint, error text, after interval default null
)
returns text
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select f.outcome from leasehold_internal.record_failure(job_id, generation, error, after) f
$$;

-- Buries a job: another attempt would not help. Returns false if the lease was lost.
create or replace function leasehold.bury(
    job_id bigint, generation bigint, error text, cause text default 'rejected'
)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    holder text;
    buried int;
begin
    if coalesce(cause not in ('exhausted', 'lost', 'rejected', 'undecodable', 'expired'), true) then
        raise exception 'cause is %; it must be exhausted, lost, rejected, undecodable or expired',
            coalesce(quote_literal(cause), 'null')
            using errcode = 'LH002', constraint = 'LH002', hint = 'Leave it out for rejected.';
    end if;
    select l.claimed_by into holder from leasehold_internal.lease l where l.lease_generation = generation;
    buried := leasehold_internal.bury_rows(array[job_id], generation, cause, error, holder);
    perform leasehold_internal.settle(generation);
    return buried > 0;
end $$;
