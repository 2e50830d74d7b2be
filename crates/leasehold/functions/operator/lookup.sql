-- What the handles of the library read beside the views. Viewers call these too: each returns names, times
-- and ids, never kwargs or error texts. `error_fingerprint` reads its argument only.

-- Returns every known queue: it has settings, a job, a dead job, a live worker or a schedule.
create or replace function leasehold_internal.queue_names()
returns setof text
language sql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
    select q.name from leasehold_internal.queue q
    union
    -- Hops from one queue to the next in the index; never reads the jobs in between.
    select waiting.queue from (
        with recursive hop (queue) as (
            (select leasehold_internal.next_queue(''))
            union all
            select leasehold_internal.next_queue(hop.queue) from hop where hop.queue is not null
        )
        select hop.queue from hop where hop.queue is not null) waiting
    union
    select d.queue from leasehold_internal.dead_job d
    union
    select w.queue from (select unnest(w.queues) as queue from leasehold.workers w
                          where w.state in ('alive', 'draining')) w
    union
    select s.queue from leasehold_internal.schedule s
    order by 1
$$;

-- Returns when a job finished, null if the history does not have it. Reads the ids of the history and none
-- of its kwargs: with this time `leasehold.jobs` finds the job in one batch of one partition.
create or replace function leasehold_internal.finished_at(job_id bigint)
returns timestamptz
language sql stable security definer set search_path = leasehold, pg_temp set jit = off as $$
    select max(h.finished_at) from leasehold_internal.history h where h.job_ids @> array[job_id]
$$;

-- Returns the part of an error text that equal errors share: its first line, without numbers and ids.
create or replace function leasehold_internal.error_fingerprint(error text)
returns text
language sql immutable parallel safe set search_path = leasehold, pg_temp as $$
    select regexp_replace(
        left(split_part(coalesce(error, ''), E'\n', 1), 300),
        '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F-]{22}|0x[0-9a-fA-F]+|[0-9a-fA-F]{12,}|[0-9]+', '#', 'g')
$$;
