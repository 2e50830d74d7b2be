do $$ begin
    create type leasehold.claimed_job as (
        id bigint, name text, kwargs jsonb, priority int, scheduled_at timestamptz,
        attempts int, max_attempts int, lost_count smallint, lease_generation bigint,
        tag text, enqueued_at timestamptz, idempotency_key text, trace_context text,
        run_limit interval, lease interval, max_lost int, deferred boolean
    );
exception when duplicate_object then null;
end $$;

-- Returns the length of a lease, from a second to a week. By dates: an interval of months and days with
-- different signs has no length of its own.
create or replace function leasehold_internal.check_lease_length(lease interval)
returns interval
language plpgsql stable set search_path = leasehold, pg_temp as $$
declare
    outside boolean;
begin
    if lease < interval '0' or lease > interval '7 days' then
        -- Not added to the time: the sum may lie outside of the calendar.
        outside := true;
    else
        outside := statement_timestamp() + lease not between statement_timestamp() + interval '1 second'
                                                         and statement_timestamp() + interval '7 days';
    end if;
    if outside then
        raise exception 'lease is %; it must be between 1 second and 7 days', lease
            using errcode = 'LH002', constraint = 'LH002', hint = 'Leave it out for the lease of the queue.';
    end if;
    return lease;
end $$;

-- The columns of `claimed_job`, for `claim_alone` and `recover_claim`; `claim_next` repeats the list, and a test
-- compares the two. `lease`: its length.
create or replace function leasehold_internal.claimed_columns(
    job leasehold.job, settings leasehold_internal.queue, lease interval
)
returns setof leasehold.claimed_job
language sql stable as $$
    select job.id, job.name, job.kwargs, job.priority, job.scheduled_at, job.attempts,
           coalesce(job.max_attempts, settings.max_attempts), job.lost_count, job.lease_generation,
           job.tag, job.enqueued_at, job.idempotency_key, job.trace_context, settings.run_limit, lease,
           settings.max_lost, job.deferred
$$;

-- Claims up to `up_to` jobs of one queue in the order in which they run: those that are not deferred first,
-- then by priority, due time, id.
--
-- `names` null: every name. `after_at` and `after_id` are cursors: where to read on in the priorities
-- `(at_deferred, at_priority)`, which ascend and lie between `(first_deferred, first_priority)` and
-- `(last_deferred, last_priority)`. With `gaps`, the priorities between them are found and read from their
-- start; without, they are left out.
-- Jobs that lost their worker `most_lost` times or more are left out; null: those on their last chance.
--
-- One statement does it. The recursive part hops from one priority to the next in the index, and the
-- outer LIMIT pulls rows one by one: nothing is hopped to, read or locked beyond what is taken. That
-- is how the executor works, not what SQL promises; tests look at the plan and at the order.
-- Rows that another claimer has locked are skipped, and the write checks again that they are free. It
-- goes by row address: a join on ids under a LIMIT tempts the planner into reading the whole table.
--
-- The generation is drawn after the rows are locked: drawn before, a claim that was held up could
-- give a job a lower one than a claim that overtook it, and a system that compares generations would
-- trust the former holder. Jobs that never lost a worker share one lease, the others a second one: a
-- fresh job is never under one lease with a job that may have killed its worker.
create or replace function leasehold_internal.claim_next(
    worker text, queue text, up_to int, lease interval, claim_id uuid, names text[],
    most_lost int, first_deferred boolean, first_priority int, last_deferred boolean, last_priority int,
    gaps boolean, at_deferred boolean[], at_priority int[], after_at timestamptz[], after_id bigint[]
)
returns setof leasehold.claimed_job
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_tidscan = on set enable_nestloop = on
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set enable_sort = off set enable_material = off set jit = off
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_variable
declare
    settings leasehold_internal.queue := leasehold_internal.queue_settings(queue);
    length interval := coalesce(leasehold_internal.check_lease_length(lease), settings.lease);
    chances int := coalesce(most_lost, greatest(settings.max_lost - 1, 1));
begin
    if settings.paused_at is not null or coalesce(up_to, 0) <= 0 then
        return;
    end if;
    return query
    with recursive hop (deferred, priority, next, known) as (
        select first_deferred, null::bigint, 1, 0
        union all
        -- Each hop goes to the next priority without a cursor, else to the next cursor, else to the deferred jobs.
        select h.deferred or (gap.priority is null and not cursor.here),
               case when gap.priority is not null then gap.priority
                    when cursor.here then at_priority[h.next] end,
               case when gap.priority is null and cursor.here then h.next + 1 else h.next end,
               case when gap.priority is null and cursor.here then h.next else 0 end
          from hop h
         cross join lateral (select coalesce(at_deferred[h.next] = h.deferred, false) as here) cursor
          left join lateral (
            -- Bounds on the priority alone: an index scan does not stop where the second column of a row
            -- comparison fails.
            select j.priority from leasehold.job j
             where j.queue = claim_next.queue and j.deferred = h.deferred
               and j.priority > coalesce(h.priority, case when h.deferred = first_deferred
                                                          then first_priority::bigint - 1
                                                          else -2147483649 end)
               and j.priority < case when not gaps then -2147483649
                                     when cursor.here then at_priority[h.next]::bigint
                                     when h.deferred = last_deferred then last_priority::bigint + 1
                                     else 2147483648 end
             order by j.queue, j.deferred, j.priority, j.scheduled_at
             limit 1) gap on true
         where gap.priority is not null or cursor.here or (last_deferred and not h.deferred)
    ), picked as materialized (
        select due.row_at, due.lost
          from hop h
         cross join lateral (
            select j.ctid as row_at, j.lost_count > 0 as lost
              from leasehold.job j
             where j.queue = claim_next.queue and j.deferred = h.deferred and j.priority = h.priority
               and (j.scheduled_at, +j.id)
                   > (coalesce(after_at[h.known], '-infinity'), coalesce(after_id[h.known], 0))
               and j.scheduled_at <= statement_timestamp()
               and j.expires_at > statement_timestamp()
               and not j.held and j.lost_count < chances
               -- The OR keeps this a hashed subplan; `= any (names)` compares with each name in turn.
               and (names is null or j.name in (select u.name from unnest(names) as u (name)))
             order by j.queue, j.deferred, j.priority, j.scheduled_at, +j.id
               for update skip locked) due
         limit least(up_to, 10000)
    ), fresh as materialized (
        select leasehold_internal.next_generation() as generation
          from (select count(*) as jobs from picked p where not p.lost) n where n.jobs > 0
    ), lost as materialized (
        select leasehold_internal.next_generation() as generation
          from (select count(*) as jobs from picked p where p.lost) n where n.jobs > 0
    ), claimed as (
        update leasehold.job j
           set held = true, attempts = j.attempts + 1,
               lease_generation = case when j.lost_count > 0 then (select l.generation from lost l)
                                       else (select f.generation from fresh f) end
         where j.ctid = any (array(select p.row_at from picked p)) and not j.held
        returning j.*
    ), leased as (
        insert into leasehold_internal.lease
            (lease_generation, lease_expires_at, lease, keep_history, queue, claimed_by, claim_id, job_ids)
        select c.lease_generation, statement_timestamp() + length, length, settings.keep_history,
               claim_next.queue, worker, claim_next.claim_id, array_agg(c.id)
          from claimed c group by c.lease_generation
    )
    -- The list of `claimed_columns`: each row would first become one value there, which this claim avoids.
    select c.id, c.name, c.kwargs, c.priority, c.scheduled_at, c.attempts,
           coalesce(c.max_attempts, settings.max_attempts), c.lost_count, c.lease_generation,
           c.tag, c.enqueued_at, c.idempotency_key, c.trace_context, settings.run_limit, length,
           settings.max_lost, c.deferred
      from claimed c order by c.deferred, c.priority, c.scheduled_at, c.id;
end $$;

-- Claims one job whose worker died, alone under its own lease: one that `least_lost` workers or more
-- died under; null: one on its last chance, which one more loss would bury.
create or replace function leasehold_internal.claim_alone(
    worker text, queue text, lease interval, claim_id uuid, names text[], least_lost int
)
returns setof leasehold.claimed_job
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_tidscan = on set enable_nestloop = on
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set enable_sort = off set enable_material = off set jit = off
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_variable
declare
    settings leasehold_internal.queue := leasehold_internal.queue_settings(queue);
    length interval := coalesce(leasehold_internal.check_lease_length(lease), settings.lease);
    losses int := coalesce(least_lost, settings.max_lost - 1);
begin
    if settings.paused_at is not null then
        return;
    end if;
    return query
    with picked as materialized (
        select j.ctid as row_at
          from leasehold.job j
         where j.queue = claim_alone.queue and j.lost_count > 0 and j.lost_count >= losses
           and (names is null or j.name in (select u.name from unnest(names) as u (name)))
           and j.scheduled_at <= statement_timestamp()
           and j.expires_at > statement_timestamp()
           and not j.held
         order by j.queue, j.priority, j.scheduled_at, +j.id
         limit 1
           for update skip locked
    ), numbered as materialized (
        select p.row_at, leasehold_internal.next_generation() as generation from picked p
    ), claimed as (
        update leasehold.job j
           set held = true, lease_generation = n.generation, attempts = j.attempts + 1
          from numbered n
         where j.ctid = n.row_at and not j.held
        returning j as job, j.id, j.lease_generation
    ), leased as (
        insert into leasehold_internal.lease
            (lease_generation, lease_expires_at, lease, keep_history, queue, claimed_by, claim_id, job_ids)
        select c.lease_generation, statement_timestamp() + length, length, settings.keep_history,
               claim_alone.queue, worker, claim_alone.claim_id, array[c.id]
          from claimed c
    )
    select r.*
      from claimed c cross join lateral leasehold_internal.claimed_columns(c.job, settings, length) r;
end $$;

-- Claims up to `up_to` jobs one by one, each under its own lease, in the order of `claim_next`. For a
-- queue in which a claim was refused: a job that a trigger or a constraint does not let be claimed is
-- left out, with a warning of the server, and does not block the jobs behind it. `first_deferred`: only
-- deferred jobs. Stops after 5 s.
create or replace function leasehold_internal.claim_around(
    worker text, queue text, up_to int, lease interval, claim_id uuid, names text[],
    first_deferred boolean default false
)
returns setof leasehold.claimed_job
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_variable
declare
    settings leasehold_internal.queue := leasehold_internal.queue_settings(queue);
    candidate record;
    taken int := 0;
    now_taken int;
begin
    if settings.paused_at is not null then
        return;
    end if;
    for candidate in
        select j.id, j.deferred, j.priority, j.scheduled_at
          from leasehold.job j
         where j.queue = claim_around.queue and j.deferred >= first_deferred
           and j.scheduled_at <= statement_timestamp()
           and j.expires_at > statement_timestamp()
           and not j.held and j.lost_count < greatest(settings.max_lost - 1, 1)
           and (names is null or j.name in (select u.name from unnest(names) as u (name)))
         order by j.queue, j.deferred, j.priority, j.scheduled_at, +j.id
    loop
        exit when taken >= up_to or clock_timestamp() > statement_timestamp() + interval '5 seconds';
        begin
            return query
            select * from leasehold_internal.claim_next(
                worker, queue, 1, lease, claim_id, names, null, candidate.deferred, candidate.priority,
                candidate.deferred, candidate.priority, false, array[candidate.deferred],
                array[candidate.priority], array[candidate.scheduled_at], array[candidate.id - 1]);
            get diagnostics now_taken = row_count;
            taken := taken + now_taken;
        exception when others then
            raise warning 'job % of queue % could not be claimed: %', candidate.id, queue, sqlerrm;
        end;
    end loop;
end $$;

-- Returns the priority of the first due job that lost its worker `least_lost` times or more;
-- `least_lost` null: that is on its last chance. Null: there is none. A worker calls it before it stops
-- claiming and waits for its running jobs to end: nothing else must run in the process that claims such
-- a job.
create or replace function leasehold_internal.lost_priority(queue text, names text[], least_lost int default null)
returns int
language plpgsql stable security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_variable
declare
    settings leasehold_internal.queue;
    losses int;
begin
    select * into settings from leasehold_internal.queue q where q.name = queue;
    if settings.paused_at is not null then
        return null;
    end if;
    -- A queue without a row has the defaults: three losses bury.
    losses := coalesce(least_lost, settings.max_lost - 1, 2);
    return (
        select j.priority from leasehold.job j
         where j.queue = lost_priority.queue and j.lost_count > 0 and j.lost_count >= losses
           and (names is null or j.name in (select u.name from unnest(names) as u (name)))
           and j.scheduled_at <= statement_timestamp()
           and j.expires_at > statement_timestamp()
           and not j.held
         order by j.queue, j.priority, j.scheduled_at, +j.id
         limit 1);
end $$;

-- Returns whether a queue has deferred jobs, due or not. A worker keeps a share of its slots for them.
create or replace function leasehold_internal.has_deferred(queue text)
returns boolean
language plpgsql stable security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_variable
begin
    return exists (select from leasehold.job j
                    where j.queue = has_deferred.queue and j.deferred
                    order by j.queue, j.deferred, j.priority limit 1);
end $$;

-- Claims jobs for consumers in any language: reclaims expired leases first, then claims from the start
-- of the order. `names` null: every name. One call returns one lease: a job whose worker died comes
-- alone, after every more urgent job and before the others of its priority.
create or replace function leasehold.claim(
    worker text,
    queue text default 'default',
    claim_size int default 25,
    lease interval default null,
    names text[] default null,
    claim_id uuid default null
)
returns setof leasehold.claimed_job
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_variable
declare
    lost_at int;
begin
    if coalesce(worker, '') = '' or octet_length(worker) > 300 then
        raise exception 'worker is %; it must have 1 to 300 bytes', coalesce(quote_literal(left(worker, 80)), 'null')
            using errcode = 'LH002', constraint = 'LH002', hint = 'Pass a name that is unique to this process, such as host and pid.';
    end if;
    if queue is null then
        perform leasehold_internal.check_queue_name(queue);
    end if;
    if claim_size < 0 then
        raise exception 'claim_size is %; it must be at least 0', claim_size
            using errcode = 'LH002', constraint = 'LH002', hint = 'Leave it out for 25.';
    end if;
    if claim_size = 0 then
        return;
    end if;
    -- The most jobs that one claim takes, as the queue says: one lost worker loses them all.
    claim_size := least(coalesce(claim_size, 2147483647), (leasehold_internal.queue_settings(queue)).claim_size);
    perform leasehold_internal.reclaim_leases(100);
    begin
        lost_at := leasehold_internal.lost_priority(queue, names, 1);
        if lost_at is not null then
            if lost_at > -2147483648 then
                return query select * from leasehold_internal.claim_next(
                    worker, queue, claim_size, lease, claim_id, names, 1, false, -2147483648, false,
                    lost_at - 1, true, '{}', '{}', '{}', '{}');
                if found then
                    return;
                end if;
            end if;
            return query select * from leasehold_internal.claim_alone(worker, queue, lease, claim_id, names, 1);
            if found then
                return;
            end if;
        end if;
        return query select * from leasehold_internal.claim_next(
            worker, queue, claim_size, lease, claim_id, names, 1, false, -2147483648, true, 2147483647, true,
            '{}', '{}', '{}', '{}');
    exception when others then
        -- The caller gets errors about bad arguments, conflicts and failures of the server. What is left is
        -- a job that a trigger or a constraint refuses: it must not block the jobs behind it.
        if sqlstate ~ '^(LH|08|25|40|42|53|54|55|57|58|XX)' then
            raise;
        end if;
        return query select * from leasehold_internal.claim_around(worker, queue, least(claim_size, 1), lease, claim_id, names);
    end;
end $$;

-- Returns the jobs of a claim whose reply was lost, if it took place: those of each lease together. A caller that
-- claims again instead leaves them until their lease runs out.
create or replace function leasehold.recover_claim(worker text, claim_id uuid)
returns setof leasehold.claimed_job
language sql stable security definer
set search_path = leasehold, pg_temp
set enable_nestloop = on set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off as $$
    select r.*
      from leasehold_internal.lease l
      join leasehold_internal.queue q on q.name = l.queue
     -- `offset 0` keeps this a look-up per lease.
     cross join lateral (
        select mine as job, mine.deferred, mine.priority, mine.scheduled_at, mine.id from leasehold.job mine
         where mine.id = any (l.job_ids) and mine.held and mine.lease_generation = l.lease_generation
        offset 0) j
     cross join lateral leasehold_internal.claimed_columns(j.job, q, l.lease) r
     where l.claimed_by = worker and l.claim_id = recover_claim.claim_id and l.ended_at is null
     order by l.lease_generation, j.deferred, j.priority, j.scheduled_at, j.id
$$;
