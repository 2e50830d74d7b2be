-- Results: what a completed job keeps for the jobs that follow.

-- Completes jobs of one lease and keeps a result for each; a null keeps none. `settling` false: it leaves the
-- lease row alone, as `complete_rows` does. Returns the ids it completed. Internal: the caller has checked the
-- size.
create or replace function leasehold_internal.complete_with_results(
    ids bigint[], generation bigint, results text[], settling boolean default true
)
returns setof bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    -- Locked by the fence here and deleted by `complete_rows` in the same transaction.
    insert into leasehold_internal.job_result as r (job_id, batch_id, result)
    select mine.id, mine.batch_id, u.result::jsonb
      from (select j.id, j.batch_id from leasehold.job j
             where j.id = any (ids) and j.lease_generation = generation and j.held
             order by j.id for update) mine
      join unnest(ids, results) as u (id, result) on u.id = mine.id
     where u.result is not null
    on conflict (job_id) do update
       set batch_id = excluded.batch_id, kept_at = excluded.kept_at, result = excluded.result;
    if settling then
        return query select leasehold.complete_many(ids, generation);
    else
        return query select leasehold_internal.complete_rows(ids, generation);
    end if;
end $$;

-- Completes one job; false: the lease was lost, nothing changed. `result`: kept for the jobs that follow.
create or replace function leasehold.complete(job_id bigint, generation bigint, result jsonb default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    if result is null then
        return exists (select from leasehold.complete_many(array[job_id], generation));
    end if;
    if octet_length(result::text) > 65536 then
        raise exception 'the result of job % takes % bytes; it must take at most 64 KiB',
            job_id, octet_length(result::text)
            using errcode = 'LH002', constraint = 'LH002',
                  hint = 'Store the bulk elsewhere and keep a reference to it.';
    end if;
    return exists (select from leasehold_internal.complete_with_results(
        array[job_id], generation, array[result::text]));
end $$;

-- Returns the results of a batch in the order of the job ids, those after `after`, 1,000 at most. A result
-- is kept as long as the history of jobs, and until the follow-up of its batch has ended.
create or replace function leasehold.batch_results(batch_id bigint, after bigint default 0, up_to int default 100)
returns table (job_id bigint, result jsonb, kept_at timestamptz)
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
begin
    return query
    select r.job_id, r.result, r.kept_at from leasehold_internal.job_result r
     where r.batch_id = batch_results.batch_id and r.job_id > after
     order by r.job_id limit least(greatest(up_to, 1), 1000);
end $$;

-- Returns the result of a completed job, or null.
create or replace function leasehold.result(job_id bigint)
returns jsonb
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
begin
    return (select r.result from leasehold_internal.job_result r where r.job_id = "result".job_id);
end $$;
