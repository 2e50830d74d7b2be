-- Actions of operators on limits. Each one records its actor.

-- Sets the limit of a key, or of all keys with this text before their first ':', as a whole. `key` null: of the
-- whole queue. `by_name`: the key is a name of jobs, and those without a limit key get it.
-- It comes before a rule that a worker's code declares. Running jobs beyond a lower limit continue.
create or replace function leasehold.set_limit(
    queue text, key text, actor text, max_running int default null, weight int default 1, why text default null,
    rate int default null, per interval default null, burst int default null,
    ordered boolean default false, on_failure text default 'block', on_death text default 'continue',
    max_waiting int default null, debounce interval default null, debounce_max interval default null,
    throttle interval default null, by_name boolean default false
)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
declare
    rule leasehold_internal.limit_rule;
begin
    if coalesce(queue = '' or octet_length(queue) > 64, true) then
        raise exception 'queue name % is not allowed', coalesce(quote_literal(queue), 'null')
            using errcode = 'LH001', constraint = 'LH001', hint = 'A queue name has 1 to 64 bytes.';
    end if;
    perform leasehold_internal.check_limit_key(key);
    rule.queue := queue;
    rule.key := coalesce(key, '');
    rule.by_operator := true;
    rule.max_running := max_running;
    rule.weight := weight;
    rule.rate := rate;
    rule.per := per;
    rule.burst := burst;
    rule.ordered := coalesce(ordered, false);
    rule.on_failure := on_failure;
    rule.on_death := on_death;
    rule.max_waiting := max_waiting;
    rule.debounce := debounce;
    rule.debounce_max := debounce_max;
    rule.throttle := throttle;
    rule.by_name := coalesce(by_name, false);
    rule.set_by := actor;
    rule.set_at := statement_timestamp();
    perform leasehold_internal.check_limit(rule);
    perform leasehold_internal.store_rule(leasehold_internal.complete_rule(rule));
    perform leasehold_internal.rule_changed(queue, rule.key);
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'set', leasehold_internal.limit_subject(queue, rule.key), concat_ws(', ',
        'max_running ' || coalesce(max_running::text, 'none'), 'weight ' || weight,
        'rate ' || rate || ' per ' || per || coalesce(' burst ' || burst, ''),
        case when rule.ordered then 'ordered, on_failure ' || on_failure || ', on_death ' || on_death end,
        'max_waiting ' || max_waiting, 'debounce ' || debounce || coalesce(' up to ' || debounce_max, ''),
        'throttle ' || throttle, case when rule.by_name then 'of a name' end, why));
end $$;

-- Returns the name of a limit in the audit log.
create or replace function leasehold_internal.limit_subject(queue text, key text)
returns text
language sql immutable as $$
    select 'limit ' || queue || case when key = '' then '' else '/' || key end
$$;

-- Removes the limit that an operator set: the declared one applies again, if there is one. Returns false if
-- no operator had set one.
create or replace function leasehold.remove_limit(queue text, key text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
begin
    key := coalesce(key, '');
    delete from leasehold_internal.limit_rule r where r.queue = queue and r.key = key and r.by_operator;
    if not found then
        return false;
    end if;
    perform leasehold_internal.rule_changed(queue, key);
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'remove', leasehold_internal.limit_subject(queue, key), why);
    return true;
end $$;

-- Removes a limit that workers declared and no longer do. A worker that still declares it stores it again
-- when it starts. Returns false if there is none.
create or replace function leasehold.retire_limit(queue text, key text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
begin
    key := coalesce(key, '');
    delete from leasehold_internal.limit_rule r where r.queue = queue and r.key = key and not r.by_operator;
    if not found then
        return false;
    end if;
    perform leasehold_internal.rule_changed(queue, key);
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'retire', leasehold_internal.limit_subject(queue, key), why);
    return true;
end $$;

-- Pauses one limit key: its jobs wait, running ones continue. Returns false if it was paused already.
create or replace function leasehold.pause_limit(queue text, key text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
begin
    perform leasehold_internal.check_limit_key(coalesce(key, ''));
    -- Claimers try this lock before they create the row, and do not wait for it: see `may_create_key`.
    perform pg_advisory_xact_lock(7307, hashtext(queue || '/' || key));
    insert into leasehold_internal.limit_key as k (queue, key, paused_at, paused_by, paused_why)
    values (queue, key, statement_timestamp(), actor, why)
    on conflict on constraint limit_key_pkey do update
        set paused_at = excluded.paused_at, paused_by = excluded.paused_by, paused_why = excluded.paused_why
        where k.paused_at is null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'pause', 'limit key ' || queue || '/' || key, why);
    return true;
end $$;

-- Resumes a limit key. Returns false if it was not paused.
create or replace function leasehold.resume_limit(queue text, key text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
begin
    update leasehold_internal.limit_key k set paused_at = null, paused_by = null, paused_why = null
     where k.queue = queue and k.key = key and k.paused_at is not null;
    if not found then
        return false;
    end if;
    perform leasehold_internal.signal_key(queue, key, statement_timestamp());
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'resume', 'limit key ' || queue || '/' || key, why);
    return true;
end $$;

-- Returns why a queue with a limit of its own starts no job now. Null: it does.
create or replace function leasehold_internal.queue_held_back(queue text)
returns text
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_variable
declare
    rule leasehold_internal.limit_rule;
    bucket timestamptz;
    running int;
begin
    select r.* into rule from leasehold_internal.limit_rule r
     where r.queue = queue_held_back.queue and r.key = '' order by r.by_operator desc limit 1;
    if rule.max_running is not null then
        running := leasehold_internal.queue_running(queue, 10000);
        if running >= rule.max_running then
            return format('it waits for the limit of queue %s, %s of %s running', queue, running, rule.max_running);
        end if;
    end if;
    if rule.rate is not null then
        bucket := (select k.full_at from leasehold_internal.limit_key k where k.queue = queue_held_back.queue and k.key = '');
        if leasehold_internal.tokens(rule.rate, rule.per, rule.burst, bucket, statement_timestamp()) = 0 then
            return format('it waits for the rate of queue %s, %s per %s, until %s', queue, rule.rate, rule.per,
                          leasehold_internal.next_token(rule.rate, rule.per, rule.burst, bucket));
        end if;
    end if;
    return null;
end $$;

-- Returns why a job does not run, in one sentence. Null: no job with this id waits or runs. Counts at most
-- 10,000 jobs before it.
create or replace function leasehold.why_waiting(job_id bigint)
returns text
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_indexscan = on set enable_seqscan = off
set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
    mine leasehold.job;
    settings leasehold_internal.queue;
    held_back leasehold_internal.limit_key;
    rule leasehold_internal.limit_rule;
    first leasehold.job;
    most int;
    running int;
    before int;
    by_queue text;
    stopping bigint;
begin
    select j.* into mine from leasehold.job j where j.id = job_id;
    if not found then
        return null;
    elsif mine.held then
        return 'it is running';
    elsif mine.expires_at <= statement_timestamp() then
        return 'it expired at ' || mine.expires_at || ' and is about to be buried';
    end if;
    select q.* into settings from leasehold_internal.queue q where q.name = mine.queue;
    if settings.paused_at is not null then
        return concat_ws(': ', 'its queue ' || mine.queue || ' is paused by ' || settings.paused_by, settings.paused_why);
    elsif mine.scheduled_at > statement_timestamp() then
        rule := leasehold_internal.limit_rule_of(mine.queue, mine.limit_key);
        return case when mine.attempts > 0 then 'it waits for its next attempt, due at '
                    when rule.debounce is not null then 'limit ' || mine.limit_key || ' collects enqueues until '
                    else 'it is due at ' end
               || mine.scheduled_at;
    end if;
    if settings.is_limited then
        by_queue := leasehold_internal.queue_held_back(mine.queue);
    end if;
    if mine.limit_key is null then
        return case when mine.name = any (leasehold_internal.limited_names(mine.queue))
                    then format('it waits until it gets the limit key %s of its name', mine.name)
                    else coalesce(by_queue, 'it is ready and waits for a worker') end;
    end if;
    select k.* into held_back from leasehold_internal.limit_key k where k.queue = mine.queue and k.key = mine.limit_key;
    if held_back.paused_at is not null then
        return concat_ws(': ', 'limit key ' || mine.limit_key || ' is paused by ' || held_back.paused_by,
                         held_back.paused_why);
    end if;
    rule := leasehold_internal.limit_rule_of(mine.queue, mine.limit_key);
    running := (select count(*) from (
        select from leasehold.job j
         where j.queue = mine.queue and j.limit_key = mine.limit_key and j.permit and j.held limit 10000) r);
    before := (select count(*) from (
        select from leasehold.job j
         where j.queue = mine.queue and j.limit_key = mine.limit_key and not j.permit and not mine.permit
           and (j.deferred, j.priority, j.scheduled_at, +j.id)
               < (mine.deferred, mine.priority, mine.scheduled_at, mine.id) limit 10000) b);
    most := case when rule.ordered or rule.debounce is not null then 1 else rule.max_running end;
    if rule.ordered then
        if rule.on_death = 'stop' then
            stopping := leasehold_internal.stopped_by(mine.queue, mine.limit_key);
            if stopping is not null then
                return format('limit %s is stopped by dead job %s until that is redriven or deleted, %s before it',
                              mine.limit_key, stopping, before);
            end if;
        end if;
        select j.* into first from leasehold.job j
         where j.queue = mine.queue and j.limit_key = mine.limit_key and j.permit and not j.held and j.id <> mine.id
         order by j.queue, j.limit_key, j.permit, j.deferred, j.priority, j.scheduled_at, +j.id limit 1;
        if found then
            return format('it waits for job %s, the first of limit %s, whose next attempt is due at %s, %s before it',
                          first.id, mine.limit_key, first.scheduled_at, before + 1);
        end if;
    end if;
    if running >= most then
        return format('it waits for limit %s, %s of %s running, %s before it', mine.limit_key, running, most, before);
    elsif rule.rate is not null and 0 = leasehold_internal.tokens(
            rule.rate, rule.per, rule.burst, held_back.full_at, statement_timestamp()) then
        return format('it waits for the rate of limit %s, %s per %s, until %s, %s before it', mine.limit_key,
                      rule.rate, rule.per,
                      leasehold_internal.next_token(rule.rate, rule.per, rule.burst, held_back.full_at), before);
    elsif by_queue is not null then
        return by_queue;
    elsif most is null then
        return format('it waits for the turn of key %s, %s running, %s before it', mine.limit_key, running, before);
    end if;
    return format('it waits for the turn of limit %s, %s of %s running, %s before it', mine.limit_key, running,
                  most, before);
end $$;

-- Returns limit keys of a queue after `after_key` that have jobs or are paused, up to `up_to`, with what each
-- one has. Hops from key to key; counts at most 10,000 jobs of each. Internal.
create or replace function leasehold_internal.limit_keys(queue text, after_key text default '', up_to int default 100)
returns table (key text, state text, running int, waiting int, max_running int, weight int, paused_at timestamptz,
               paused_by text, paused_why text)
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_indexscan = on set enable_seqscan = off
set enable_bitmapscan = off set enable_sort = off set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    held_back leasehold_internal.limit_key;
    rule leasehold_internal.limit_rule;
    found_keys int := 0;
begin
    key := after_key;
    loop
        key := least(
            (select j.limit_key from leasehold.job j
              where j.queue = limit_keys.queue and j.limit_key is not null and j.limit_key > limit_keys.key
              order by j.queue, j.limit_key limit 1),
            (select k.key from leasehold_internal.limit_key k
              where k.queue = limit_keys.queue and k.key > limit_keys.key and k.paused_at is not null
              order by k.queue, k.key limit 1));
        exit when key is null or found_keys >= up_to;
        found_keys := found_keys + 1;
        select k.* into held_back from leasehold_internal.limit_key k
         where k.queue = limit_keys.queue and k.key = limit_keys.key;
        rule := leasehold_internal.limit_rule_of(queue, key);
        running := (select count(*) from (
            select from leasehold.job j
             where j.queue = limit_keys.queue and j.limit_key = limit_keys.key and j.permit and j.held limit 10000) r);
        waiting := (select count(*) from (
            select from leasehold.job j
             where j.queue = limit_keys.queue and j.limit_key = limit_keys.key and not j.held limit 10000) w);
        max_running := case when rule.ordered or rule.debounce is not null then 1 else rule.max_running end;
        weight := coalesce(rule.weight, 1);
        paused_at := held_back.paused_at;
        paused_by := held_back.paused_by;
        paused_why := held_back.paused_why;
        state := case when paused_at is not null then 'paused'
                      when rule.ordered and rule.on_death = 'stop'
                           and leasehold_internal.stopped_by(queue, key) is not null then 'stopped'
                      when running >= max_running then 'full'
                      when rule.rate is not null and 0 = leasehold_internal.tokens(
                            rule.rate, rule.per, rule.burst, held_back.full_at, statement_timestamp()) then 'rate'
                      when rule.ordered and exists (
                            select from leasehold.job j
                             where j.queue = limit_keys.queue and j.limit_key = limit_keys.key and j.permit
                               and j.scheduled_at > statement_timestamp()) then 'blocked'
                      else 'open' end;
        return next;
    end loop;
end $$;
