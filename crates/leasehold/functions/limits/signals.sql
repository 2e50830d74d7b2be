-- Signals: what has work or room. They only save time: the walk finds every key whose signal is missing.

-- Inserts a signal: look at this key from `due` on.
create or replace function leasehold_internal.signal_key(queue text, limit_key text, due timestamptz)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold_internal.limit_signal (due_at, queue, key) values (due, queue, limit_key)
$$;

-- Signals the keys to which a rule applies, after it has changed. The walk finds the others when there
-- are more than 10,000.
create or replace function leasehold_internal.signal_rule(queue text, key text)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_variable
declare
    signalled int;
begin
    insert into leasehold_internal.limit_signal (due_at, queue, key)
    select statement_timestamp(), k.queue, k.key from leasehold_internal.limit_key k
     where k.queue = signal_rule.queue
       -- ';' follows ':' in this collation.
       and (k.key = signal_rule.key or (k.key >= signal_rule.key || ':' and k.key < signal_rule.key || ';'))
     limit 10000;
    get diagnostics signalled = row_count;
    return signalled;
end $$;

-- Returns whether a queue has a key to look at.
create or replace function leasehold_internal.has_limited(queue text)
returns boolean
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_indexscan = on set enable_seqscan = off
set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_variable
begin
    return exists (select from leasehold_internal.limit_signal s
                    where s.queue = has_limited.queue and s.due_at <= statement_timestamp()
                    order by s.queue, s.due_at limit 1)
        or exists (select from leasehold_internal.limit_key k
                    where k.queue = has_limited.queue and k.look_at <= statement_timestamp() and k.key <> ''
                    order by k.queue, k.look_at limit 1);
end $$;

-- Makes a claimer look at a key now. Returns false if it does already, or if a claimer has locked the key.
create or replace function leasehold_internal.list_key(queue text, limit_key text)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
begin
    if not exists (select from leasehold_internal.limit_key k
                    where k.queue = list_key.queue and k.key = list_key.limit_key) then
        -- Every creator of a row takes this lock, so none waits for another's transaction.
        if not leasehold_internal.may_create_key(queue, limit_key) then
            return false;
        end if;
        insert into leasehold_internal.limit_key (queue, key, look_at)
        values (list_key.queue, list_key.limit_key, statement_timestamp()) on conflict do nothing;
        return found;
    end if;
    update leasehold_internal.limit_key k set look_at = statement_timestamp()
     where (k.queue, k.key) = (select l.queue, l.key from leasehold_internal.limit_key l
                                where l.queue = list_key.queue and l.key = list_key.limit_key
                                  and l.look_at is null and l.paused_at is null
                                  for update skip locked);
    return found;
end $$;

-- Returns whether the caller's transaction may create the row of a key. Two inserts of one key would wait
-- for each other.
create or replace function leasehold_internal.may_create_key(queue text, limit_key text)
returns boolean
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select pg_try_advisory_xact_lock(7307, hashtext(queue || '/' || limit_key collate "C"))
$$;

-- Takes permits back that waiting jobs of a key keep though it is not ordered any more.
create or replace function leasehold_internal.clear_permits(queue text, limit_key text)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_indexscan = on set enable_seqscan = off
set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_variable
begin
    if exists (select from leasehold.job j
                where j.queue = clear_permits.queue and j.limit_key = clear_permits.limit_key and j.permit
                  and not j.held limit 1)
       and not leasehold_internal.keeps_permit(queue, limit_key) then
        update leasehold.job j set permit = false
         where j.id = any (array(
                select w.id from leasehold.job w
                 where w.queue = clear_permits.queue and w.limit_key = clear_permits.limit_key and w.permit
                   and not w.held
                   for update skip locked))
           and not j.held;
    end if;
end $$;

-- Walks on over `up_to` limit keys with waiting jobs, and lists those that have due work and room: a claimer
-- looks at them. So no key stays stuck, whatever became of its signals, and
-- jobs that a plain INSERT or COPY stored are found. All housekeepers share the walk, one piece per
-- `every`. Returns how many keys it listed.
create or replace function leasehold_internal.walk_limits(every interval default interval '1 second', up_to int default 500)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_indexscan = on set enable_nestloop = on
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set enable_sort = off set enable_material = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    place leasehold_internal.limit_walk;
    each record;
    seen int := 0;
    listed int := 0;
    woken text;
begin
    select w.* into place from leasehold_internal.limit_walk w
     where (w.walked_at + w.cooldown <= statement_timestamp() - every
            -- The clock was set back.
            or w.walked_at > statement_timestamp() + interval '1 minute')
       for update skip locked;
    if not found then
        return 0;
    end if;
    for each in select q.name from leasehold_internal.queue q where q.is_limited loop
        perform leasehold_internal.key_named_jobs(each.name, 5000);
    end loop;
    loop
        select j.queue, j.limit_key as key into each from leasehold.job j
         where j.limit_key is not null and (j.queue, j.limit_key) > (place.queue, place.key)
         order by j.queue, j.limit_key limit 1;
        exit when not found or seen >= up_to;
        seen := seen + 1;
        place.queue := each.queue;
        place.key := each.key;
        perform leasehold_internal.clear_permits(each.queue, each.key);
        if not exists (select from leasehold_internal.limit_key k
                        where k.queue = each.queue and k.key = each.key
                          and (k.look_at is not null or k.paused_at is not null))
           and leasehold_internal.key_has_due(each.queue, each.key)
           and leasehold_internal.has_room(each.queue, each.key)
           and leasehold_internal.list_key(each.queue, each.key) then
            listed := listed + 1;
            if each.queue is distinct from woken then
                woken := each.queue;
                perform leasehold_internal.wake(woken);
            end if;
        end if;
    end loop;
    update leasehold_internal.limit_walk w
       set queue = case when seen < up_to then '' else place.queue end,
           key = case when seen < up_to then '' else place.key end,
           walked_at = clock_timestamp(),
           cooldown = least(50 * (clock_timestamp() - statement_timestamp()), interval '30 minutes');
    return listed;
end $$;
