-- Renews the leases of one worker. Returns one state per given generation:
--   renewed   held for another lease length
--   busy      another transaction has locked the lease; ask again soon
--   ended     every job of it is finished
--   lost      it expired; nothing done under it will be accepted
-- Never waits for a lock: one busy lease must not delay the others.
create or replace function leasehold.renew(generations bigint[])
returns table (generation bigint, state text)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
begin
    return query
    with mine as (
        select l.lease_generation from leasehold_internal.lease l
         -- `coalesce`: see `settle_after`.
         where l.lease_generation = any (generations) and coalesce(l.ended_at, 'infinity') = 'infinity'
         order by l.lease_generation
           for update skip locked
    ), renewed as (
        update leasehold_internal.lease l
           set lease_expires_at = statement_timestamp() + l.lease
         where l.lease_generation = any (array(select m.lease_generation from mine m))
           and coalesce(l.ended_at, 'infinity') = 'infinity'
        returning l.lease_generation
    )
    select asked.generation,
           case when r.lease_generation is not null then 'renewed'
                when l.lease_generation is null or l.lost_ids <> '{}' then 'lost'
                when l.ended_at is not null then 'ended'
                else 'busy' end
      from unnest(generations) as asked (generation)
      left join renewed r on r.lease_generation = asked.generation
      left join leasehold_internal.lease l on l.lease_generation = asked.generation;
end $$;

-- Returns which of these running jobs have a cancel request.
create or replace function leasehold_internal.cancel_requests(ids bigint[])
returns setof bigint
language sql stable security definer set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    select j.id from leasehold.job j where j.id = any (ids) and j.held and j.cancel_requested
$$;

-- Fails unless the caller still owns the job. Locks the row against expiry until the caller's
-- transaction ends, so what that transaction writes is written by the owner.
create or replace function leasehold.check_lease(job_id bigint, generation bigint)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
begin
    perform from leasehold.job j
      where j.id = job_id and j.lease_generation = generation and j.held
        for share;
    if not found then
        raise exception 'lease on job % (generation %) was lost', job_id, generation
            using errcode = 'LH004', constraint = 'LH004',
                  hint = 'The job has ended, or another worker owns it. Roll back and drop the result.';
    end if;
end $$;
