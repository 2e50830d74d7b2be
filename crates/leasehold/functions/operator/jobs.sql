-- Actions of operators. Each one records its actor.

-- Why a running job was asked to stop, for the note of its end: see `cancel_reason`. Only requests have an
-- entry. Created only once: CREATE INDEX waits for every writer.
do $$ begin
    if to_regclass('leasehold.audit_cancel_requests_idx') is null then
        create index audit_cancel_requests_idx on leasehold.audit (subject, at)
         where action = 'cancel' and detail like 'cancel_requested%';
    end if;
end $$;

-- Cancels a job: a waiting one at once; a running one gets a cancel request and ends as cancelled when
-- its handler stops. Returns 'cancelled', 'cancel_requested' or 'gone'.
create or replace function leasehold.cancel(job_id bigint, actor text, why text default null)
returns text
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    answer text;
begin
    perform leasehold_internal.check_actor(actor);
    loop
        if leasehold_internal.cancel_rows(array[job_id], false, null, coalesce(why, 'cancelled by ' || actor)) > 0 then
            answer := 'cancelled';
        else
            update leasehold.job j set cancel_requested = true where j.id = job_id and j.held;
            if found then
                answer := 'cancel_requested';
            elsif exists (select from leasehold.job j where j.id = job_id) then
                continue; -- released or claimed between the two statements: look again
            else
                return 'gone';
            end if;
        end if;
        insert into leasehold.audit (actor, action, subject, detail)
        values (actor, 'cancel', 'job ' || job_id, concat_ws(': ', answer, why));
        return answer;
    end loop;
end $$;

-- Makes waiting jobs due now, whatever their backoff. A deferred one, due or not, runs by its priority again.
-- Returns the ids it changed.
create or replace function leasehold.promote(ids bigint[], actor text, why text default null)
returns setof bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    moved bigint[];
begin
    with due as (
        update leasehold.job j set scheduled_at = statement_timestamp(), deferred = false
         where j.id = any (array(
                select w.id from leasehold.job w
                 where w.id = any (ids) and not w.held
                   -- `is true` keeps the planner from reading the whole index of due times.
                   and (w.scheduled_at > statement_timestamp() or w.deferred) is true
                 order by w.id for update))
           and not j.held and (j.scheduled_at > statement_timestamp() or j.deferred) is true
        returning j.id, j.queue, j.limit_key
    ), signalled as materialized (
        select leasehold_internal.job_returned(d.queue, d.limit_key, statement_timestamp())
          from due d where d.limit_key is not null
    )
    select coalesce(array_agg(d.id), '{}') into moved from due d where (select count(*) from signalled) >= 0;
    if moved <> '{}' then
        perform leasehold_internal.wake(q.queue)
           from (select distinct j.queue from leasehold.job j where j.id = any (moved)) q;
        insert into leasehold.audit (actor, action, subject, detail)
        values (actor, 'promote', cardinality(moved) || ' jobs', concat_ws(': ', left(moved::text, 1000), why));
    end if;
    return query select unnest(moved);
end $$;

-- Redrives dead jobs: attempts and losses start again, the generation keeps growing. A job takes its
-- idempotency key again, and stays dead while the key belongs to a newer job. It is a member of its batch
-- again, unless that is closed, cancelled or locked by a transaction that closes it: then it belongs to none.
-- Returns the ids it moved.
create or replace function leasehold.redrive(ids bigint[], actor text, why text default null)
returns setof bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    moved bigint[];
    members bigint[];
    batches bigint[];
    open_batches bigint[];
begin
    perform from leasehold_internal.dead_job d where d.id = any (ids) order by d.id for update;
    open_batches := leasehold_internal.lock_open_batches(array(
        select distinct d.batch_id from leasehold_internal.dead_job d
         where d.id = any (ids) and d.batch_id is not null));
    -- Take their keys in the same order as every enqueue: insert the pruned ones and lock the others,
    -- so that no enqueue takes a key while its old job comes back.
    insert into leasehold_internal.idempotency_key as k (queue, key, job_id, request_hash, holds_until)
    select distinct on (d.queue, d.idempotency_key) d.queue, d.idempotency_key, d.id,
           leasehold_internal.request_hash(d.name, d.kwargs), statement_timestamp()
      from leasehold_internal.dead_job d
     where d.id = any (ids) and d.idempotency_key is not null
     order by d.queue, d.idempotency_key, d.id desc
    on conflict on constraint idempotency_key_pkey do update set job_id = k.job_id;
    -- Only a later statement sees the jobs of these keys. An expired key whose job has finished goes
    -- back to the last of its dead jobs.
    update leasehold_internal.idempotency_key k
       set job_id = d.id, request_hash = leasehold_internal.request_hash(d.name, d.kwargs)
      from (select distinct on (e.queue, e.idempotency_key) e.*
              from leasehold_internal.dead_job e
             where e.id = any (ids) and e.idempotency_key is not null
             order by e.queue, e.idempotency_key, e.id desc) d
     where k.queue = d.queue and k.key = d.idempotency_key and k.job_id <> d.id
       and k.holds_until <= statement_timestamp()
       and not exists (select from leasehold.job j where j.id = k.job_id);
    with back as (
        delete from leasehold_internal.dead_job d
         where d.id = any (ids)
           and (d.idempotency_key is null
                or exists (select from leasehold_internal.idempotency_key k
                            where k.queue = d.queue and k.key = d.idempotency_key and k.job_id = d.id))
        returning d.*
    ), alive as (
        -- By name, as in `bury_rows`.
        insert into leasehold.job overriding system value
        select x.* from back b cross join lateral jsonb_populate_record(
            null::leasehold.job, to_jsonb(b) || jsonb_build_object(
                'scheduled_at', statement_timestamp(),
                'expires_at', greatest(b.expires_at, statement_timestamp() + interval '30 days'),
                'attempts', 0, 'lost_count', 0, 'held', false, 'cancel_requested', false,
                'deferred', false,
                -- It was the first of an ordered key that its death stopped, and is again.
                'permit', leasehold_internal.stops_on_death(b.queue, b.limit_key),
                'batch_id', case when b.batch_id = any (open_batches) then b.batch_id end)) x
        returning id, queue, limit_key, batch_id
    ), signalled as materialized (
        select leasehold_internal.job_returned(a.queue, a.limit_key, statement_timestamp())
          from alive a where a.limit_key is not null
    )
    select coalesce(array_agg(a.id), '{}'),
           array_agg(a.id) filter (where a.batch_id is not null),
           array_agg(a.batch_id) filter (where a.batch_id is not null)
      into moved, members, batches
      from alive a where (select count(*) from signalled) >= 0;
    if members is not null then
        perform leasehold_internal.rejoin_members(members, batches);
    end if;
    if moved <> '{}' then
        insert into leasehold.audit (actor, action, subject, detail)
        values (actor, 'redrive', cardinality(moved) || ' jobs', concat_ws(': ', left(moved::text, 1000), why));
    end if;
    return query select unnest(moved);
end $$;

-- Deletes waiting and dead jobs without running them; no history is kept of them. A running job stays. An
-- idempotency key stays taken for its own time. Returns the ids it deleted.
create or replace function leasehold.delete_jobs(ids bigint[], actor text, why text default null)
returns setof bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    deleted bigint[];
    ended leasehold_internal.ended_job[];
begin
    with waiting as (
        delete from leasehold.job j
         where j.id = any (array(
                select w.id from leasehold.job w
                 where w.id = any (ids) and not w.held order by w.id for update))
           and not j.held
        returning j.id, j.queue, j.limit_key, j.batch_id
    ), dead as (
        delete from leasehold_internal.dead_job d
         where d.id = any (array(
                select e.id from leasehold_internal.dead_job e where e.id = any (ids) order by e.id for update))
        returning d.id, d.queue, d.limit_key
    )
    select coalesce(array_agg(g.id), '{}'), array_agg(row(g.id, g.queue, g.limit_key, g.batch_id, 'deleted')::leasehold_internal.ended_job)
               filter (where g.limit_key is not null or g.batch_id is not null)
      into deleted, ended
      from (select w.id, w.queue, w.limit_key, w.batch_id from waiting w
            -- A dead job may stop its key. It left its batch when it died.
            union all select d.id, d.queue, d.limit_key, null from dead d) g;
    perform leasehold_internal.jobs_ended(ended);
    if deleted <> '{}' then
        insert into leasehold.audit (actor, action, subject, detail)
        values (actor, 'delete', cardinality(deleted) || ' jobs', concat_ws(': ', left(deleted::text, 1000), why));
    end if;
    return query select unnest(deleted);
end $$;

-- Changes a waiting job. Null leaves a value as it is. A new due time moves the expiry along, unless a new
-- expiry is given too. With a new priority or due time, a deferred job runs by its priority again. Returns
-- false if the job does not wait.
create or replace function leasehold.update_job(
    job_id bigint, actor text, why text default null, priority int default null,
    scheduled_at timestamptz default null, expires_at timestamptz default null, tag text default null,
    max_attempts int default null
)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_variable
declare
    mine leasehold.job;
    due timestamptz;
    expiry timestamptz;
begin
    perform leasehold_internal.check_options(coalesce(tag, ''), max_attempts, scheduled_at, null);
    select j.* into mine from leasehold.job j where j.id = job_id and not j.held for update;
    if not found then
        return false;
    end if;
    due := coalesce(scheduled_at, mine.scheduled_at);
    expiry := mine.expires_at;
    -- Only with a new time: a job that waits for a retry beyond its expiry must not live on because its
    -- priority changed.
    if scheduled_at is not null or expires_at is not null then
        expiry := coalesce(expires_at, leasehold_internal.moved_expiry(mine.expires_at, mine.scheduled_at, due));
        perform leasehold_internal.check_expiry(due, expiry);
    end if;
    update leasehold.job j
       set priority = coalesce(priority, j.priority), scheduled_at = due, expires_at = expiry,
           deferred = j.deferred and priority is null and scheduled_at is null,
           tag = coalesce(tag, j.tag), max_attempts = coalesce(max_attempts, j.max_attempts)
     where j.id = job_id and not j.held;
    perform leasehold_internal.job_returned(mine.queue, mine.limit_key, due);
    if due <= statement_timestamp() then
        perform leasehold_internal.wake(mine.queue);
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'update', 'job ' || job_id, concat_ws(', ',
        'priority ' || priority, 'scheduled_at ' || scheduled_at, 'expires_at ' || expires_at, 'tag ' || tag,
        'max_attempts ' || max_attempts, why));
    return true;
end $$;
