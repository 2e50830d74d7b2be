-- Actions of operators on limits. Each one records its actor.

-- Sets the limit of a key, or of all keys with this text before their first ':', as a whole: at most
-- `max_running` of its jobs run (null: no limit), and it gets `weight` jobs for one of a key with weight 1.
-- It comes before a rule that a worker's code declares. Running jobs beyond a lower limit continue.
create or replace function leasehold.set_limit(
    queue text, key text, actor text, max_running int default null, weight int default 1, why text default null
)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
begin
    if coalesce(queue = '' or octet_length(queue) > 64, true) then
        raise exception 'queue name % is not allowed', coalesce(quote_literal(queue), 'null')
            using errcode = 'LH001', constraint = 'LH001', hint = 'A queue name has 1 to 64 bytes.';
    end if;
    perform leasehold_internal.check_limit_key(coalesce(key, ''));
    if max_running not between 1 and 1000000 then
        raise exception 'max_running is %; it must be between 1 and 1000000', max_running
            using errcode = 'LH002', constraint = 'LH002',
                  hint = 'To let none of its jobs start, pause the key; null means no limit.';
    end if;
    if coalesce(weight not between 1 and 100, true) then
        raise exception 'weight is %; it must be between 1 and 100', coalesce(weight::text, 'null')
            using errcode = 'LH002', constraint = 'LH002', hint = 'Leave it out for 1.';
    end if;
    insert into leasehold_internal.limit_rule as r (queue, key, by_operator, max_running, weight, set_by)
    values (queue, key, true, max_running, weight, actor)
    on conflict on constraint limit_rule_pkey do update
        set max_running = excluded.max_running, weight = excluded.weight, set_by = excluded.set_by,
            set_at = statement_timestamp();
    perform leasehold_internal.signal_rule(queue, key);
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'set', 'limit ' || queue || '/' || key, concat_ws(', ',
        'max_running ' || coalesce(max_running::text, 'none'), 'weight ' || weight, why));
end $$;

-- Removes the limit that an operator set: the declared one applies again, if there is one. Returns false if
-- no operator had set one.
create or replace function leasehold.remove_limit(queue text, key text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
begin
    delete from leasehold_internal.limit_rule r where r.queue = queue and r.key = key and r.by_operator;
    if not found then
        return false;
    end if;
    perform leasehold_internal.signal_rule(queue, key);
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'remove', 'limit ' || queue || '/' || key, why);
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
    delete from leasehold_internal.limit_rule r where r.queue = queue and r.key = key and not r.by_operator;
    if not found then
        return false;
    end if;
    perform leasehold_internal.signal_rule(queue, key);
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'retire', 'limit ' || queue || '/' || key, why);
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
    running int;
    before int;
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
        return case when mine.attempts > 0 then 'it waits for its next attempt, due at ' else 'it is due at ' end
               || mine.scheduled_at;
    end if;
    if mine.limit_key is null then
        return 'it is ready and waits for a worker';
    end if;
    select k.* into held_back from leasehold_internal.limit_key k where k.queue = mine.queue and k.key = mine.limit_key;
    if held_back.paused_at is not null then
        return concat_ws(': ', 'limit key ' || mine.limit_key || ' is paused by ' || held_back.paused_by,
                         held_back.paused_why);
    end if;
    rule := leasehold_internal.limit_rule_of(mine.queue, mine.limit_key);
    running := (select count(*) from (
        select from leasehold.job j
         where j.queue = mine.queue and j.limit_key = mine.limit_key and j.permit limit 10000) r);
    before := (select count(*) from (
        select from leasehold.job j
         where j.queue = mine.queue and j.limit_key = mine.limit_key and not j.permit
           and (j.deferred, j.priority, j.scheduled_at, +j.id)
               < (mine.deferred, mine.priority, mine.scheduled_at, mine.id) limit 10000) b);
    if rule.max_running is null then
        return format('it waits for the turn of key %s, %s running, %s before it', mine.limit_key, running, before);
    elsif running < rule.max_running then
        return format('it waits for the turn of limit %s, %s of %s running, %s before it', mine.limit_key, running,
                      rule.max_running, before);
    end if;
    return format('it waits for limit %s, %s of %s running, %s before it', mine.limit_key, running,
                  rule.max_running, before);
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
             where j.queue = limit_keys.queue and j.limit_key = limit_keys.key and j.permit limit 10000) r);
        waiting := (select count(*) from (
            select from leasehold.job j
             where j.queue = limit_keys.queue and j.limit_key = limit_keys.key and not j.permit limit 10000) w);
        max_running := rule.max_running;
        weight := coalesce(rule.weight, 1);
        paused_at := held_back.paused_at;
        paused_by := held_back.paused_by;
        paused_why := held_back.paused_why;
        state := case when paused_at is not null then 'paused' when running >= max_running then 'full'
                      else 'open' end;
        return next;
    end loop;
end $$;
