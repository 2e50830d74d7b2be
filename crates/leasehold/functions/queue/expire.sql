-- Jobs that were not started in time, and jobs that are held by no lease: a walk over all jobs finds them.

-- Buries those of `late` that wait and have expired. Returns how many. Internal.
create or replace function leasehold_internal.bury_late(late bigint[])
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    expired int;
    ended leasehold_internal.ended_job[];
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
        insert into leasehold_internal.tally (queue, tag, what, n)
        select g.queue, g.tag, 'expired', count(*) from gone g group by g.queue, g.tag
    ), filed as (
        -- By name, as in `bury_rows`.
        insert into leasehold_internal.dead_job
        select x.* from gone g cross join lateral jsonb_populate_record(
            null::leasehold_internal.dead_job, to_jsonb(g) || jsonb_build_object(
                'died_at', statement_timestamp(), 'cause', 'expired',
                'last_error', coalesce(g.last_error, 'not started before it expired'))) x
    )
    select count(*), array_agg(row(g.id, g.queue, g.limit_key, g.batch_id, 'dead')::leasehold_internal.ended_job)
               filter (where g.limit_key is not null or g.batch_id is not null)
      into expired, ended from gone g;
    perform leasehold_internal.jobs_ended(ended);
    return expired;
end $$;

-- Reads up to `up_to` jobs after the id `after_id` and buries waiting ones that have expired. Returns
-- how many, and the id to read on from (null: the end was reached).
create or replace function leasehold_internal.expire_jobs(after_id bigint default 0, up_to int default 5000)
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
        expired := leasehold_internal.bury_late(late);
    exception when others then
        -- One block per job: a job that a trigger or a constraint refuses must not stop the walk.
        expired := 0;
        foreach each in array late loop
            begin
                expired := expired + leasehold_internal.bury_late(array[each]);
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
create or replace function leasehold_internal.return_stray_rows(strays bigint[])
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_nestloop = on set enable_seqscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    returned int;
begin
    with back as (
        update leasehold.job j
           set held = false, deferred = false, lost_count = j.lost_count + 1, scheduled_at = statement_timestamp(),
               permit = case when j.permit then leasehold_internal.keeps_permit(j.queue, j.limit_key) else false end,
               last_error = 'it was held by a lease that does not exist'
         where j.id = any (strays) and j.held
           and coalesce((select false from leasehold_internal.lease l
                          where l.lease_generation = j.lease_generation
                            and coalesce(l.ended_at, 'infinity') = 'infinity'), true)
        returning j.queue, j.limit_key
    ), signalled as materialized (
        select leasehold_internal.job_returned(b.queue, b.limit_key, statement_timestamp())
          from back b where b.limit_key is not null
    )
    select count(*) into returned from back where (select count(*) from signalled) >= 0;
    return returned;
end $$;

-- Reclaims jobs that are held by a lease that does not exist, among those after `after_id` and up to
-- `last_id`. No transition creates such a job, but a manual change can, and nothing else would free it.
create or replace function leasehold_internal.return_strays(after_id bigint, last_id bigint)
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
               and coalesce((select false from leasehold_internal.lease l
                              where l.lease_generation = j.lease_generation
                                and coalesce(l.ended_at, 'infinity') = 'infinity'), true)
             order by j.id for update of j skip locked) s;
    if strays = '{}' then
        return 0;
    end if;
    begin
        returned := leasehold_internal.return_stray_rows(strays);
    exception when others then
        -- One block per job, as in `expire_jobs`.
        foreach each in array strays loop
            begin
                returned := returned + leasehold_internal.return_stray_rows(array[each]);
            exception when others then
                raise warning 'job % is held by no lease and could not be reclaimed: %', each, sqlerrm;
            end;
        end loop;
    end;
    return returned;
end $$;

-- Walks the next piece of all jobs: buries expired ones and reclaims strays. All housekeepers share the
-- pieces, one per `every`.
create or replace function leasehold_internal.walk_jobs(every interval default interval '1 second', up_to int default 5000)
returns table (expired int, strays int)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    place bigint;
    following bigint;
begin
    expired := 0;
    strays := 0;
    select d.after_id into place from leasehold_internal.duty d
     where d.name = 'walk_jobs'
       and (d.ran_at + d.cooldown <= statement_timestamp() - every
            -- The clock was set back.
            or d.ran_at > statement_timestamp() + interval '1 minute')
       for update skip locked;
    if found then
        select e.expired, e.next_id into expired, following from leasehold_internal.expire_jobs(place, up_to) e;
        strays := leasehold_internal.return_strays(place, coalesce(following, 9223372036854775807));
        -- A walk past the dead tuples of many finished jobs is slow: the next one waits 50 times as
        -- long as this one took.
        update leasehold_internal.duty d
           set after_id = coalesce(following, 0), ran_at = clock_timestamp(),
               cooldown = least(50 * (clock_timestamp() - statement_timestamp()), interval '30 minutes')
         where d.name = 'walk_jobs';
    end if;
    return next;
end $$;
