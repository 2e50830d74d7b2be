-- Limit rules: what holds for a limit key, and what a worker's code declares.

-- Returns the rule of a key: the one for this very key, else the one for the text before its first ':'. Of
-- each the operator's comes before the declared one. Null: the key has no limit.
create or replace function leasehold_internal.limit_rule_of(queue text, limit_key text)
returns leasehold_internal.limit_rule
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    rule leasehold_internal.limit_rule;
begin
    select r.* into rule from leasehold_internal.limit_rule r
     where r.queue = limit_rule_of.queue
       and r.key = any (array[limit_rule_of.limit_key, split_part(limit_rule_of.limit_key, ':', 1)])
     order by r.key = limit_rule_of.limit_key desc, r.by_operator desc limit 1;
    return rule;
end $$;

-- Returns whether a key may start a job now.
create or replace function leasehold_internal.has_room(queue text, limit_key text)
returns boolean
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_indexscan = on set enable_seqscan = off
set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
    most int;
begin
    if exists (select from leasehold_internal.limit_key k
                where k.queue = has_room.queue and k.key = has_room.limit_key and k.paused_at is not null) then
        return false;
    end if;
    most := (leasehold_internal.limit_rule_of(queue, limit_key)).max_running;
    return most is null or most > (select count(*) from (
        select from leasehold.job j
         where j.queue = has_room.queue and j.limit_key = has_room.limit_key and j.permit limit most) r);
end $$;

-- Returns whether a job keeps its permit while it waits for another attempt.
create or replace function leasehold_internal.keeps_permit(queue text, limit_key text)
returns boolean
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select false
$$;

-- Returns whether a job of this key waits and is due, whatever its name. Hops from one priority to the
-- next: jobs that are due later are not read.
create or replace function leasehold_internal.key_has_due(queue text, limit_key text)
returns boolean
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_indexscan = on set enable_nestloop = on
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set enable_sort = off set enable_material = off set jit = off
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_variable
begin
    return exists (
        with recursive hop (deferred, priority) as (
            (select j.deferred, j.priority from leasehold.job j
              where j.queue = key_has_due.queue and j.limit_key = key_has_due.limit_key and not j.permit
              order by j.queue, j.limit_key, j.permit, j.deferred, j.priority limit 1)
            union all
            select n.deferred, n.priority
              from hop h cross join lateral (
                select j.deferred, j.priority from leasehold.job j
                 where j.queue = key_has_due.queue and j.limit_key = key_has_due.limit_key and not j.permit
                   and (j.deferred, j.priority) > (h.deferred, h.priority)
                 order by j.queue, j.limit_key, j.permit, j.deferred, j.priority limit 1) n
        )
        select from hop h cross join lateral (
            select from leasehold.job j
             where j.queue = key_has_due.queue and j.limit_key = key_has_due.limit_key and not j.permit
               and j.deferred = h.deferred and j.priority = h.priority
               and j.scheduled_at <= statement_timestamp() and j.expires_at > statement_timestamp()
               and not j.held
             order by j.queue, j.limit_key, j.permit, j.deferred, j.priority, j.scheduled_at, +j.id
             limit 1) d
        limit 1);
end $$;

-- Stores the rules that a worker's code declares: for each of `keys` in `queues` (both in the same order)
-- its limit and weight. A rule that an operator set stays in force.
create or replace function leasehold_internal.declare_limits(
    worker text, queues text[], keys text[], max_running int[], weights int[]
)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
declare
    changed record;
begin
    for changed in
        insert into leasehold_internal.limit_rule as r (queue, key, by_operator, max_running, weight, set_by)
        select u.queue, u.key, false, u.most, coalesce(u.weight, 1), left(worker, 200)
          from unnest(queues, keys, max_running, weights) as u (queue, key, most, weight)
         order by 1, 2
        on conflict on constraint limit_rule_pkey do update
            set max_running = excluded.max_running, weight = excluded.weight, set_by = excluded.set_by,
                set_at = excluded.set_at
            -- The same declaration writes nothing.
            where (r.max_running, r.weight) is distinct from (excluded.max_running, excluded.weight)
        returning r.queue, r.key
    loop
        perform leasehold_internal.signal_rule(changed.queue, changed.key);
    end loop;
end $$;
