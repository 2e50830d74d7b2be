-- Limit rules: which one applies to a limit key, and what a worker's code declares.

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
       and r.key = any (array[limit_rule_of.limit_key, nullif(split_part(limit_rule_of.limit_key, ':', 1), '')])
     order by r.key = limit_rule_of.limit_key desc, r.by_operator desc limit 1;
    return rule;
end $$;

-- Returns how many jobs a bucket lets start now: `full_at` is when it is full again. A time far ahead, left by
-- another rate or another clock, counts as an empty bucket.
create or replace function leasehold_internal.tokens(rate int, per interval, burst int, full_at timestamptz, at timestamptz)
returns int
language sql immutable as $$
    select case when full_at is null or full_at <= at then burst
                else greatest(0, floor(burst - extract(epoch from full_at - at) * rate / extract(epoch from per)))::int end
$$;

-- Returns when a bucket is full again after `started` jobs.
create or replace function leasehold_internal.full_again(
    rate int, per interval, burst int, full_at timestamptz, at timestamptz, started int
)
returns timestamptz
language sql immutable as $$
    select greatest(at, least(coalesce(full_at, at), at + per * burst / rate)) + per * started / rate
$$;

-- Returns when a bucket that is full again at `full_at` has its next token.
create or replace function leasehold_internal.next_token(rate int, per interval, burst int, full_at timestamptz)
returns timestamptz
language sql immutable as $$
    select full_at - per * (burst - 1) / rate
$$;

-- Returns whether a dead job stops an ordered key. Null: none does.
create or replace function leasehold_internal.stopped_by(queue text, limit_key text)
returns bigint
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_indexscan = on set enable_seqscan = off
set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
begin
    return (select d.id from leasehold_internal.dead_job d
             where d.queue = stopped_by.queue and d.limit_key = stopped_by.limit_key
             order by d.queue, d.limit_key limit 1);
end $$;

-- Returns whether a key may start a job now, as far as its own rule says.
create or replace function leasehold_internal.has_room(queue text, limit_key text)
returns boolean
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_indexscan = on set enable_seqscan = off
set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
    rule leasehold_internal.limit_rule;
    most int;
    held_back leasehold_internal.limit_key;
begin
    select k.* into held_back from leasehold_internal.limit_key k
     where k.queue = has_room.queue and k.key = has_room.limit_key;
    if held_back.paused_at is not null then
        return false;
    end if;
    rule := leasehold_internal.limit_rule_of(queue, limit_key);
    most := case when rule.ordered then 1 else rule.max_running end;
    if most is not null and most <= (select count(*) from (
            select from leasehold.job j
             where j.queue = has_room.queue and j.limit_key = has_room.limit_key and j.permit and j.held
             limit most) r) then
        return false;
    end if;
    if rule.rate is not null and 0 = leasehold_internal.tokens(
            rule.rate, rule.per, rule.burst, held_back.full_at, statement_timestamp()) then
        return false;
    end if;
    return rule.key is null or not rule.ordered or rule.on_death = 'continue'
           or leasehold_internal.stopped_by(queue, limit_key) is null;
end $$;

-- Returns whether a job keeps its permit while it waits for another attempt: so it stays the first job of an
-- ordered key.
create or replace function leasehold_internal.keeps_permit(queue text, limit_key text)
returns boolean
language plpgsql stable security definer set search_path = leasehold, pg_temp as $$
declare
    rule leasehold_internal.limit_rule := leasehold_internal.limit_rule_of(queue, limit_key);
begin
    return coalesce(rule.ordered and rule.on_failure = 'block', false);
end $$;

-- Returns whether the death of a job stops its limit key.
create or replace function leasehold_internal.stops_on_death(queue text, limit_key text)
returns boolean
language plpgsql stable security definer set search_path = leasehold, pg_temp as $$
declare
    rule leasehold_internal.limit_rule := leasehold_internal.limit_rule_of(queue, limit_key);
begin
    return coalesce(rule.ordered and rule.on_death = 'stop', false);
end $$;

-- Returns the first job of an ordered key, locked: the one that has the permit, else the first one that is due.
-- No row if that job is running, not due, locked, not to be claimed by this caller, or if a dead job stops
-- the key. The next one must not start in its place.
create or replace function leasehold_internal.ordered_head(
    queue text, limit_key text, stops boolean, names text[], most_lost int, only_job bigint,
    out row_at tid, out lost boolean
)
returns setof record
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_tidscan = on set enable_nestloop = on
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set enable_sort = off set enable_material = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    head tid;
begin
    if stops and leasehold_internal.stopped_by(queue, limit_key) is not null then
        return;
    end if;
    select j.ctid into head from leasehold.job j
     where j.queue = ordered_head.queue and j.limit_key = ordered_head.limit_key and j.permit
     order by j.queue, j.limit_key, j.permit, j.deferred, j.priority, j.scheduled_at, +j.id limit 1;
    if head is null then
        with recursive hop (deferred, priority) as (
            (select j.deferred, j.priority from leasehold.job j
              where j.queue = ordered_head.queue and j.limit_key = ordered_head.limit_key and not j.permit
              order by j.queue, j.limit_key, j.permit, j.deferred, j.priority limit 1)
            union all
            select n.deferred, n.priority
              from hop h cross join lateral (
                select j.deferred, j.priority from leasehold.job j
                 where j.queue = ordered_head.queue and j.limit_key = ordered_head.limit_key and not j.permit
                   and (j.deferred, j.priority) > (h.deferred, h.priority)
                 order by j.queue, j.limit_key, j.permit, j.deferred, j.priority limit 1) n
        )
        select d.row_at into head
          from hop h cross join lateral (
            select j.ctid as row_at from leasehold.job j
             where j.queue = ordered_head.queue and j.limit_key = ordered_head.limit_key and not j.permit
               and j.deferred = h.deferred and j.priority = h.priority
               and j.scheduled_at <= statement_timestamp()
               -- Its expiry will make it dead, and stop the key.
               and (stops or j.expires_at > statement_timestamp())
             order by j.queue, j.limit_key, j.permit, j.deferred, j.priority, j.scheduled_at, +j.id limit 1) d
         limit 1;
    end if;
    return query
    select j.ctid, j.lost_count > 0 from leasehold.job j
     where j.ctid = head and j.queue = ordered_head.queue and j.limit_key = ordered_head.limit_key
       and j.scheduled_at <= statement_timestamp() and j.expires_at > statement_timestamp()
       and not j.held and j.lost_count < most_lost
       and (only_job is null or j.id = only_job)
       and (names is null or j.name in (select u.name from unnest(names) as u (name)))
       for update skip locked;
end $$;

-- Makes one job of those that wait for a debounced key and have not started: the newest one of each name,
-- due when the first one would be at the latest. The others are cancelled. Only for the claimer that has
-- locked the key.
create or replace function leasehold_internal.collapse_key(queue text, limit_key text, debounce_max interval)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    entry record;
    due timestamptz;
begin
    for entry in
        select w.name, (array_agg(w.id order by w.enqueued_at desc, w.id desc)) as ids, min(w.enqueued_at) as first_at
          from (select j.id, j.name, j.enqueued_at from leasehold.job j
                 where j.queue = collapse_key.queue and j.limit_key = collapse_key.limit_key and not j.permit
                   and j.attempts = 0 and not j.held
                 limit 1000 for update skip locked) w
         group by w.name having count(*) > 1
    loop
        perform leasehold_internal.cancel_rows(entry.ids[2:], false, null, 'replaced by job ' || entry.ids[1]);
        update leasehold.job j
           set scheduled_at = least(j.scheduled_at, entry.first_at + debounce_max), enqueued_at = entry.first_at
         where j.id = entry.ids[1] and not j.held
        returning j.scheduled_at into due;
        perform leasehold_internal.signal_key(queue, limit_key, due);
    end loop;
end $$;

-- Returns whether a job of this key waits and is due, whatever its name. Hops from one priority to the
-- next: jobs that are due later are not read. In an ordered key a job with a permit is the only one that counts.
create or replace function leasehold_internal.key_has_due(queue text, limit_key text, ordered boolean default null)
returns boolean
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_indexscan = on set enable_nestloop = on
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set enable_sort = off set enable_material = off set jit = off
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_variable
declare
    first_due timestamptz;
begin
    if coalesce(ordered, leasehold_internal.keeps_permit(queue, limit_key)) then
        select case when j.held then timestamptz 'infinity' else j.scheduled_at end into first_due
          from leasehold.job j
         where j.queue = key_has_due.queue and j.limit_key = key_has_due.limit_key and j.permit
         order by j.queue, j.limit_key, j.permit, j.deferred, j.priority, j.scheduled_at, +j.id limit 1;
        if found then
            return first_due <= statement_timestamp();
        end if;
    end if;
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

-- Raises an error if a rule has a value that is not allowed.
create or replace function leasehold_internal.check_limit(rule leasehold_internal.limit_rule)
returns void
language plpgsql immutable set search_path = leasehold, pg_temp as $$
declare
    wrong text;
    advice text;
begin
    if octet_length(rule.key) > 200 then
        perform leasehold_internal.check_limit_key(rule.key);
    elsif rule.max_running not between 1 and 1000000 then
        wrong := format('max_running is %s; it must be between 1 and 1000000', rule.max_running);
        advice := 'To let none of its jobs start, pause the key; null means no limit.';
    elsif coalesce(rule.weight not between 1 and 100, true) then
        wrong := format('weight is %s; it must be between 1 and 100', coalesce(rule.weight::text, 'null'));
        advice := 'Leave it out for 1.';
    elsif rule.rate not between 1 and 1000000 then
        wrong := format('rate is %s; it must be between 1 and 1000000', rule.rate);
        advice := 'To let none of its jobs start, pause the key; null means no rate.';
    elsif (rule.rate is null) <> (rule.per is null) then
        wrong := format('rate is %s and per is %s; a rate needs both', coalesce(rule.rate::text, 'null'),
                        coalesce(rule.per::text, 'null'));
        advice := 'Such as rate => 100, per => ''1 minute''.';
    elsif rule.per not between interval '1 millisecond' and interval '366 days' then
        wrong := format('per is %s; it must be between 1 millisecond and 366 days', rule.per);
        advice := 'Such as rate => 100, per => ''1 minute''.';
    elsif rule.burst is not null and rule.rate is null then
        wrong := format('burst is %s without a rate', rule.burst);
        advice := 'Give rate and per too.';
    elsif rule.burst not between 1 and 1000000 then
        wrong := format('burst is %s; it must be between 1 and 1000000', rule.burst);
        advice := 'Leave it out for 1.';
    elsif coalesce(rule.on_failure not in ('block', 'pass'), true) then
        wrong := format('on_failure is %s; it must be block or pass', coalesce(rule.on_failure, 'null'));
        advice := 'block: a job that waits for its next attempt blocks those behind it.';
    elsif coalesce(rule.on_death not in ('continue', 'stop'), true) then
        wrong := format('on_death is %s; it must be continue or stop', coalesce(rule.on_death, 'null'));
        advice := 'stop: a dead job stops its key until it is redriven or deleted.';
    elsif not rule.ordered and (rule.on_failure <> 'block' or rule.on_death <> 'continue') then
        wrong := 'on_failure and on_death are for ordered keys';
        advice := 'Set ordered too.';
    elsif rule.ordered and rule.max_running > 1 then
        wrong := format('max_running is %s, but an ordered key runs one job at a time', rule.max_running);
        advice := 'Leave one of them out.';
    elsif rule.max_waiting not between 1 and 1000000 then
        wrong := format('max_waiting is %s; it must be between 1 and 1000000', rule.max_waiting);
        advice := 'Null means any number.';
    elsif rule.debounce not between interval '1 millisecond' and interval '366 days' then
        wrong := format('debounce is %s; it must be between 1 millisecond and 366 days', rule.debounce);
        advice := 'Such as 5 seconds.';
    elsif rule.debounce_max is not null and rule.debounce is null then
        wrong := format('debounce_max is %s without debounce', rule.debounce_max);
        advice := 'Give debounce too.';
    elsif rule.debounce_max not between rule.debounce and interval '366 days' then
        wrong := format('debounce_max is %s; it must be between debounce, which is %s, and 366 days',
                        rule.debounce_max, rule.debounce);
        advice := 'Leave it out for ten times debounce.';
    elsif rule.throttle not between interval '1 millisecond' and interval '366 days' then
        wrong := format('throttle is %s; it must be between 1 millisecond and 366 days', rule.throttle);
        advice := 'Such as 1 minute.';
    elsif rule.debounce is not null and rule.throttle is not null then
        wrong := 'a limit has both debounce and throttle';
        advice := 'Choose one: debounce runs the last enqueue, throttle the first.';
    elsif rule.key = '' and (rule.ordered or rule.weight <> 1 or rule.debounce is not null
                             or rule.throttle is not null or rule.by_name) then
        wrong := 'the limit of a whole queue has max_running, rate and max_waiting only';
        advice := 'Name a limit key, such as tenant, for the others.';
    end if;
    if wrong is not null then
        raise exception '%', wrong using errcode = 'LH002', constraint = 'LH002', hint = advice;
    end if;
end $$;

-- Fills what a rule leaves out.
create or replace function leasehold_internal.complete_rule(rule leasehold_internal.limit_rule)
returns leasehold_internal.limit_rule
language plpgsql immutable set search_path = leasehold, pg_temp as $$
begin
    if rule.rate is not null then
        rule.burst := coalesce(rule.burst, 1);
    end if;
    if rule.debounce is not null then
        rule.debounce_max := coalesce(rule.debounce_max, least(rule.debounce * 10, interval '366 days'));
    end if;
    return rule;
end $$;

-- Records at a queue whether it has a rule of its own or of a name.
create or replace function leasehold_internal.note_limits(queue text)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_variable
declare
    limited boolean;
begin
    perform leasehold_internal.queue_settings(queue);
    -- The lock first: a later statement sees what others have changed before.
    perform from leasehold_internal.queue q where q.name = queue for no key update;
    limited := exists (select from leasehold_internal.limit_rule r
                        where r.queue = note_limits.queue and (r.key = '' or r.by_name));
    update leasehold_internal.queue q set is_limited = limited where q.name = queue and q.is_limited <> limited;
end $$;

-- Gives waiting jobs of a queue without a limit key the one of their name, up to `up_to` jobs.
-- A plain INSERT stores such jobs. No claim takes them before. Returns how many.
create or replace function leasehold_internal.key_named_jobs(queue text, up_to int)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_variable
declare
    of_names text[] := leasehold_internal.limited_names(queue);
    changed int := 0;
    each text;
begin
    if of_names is null then
        return 0;
    end if;
    for each in
        with keyed as (
            update leasehold.job j set limit_key = j.name
             where j.ctid = any (array(
                    select w.ctid from leasehold.job w
                     where w.queue = key_named_jobs.queue and w.limit_key is null and w.name = any (of_names)
                       and not w.held
                     limit up_to for update skip locked))
               and j.limit_key is null and not j.held
            returning j.name
        )
        select distinct k.name from keyed k
    loop
        changed := changed + 1;
        perform leasehold_internal.signal_key(queue, each, statement_timestamp());
    end loop;
    return changed;
end $$;

-- Returns the names of a queue that have a rule. Null: none has.
create or replace function leasehold_internal.limited_names(queue text)
returns text[]
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select array_agg(distinct r.key) from leasehold_internal.limit_rule r
     where r.queue = limited_names.queue and r.by_name
$$;

-- What follows a change of a rule.
create or replace function leasehold_internal.rule_changed(queue text, key text)
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_variable
begin
    perform leasehold_internal.note_limits(queue);
    if key <> '' then
        perform leasehold_internal.key_named_jobs(queue, 10000);
        perform leasehold_internal.clear_permits(queue, k.key) from (
            select l.key from leasehold_internal.limit_key l
             where l.queue = rule_changed.queue
               and (l.key = rule_changed.key or (l.key >= rule_changed.key || ':' and l.key < rule_changed.key || ';'))
             limit 10000) k;
        perform leasehold_internal.signal_rule(queue, key);
    end if;
    perform leasehold_internal.wake(queue);
end $$;

-- Stores the rules that a worker's code declares, an array of objects with the columns of a rule. A rule
-- that an operator set stays in force.
create or replace function leasehold_internal.declare_limits(worker text, rules jsonb)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
declare
    rule leasehold_internal.limit_rule;
begin
    for rule in
        select d.* from jsonb_array_elements(rules) as r (rule)
         cross join lateral jsonb_populate_record(null::leasehold_internal.limit_rule, jsonb_build_object(
            'weight', 1, 'ordered', false, 'on_failure', 'block', 'on_death', 'continue', 'by_name', false)
            || jsonb_strip_nulls(r.rule) || jsonb_build_object(
            'by_operator', false, 'set_by', left(worker, 200), 'set_at', statement_timestamp())) d
         order by d.queue, d.key
    loop
        perform leasehold_internal.check_limit(rule);
        rule := leasehold_internal.complete_rule(rule);
        if leasehold_internal.store_rule(rule) then
            perform leasehold_internal.rule_changed(rule.queue, rule.key);
        end if;
    end loop;
end $$;

-- Stores a rule as a whole. Returns whether it differs from what was stored: the same one writes nothing.
create or replace function leasehold_internal.store_rule(rule leasehold_internal.limit_rule)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    insert into leasehold_internal.limit_rule as r select rule.*
    on conflict on constraint limit_rule_pkey do update
        set (max_running, weight, rate, per, burst, ordered, on_failure, on_death, max_waiting, debounce,
             debounce_max, throttle, by_name, set_by, set_at)
            = (excluded.max_running, excluded.weight, excluded.rate, excluded.per, excluded.burst,
               excluded.ordered, excluded.on_failure, excluded.on_death, excluded.max_waiting, excluded.debounce,
               excluded.debounce_max, excluded.throttle, excluded.by_name, excluded.set_by, excluded.set_at)
        where (r.max_running, r.weight, r.rate, r.per, r.burst, r.ordered, r.on_failure, r.on_death, r.max_waiting,
               r.debounce, r.debounce_max, r.throttle, r.by_name)
              is distinct from
              (excluded.max_running, excluded.weight, excluded.rate, excluded.per, excluded.burst,
               excluded.ordered, excluded.on_failure, excluded.on_death, excluded.max_waiting, excluded.debounce,
               excluded.debounce_max, excluded.throttle, excluded.by_name);
    return found;
end $$;

-- Returns how many of `up_to` jobs a queue with a limit of its own may start now, and locks its row
-- until the caller's transaction ends. Waits at most 100 ms for another claimer's lock. It counts in a
-- statement after the lock, as `claim_limited` does; `queue_started` writes the row.
create or replace function leasehold_internal.queue_room(queue text, up_to int)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '100ms' set enable_indexscan = on
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_variable
declare
    rule leasehold_internal.limit_rule;
    full_at timestamptz;
begin
    select r.* into rule from leasehold_internal.limit_rule r
     where r.queue = queue_room.queue and r.key = '' order by r.by_operator desc limit 1;
    if not found or (rule.max_running is null and rule.rate is null) then
        return up_to;
    end if;
    begin
        if not exists (select from leasehold_internal.limit_key k where k.queue = queue_room.queue and k.key = '') then
            insert into leasehold_internal.limit_key (queue, key) values (queue, '') on conflict do nothing;
        end if;
        select k.full_at into full_at from leasehold_internal.limit_key k
         where k.queue = queue_room.queue and k.key = '' for update;
    exception when lock_not_available then
        return 0;
    end;
    if rule.max_running is not null then
        up_to := least(up_to, rule.max_running - leasehold_internal.queue_running(queue, rule.max_running));
    end if;
    if rule.rate is not null then
        up_to := least(up_to, leasehold_internal.tokens(rule.rate, rule.per, rule.burst, full_at, clock_timestamp()));
    end if;
    return greatest(up_to, 0);
end $$;

-- Returns how many jobs of a queue run, at most `up_to`, by the leases that have not ended.
create or replace function leasehold_internal.queue_running(queue text, up_to int)
returns int
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_indexscan = on set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan as $$
begin
    return (select count(*) from (
        select from leasehold_internal.lease l
         cross join lateral (
            select from leasehold.job j
             where j.id = any (l.job_ids) and j.lease_generation = l.lease_generation and j.held
            offset 0) j
         where l.queue = queue_running.queue and l.ended_at is null
         limit up_to) r);
end $$;

-- Records that a queue with a limit of its own has started jobs.
create or replace function leasehold_internal.queue_started(queue text, jobs int)
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_variable
declare
    rule leasehold_internal.limit_rule;
begin
    if jobs = 0 then
        return;
    end if;
    select r.* into rule from leasehold_internal.limit_rule r
     where r.queue = queue_started.queue and r.key = '' order by r.by_operator desc limit 1;
    -- Without a rate too: a claimer with an older snapshot must get an error.
    update leasehold_internal.limit_key k
       set full_at = n.full_at,
           -- An idle worker sleeps until the next token.
           look_at = leasehold_internal.next_token(rule.rate, rule.per, rule.burst, n.full_at)
      from (select case when rule.rate is not null then leasehold_internal.full_again(
                rule.rate, rule.per, rule.burst, o.full_at, clock_timestamp(), jobs) end as full_at
              from leasehold_internal.limit_key o where o.queue = queue_started.queue and o.key = '') n
     where k.queue = queue_started.queue and k.key = '';
end $$;
