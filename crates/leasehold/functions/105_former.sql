-- Functions that workers of the release before call and this one does not. Those workers keep running
-- beside new ones during a deploy; the release after this one drops these functions.

-- Returns every (name, priority) that may have jobs. The former worker keeps a cursor in each; here a
-- claim finds its own way, so every cursor is set before the first job.
create or replace function leasehold.lanes(of_queue text, known_names text[] default null)
returns table (name text, priority int, first_at timestamptz, first_id bigint)
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $$
begin
    return query
    with recursive hop (priority) as (
        (select j.priority from leasehold.job j where j.queue = of_queue
          order by j.queue, j.priority, j.scheduled_at limit 1)
        union all
        select next.priority
          from hop cross join lateral (
            select j.priority from leasehold.job j
             where j.queue = of_queue and j.priority > hop.priority
             order by j.queue, j.priority, j.scheduled_at limit 1) next
    )
    select known.name, hop.priority, timestamptz '2000-01-01 00:00Z', 0::bigint
      from (select hop.priority from hop limit 256) hop
     cross join (select distinct u.name from unnest(coalesce(known_names, array(
                    select distinct j.name from leasehold.job j where j.queue = of_queue))) as u (name)) known;
end $$;

-- Claims from the given lanes, which name the job names and the range of priorities.
create or replace function leasehold.claim_lanes(
    worker text, from_queue text, up_to int, lease_for interval, with_claim_id uuid,
    lane_names text[], lane_priorities int[], after_at timestamptz[], after_id bigint[]
)
returns setof leasehold.claimed_job
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select c.* from (select min(u.p) as first, max(u.p) as last from unnest(lane_priorities) as u (p)) range
     cross join lateral leasehold.claim_next(
        worker, from_queue, up_to, lease_for, with_claim_id, lane_names, 1, range.first, range.last, true,
        '{}', '{}', '{}') c
     where range.first is not null
$$;

create or replace function leasehold.claim_lost(
    worker text, from_queue text, lease_for interval, with_claim_id uuid,
    known_names text[], last_chance boolean
)
returns setof leasehold.claimed_job
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select c.* from leasehold.claim_alone(
        worker, from_queue, lease_for, with_claim_id, known_names,
        -- Null: those on their last chance. The former worker claims the others one by one.
        case when last_chance then null else 1 end) c
$$;

create or replace function leasehold.last_chance_waits(from_queue text, known_names text[])
returns boolean
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select leasehold.lost_priority(from_queue, known_names) is not null
$$;

-- The former sampler asked for the sweeps and measured each by reading its table. Workers count their
-- own rows now, so it gets none.
create or replace function leasehold.measured_sweeps()
returns setof text
language sql stable set search_path = leasehold, pg_temp as $$
    select null::text where false
$$;

create or replace function leasehold.measure_sweep(of_name text, minute timestamptz, look boolean default true)
returns boolean
language sql stable set search_path = leasehold, pg_temp as $$
    select true
$$;

-- The former mirror calls, without the time of the comparison: differences of the last minute stay.
create or replace function leasehold.mirror_equal(
    of_mirror text, after text, up_to text, but text[] default '{}'
)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select leasehold.mirror_equal(of_mirror, after, up_to, but, statement_timestamp() - interval '1 minute')
$$;

create or replace function leasehold.mirror_seen(of_mirror text, keys text[])
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select leasehold.mirror_seen(of_mirror, keys, statement_timestamp() - interval '1 minute')
$$;

-- The former worker pruned the marks of a mirror with this, once per minute in every worker, and read
-- the marks of all waiting jobs each time. They are keys: `prune_kind` removes them with all others.
create or replace function leasehold.mirror_prune(of_mirror text, up_to int default 5000)
returns int
language sql stable set search_path = leasehold, pg_temp as $$
    select 0
$$;
