-- Where a queue has work for these names: one row a (name, priority) that has any job at all, with
-- the place of its first. Hops from one pair to the next in the index; never reads the jobs between,
-- nor names that were not asked for.
create or replace function leasehold.lanes(of_queue text, known_names text[] default null)
returns table (name text, priority int, first_at timestamptz, first_id bigint)
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $$
begin
    if known_names is null then
        return query
        with recursive hop (name, priority, first_at, first_id) as (
            (select j.name, j.priority, j.scheduled_at, j.id from leasehold.job j
              where j.queue = of_queue
              order by j.name, j.priority, j.scheduled_at, j.id limit 1)
            union all
            select next.name, next.priority, next.scheduled_at, next.id
              from hop cross join lateral (
                select j.name, j.priority, j.scheduled_at, j.id from leasehold.job j
                 where j.queue = of_queue and (j.name, j.priority) > (hop.name, hop.priority)
                 order by j.name, j.priority, j.scheduled_at, j.id limit 1) next
        )
        select hop.name, hop.priority, hop.first_at, hop.first_id from hop;
    else
        return query
        with recursive hop (name, priority, first_at, first_id) as (
            select first.name, first.priority, first.scheduled_at, first.id
              from (select distinct u.name from unnest(known_names) as u (name)) known
             cross join lateral (
                select j.name, j.priority, j.scheduled_at, j.id from leasehold.job j
                 where j.queue = of_queue and j.name = known.name
                 order by j.priority, j.scheduled_at, j.id limit 1) first
            union all
            select hop.name, next.priority, next.scheduled_at, next.id
              from hop cross join lateral (
                select j.priority, j.scheduled_at, j.id from leasehold.job j
                 where j.queue = of_queue and j.name = hop.name and j.priority > hop.priority
                 order by j.priority, j.scheduled_at, j.id limit 1) next
        )
        select hop.name, hop.priority, hop.first_at, hop.first_id from hop;
    end if;
end $$;

do $$ begin
    create type leasehold.claimed_job as (
        id bigint, name text, kwargs jsonb, priority int, scheduled_at timestamptz,
        attempts int, max_attempts int, lost_count smallint, lease_generation bigint,
        tag text, enqueued_at timestamptz, idempotency_key text, trace_context text,
        run_limit interval, lease interval, max_lost int
    );
exception when duplicate_object then null;
end $$;

-- Claims up to `up_to` jobs of one queue from the given lanes, each from just after a place in the
-- order, and gives them one lease.
--
-- One statement does it: rows that another claimer is looking at are skipped, and the write checks
-- again that they are free. The write goes by row address because a join on ids under a LIMIT
-- tempts the planner into reading the whole table. Jobs whose worker died are left to `claim_lost`.
-- The generation is drawn after the rows are locked: drawn before, a claim that was held up could
-- give a job a lower one than a claim that overtook it, and whoever compares generations would
-- trust the former holder.
create or replace function leasehold.claim_lanes(
    worker text, from_queue text, up_to int, lease_for interval, with_claim_id uuid,
    lane_names text[], lane_priorities int[], after_at timestamptz[], after_id bigint[]
)
returns setof leasehold.claimed_job
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_tidscan = on
set enable_seqscan = off set jit = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $$
declare
    settings leasehold.queue := leasehold.queue_settings(from_queue);
    length interval := coalesce(lease_for, settings.lease);
begin
    if settings.paused_at is not null or up_to <= 0 then
        return;
    end if;
    return query
    with picked as materialized (
        select due.place
          from (select u.name, u.priority, coalesce(u.after_at, '-infinity') as after_at, u.after_id
                  from unnest(lane_names, lane_priorities, after_at, after_id)
                       as u (name, priority, after_at, after_id)) lane
         cross join lateral (
            select j.ctid as place, j.priority, j.scheduled_at, j.id
              from leasehold.job j
             where j.queue = from_queue and j.name = lane.name and j.priority = lane.priority
               and (j.scheduled_at, j.id) > (lane.after_at, lane.after_id)
               and j.scheduled_at <= statement_timestamp()
               and j.expires_at > statement_timestamp()
               and not j.held and j.lost_count = 0
             order by j.scheduled_at, j.id
             limit up_to
               for update skip locked) due
         order by due.priority, due.scheduled_at, due.id
         limit up_to
    ), numbered as materialized (
        select leasehold.next_generation() as generation
          from (select count(*) as jobs from picked) p where p.jobs > 0
    ), claimed as (
        update leasehold.job j
           set held = true, lease_generation = (select n.generation from numbered n),
               attempts = j.attempts + 1
         where j.ctid = any (array(select place from picked)) and not j.held
        returning j.*
    ), leased as (
        insert into leasehold.lease
            (lease_generation, lease_expires_at, lease, keep_history, queue, claimed_by, claim_id, job_ids)
        select min(c.lease_generation), statement_timestamp() + length, length,
               settings.keep_history, from_queue, worker, with_claim_id, array_agg(c.id)
          from claimed c having count(*) > 0
    )
    select c.id, c.name, c.kwargs, c.priority, c.scheduled_at, c.attempts,
           coalesce(c.max_attempts, settings.max_attempts), c.lost_count, c.lease_generation,
           c.tag, c.enqueued_at, c.idempotency_key, c.trace_context, settings.run_limit, length,
           settings.max_lost
      from claimed c;
end $$;

-- Claims one job whose worker died, alone under its own lease, so that a job that kills its worker
-- again takes no neighbour's lease with it. `last_chance` picks which: jobs that one more loss
-- would bury, or the others.
create or replace function leasehold.claim_lost(
    worker text, from_queue text, lease_for interval, with_claim_id uuid,
    known_names text[], last_chance boolean
)
returns setof leasehold.claimed_job
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_tidscan = on
set enable_seqscan = off set jit = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $$
declare
    settings leasehold.queue := leasehold.queue_settings(from_queue);
    length interval := coalesce(lease_for, settings.lease);
begin
    if settings.paused_at is not null
       or not exists (select from leasehold.job j where j.queue = from_queue and j.lost_count > 0) then
        return;
    end if;
    return query
    with picked as materialized (
        select j.ctid as place
          from leasehold.job j
         where j.queue = from_queue and j.lost_count > 0
           and (known_names is null or j.name = any (known_names))
           and (last_chance is null
                or (j.lost_count >= settings.max_lost - 1) = last_chance)
           and j.scheduled_at <= statement_timestamp()
           and j.expires_at > statement_timestamp()
           and not j.held
         order by j.priority, j.scheduled_at, j.id
         limit 1
           for update skip locked
    ), numbered as materialized (
        select leasehold.next_generation() as generation
          from (select count(*) as jobs from picked) p where p.jobs > 0
    ), claimed as (
        update leasehold.job j
           set held = true, lease_generation = (select n.generation from numbered n),
               attempts = j.attempts + 1
         where j.ctid = any (array(select place from picked)) and not j.held
        returning j.*
    ), leased as (
        insert into leasehold.lease
            (lease_generation, lease_expires_at, lease, keep_history, queue, claimed_by, claim_id, job_ids)
        select min(c.lease_generation), statement_timestamp() + length, length,
               settings.keep_history, from_queue, worker, with_claim_id, array_agg(c.id)
          from claimed c having count(*) > 0
    )
    select c.id, c.name, c.kwargs, c.priority, c.scheduled_at, c.attempts,
           coalesce(c.max_attempts, settings.max_attempts), c.lost_count, c.lease_generation,
           c.tag, c.enqueued_at, c.idempotency_key, c.trace_context, settings.run_limit, length,
           settings.max_lost
      from claimed c;
end $$;

-- Whether a due job waits that one more loss would bury. A worker asks before it clears the way for
-- such a job: nothing else should run in the process that claims it.
create or replace function leasehold.last_chance_waits(from_queue text, known_names text[])
returns boolean
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select exists (
        select from leasehold.job j join leasehold.queue q on q.name = j.queue
         where j.queue = from_queue and j.lost_count > 0
           and (known_names is null or j.name = any (known_names))
           and j.lost_count >= q.max_lost - 1 and q.paused_at is null
           and j.scheduled_at <= statement_timestamp()
           and j.expires_at > statement_timestamp()
           and not j.held)
$$;

-- The claim for consumers in any language: returns expired leases first, then claims, from the
-- start of the order. `names` null: every name. A job whose worker died comes alone.
create or replace function leasehold.claim(
    worker text,
    queue text default 'default',
    batch int default 25,
    lease interval default null,
    names text[] default null,
    claim_id uuid default null
)
returns setof leasehold.claimed_job
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_variable
begin
    perform leasehold.expire_leases(100);
    return query select * from leasehold.claim_lost(worker, queue, lease, claim_id, names, null);
    if found then
        return;
    end if;
    return query
    select c.* from (
        select array_agg(l.name) as names, array_agg(l.priority) as priorities,
               array_agg(null::timestamptz) as after_at, array_agg(0::bigint) as after_id
          from leasehold.lanes(queue, names) l) lane
     cross join lateral leasehold.claim_lanes(
        worker, queue, batch, lease, claim_id,
        lane.names, lane.priorities, lane.after_at, lane.after_id) c
     where lane.names is not null;
end $$;

-- The jobs of a claim whose reply was lost, if it took place.
create or replace function leasehold.recover_claim(worker text, lost_claim_id uuid)
returns setof leasehold.claimed_job
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select j.id, j.name, j.kwargs, j.priority, j.scheduled_at, j.attempts,
           coalesce(j.max_attempts, q.max_attempts), j.lost_count, j.lease_generation,
           j.tag, j.enqueued_at, j.idempotency_key, j.trace_context, q.run_limit, l.lease,
           q.max_lost
      from leasehold.lease l
      join leasehold.queue q on q.name = l.queue
     cross join lateral unnest(l.job_ids) with ordinality as held (id, place)
      join leasehold.job j on j.id = held.id and j.held and j.lease_generation = l.lease_generation
     where l.claimed_by = worker and l.claim_id = lost_claim_id and l.ended_at is null
     order by held.place
$$;
