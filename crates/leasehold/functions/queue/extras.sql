-- What a transition does for jobs with a limit key or a batch. Each verb calls one of these functions
-- in its own transaction, and only for such jobs.

do $$ begin
    -- A job that has left the queue for good. `outcome`: completed, cancelled, dead or deleted.
    create type leasehold_internal.ended_job as (
        id bigint, queue text, limit_key text, batch_id bigint, outcome text);
exception when duplicate_object then null;
end $$;

-- For jobs that an enqueue has stored: their limit key has work when they are due, and their batch has more
-- members.
create or replace function leasehold_internal.jobs_stored(
    ids bigint[], queue text, limit_key text, due timestamptz, batch bigint
)
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    if limit_key is not null then
        perform leasehold_internal.signal_key(queue, limit_key, due);
    end if;
    if batch is not null then
        perform leasehold_internal.add_members(batch, ids);
    end if;
end $$;

-- For jobs that ended: their limit keys have room, and their batches one job less.
create or replace function leasehold_internal.jobs_ended(ended leasehold_internal.ended_job[])
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    if ended is null then
        return;
    end if;
    insert into leasehold_internal.limit_signal (due_at, queue, key)
    select distinct statement_timestamp(), e.queue, e.limit_key from unnest(ended) as e where e.limit_key is not null;
    perform leasehold_internal.end_members(array(
        select e from unnest(ended) as e where e.batch_id is not null));
end $$;

-- For a job that waits again until `due`: its limit key has room now, and work then.
create or replace function leasehold_internal.job_returned(queue text, limit_key text, due timestamptz)
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    if limit_key is null then
        return;
    end if;
    perform leasehold_internal.signal_key(queue, limit_key, statement_timestamp());
    if due > statement_timestamp() then
        perform leasehold_internal.signal_key(queue, limit_key, due);
    end if;
end $$;
