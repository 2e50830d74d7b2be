-- Functions that read jobs or leases turn off the plans that read a whole table. A session keeps the
-- plan that it made when the table was empty, and would read all of it, for each job that fails, until
-- the next ANALYZE. The hot ones also keep one plan for all arguments: planning anew for each call
-- costs more than the call. And none is compiled: over a large table the estimate is high, but a claim
-- reads a few rows.

-- Returns the settings of a queue. The first call creates the row.
create or replace function leasehold_internal.queue_settings(queue text)
returns leasehold_internal.queue
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
declare
    settings leasehold_internal.queue;
begin
    select * into settings from leasehold_internal.queue where name = queue_settings.queue;
    if not found then
        insert into leasehold_internal.queue (name) values (queue_settings.queue) on conflict (name) do nothing;
        select * into settings from leasehold_internal.queue where name = queue_settings.queue;
    end if;
    return settings;
exception when check_violation then
    -- Wider than what `leasehold.enqueue` accepts: a plain INSERT may name such a queue, and its jobs need
    -- workers and operators too.
    raise exception 'queue % has % bytes; it must have 1 to 64', quote_literal(queue_settings.queue),
            octet_length(queue_settings.queue)
        using errcode = 'LH001', constraint = 'LH001', hint = 'Name a queue that exists, or choose a shorter name.';
end $$;

-- Returns the first queue after `queue` that has a job: one look into each of the indexes that begin with the
-- queue. Null: there is none.
create or replace function leasehold_internal.next_queue(queue text)
returns text
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_indexscan = on set enable_indexonlyscan = on
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan as $$
begin
    return least(
        (select j.queue from leasehold.job j where j.limit_key is null and j.queue > next_queue.queue
          order by j.queue limit 1),
        (select j.queue from leasehold.job j where j.limit_key is not null and j.queue > next_queue.queue
          order by j.queue limit 1));
end $$;

-- Returns a generation that no claim ever had, greater than every one before. The sequence makes it
-- grow; the random low bits keep a generation from being issued twice even if a sequence number
-- repeats.
--
-- A failover to a standby that lagged behind, or a restore, sets the sequence back. Both bring another
-- server process or another sequence, which `epoch` detects: the first claim there moves the sequence
-- forward.
create or replace function leasehold_internal.next_generation()
returns bigint
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    if (select e.last_value <> leasehold_internal.epoch_here(e.tableoid) from leasehold_internal.epoch e) then
        perform leasehold_internal.begin_epoch();
    end if;
    return (nextval('leasehold_internal.generation') << 20) | floor(random() * 1048576)::bigint;
end $$;

-- Returns a number for this server process and a relation in it. A promoted standby, a server started
-- on a copy or a backup, and a restored dump each have another one. It has no `search_path` setting,
-- which would keep the planner from inlining it.
create or replace function leasehold_internal.epoch_here(relation oid)
returns bigint
language sql stable as $$
    select greatest(1, 9223372036854775807 & hashint8extended(
        (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint, relation::bigint))
$$;

-- Moves the generations past everything that was drawn before: by 2^26 claims, more than a standby can
-- have lost, and at least to the milliseconds since 2025, for a restore that lost more than that or a
-- second standby that was promoted from the same state. The upper bound keeps a clock far in the future
-- from using the numbers up.
--
-- One claim does it and the others wait for it. The error that ends the block releases the lock: the
-- caller's transaction may be long, and no claim should wait for that. Sequences keep what was set.
create or replace function leasehold_internal.begin_epoch()
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    milliseconds bigint := extract(epoch from clock_timestamp() - timestamptz '2025-01-01 00:00Z') * 1000;
    here bigint;
begin
    perform from leasehold_internal.epoch_guard for update;
    select leasehold_internal.epoch_here(e.tableoid) into here from leasehold_internal.epoch e
     where e.last_value <> leasehold_internal.epoch_here(e.tableoid);
    if found then
        perform setval('leasehold_internal.generation', greatest(
            (select g.last_value from leasehold_internal.generation g) + 67108864,
            least(milliseconds, 4398046511104)));
        perform setval('leasehold_internal.epoch', here);
    end if;
    raise exception 'the lock has served its purpose' using errcode = 'LH900';
exception when sqlstate 'LH900' then
    null;
end $$;

-- Returns the nth of a series of waits: doubling, capped. Every backoff in SQL is this one.
create or replace function leasehold_internal.doubled(nth int, base interval, cap interval)
returns interval
language sql immutable set search_path = leasehold, pg_temp as $$
    select least(base * power(2, least(greatest(nth, 1) - 1, 30)), cap)
$$;

-- Returns how long a job waits after its nth attempt failed: doubling, capped, with 20 % of jitter
-- either way so that jobs that failed together do not retry together.
create or replace function leasehold_internal.backoff(attempts int, base interval, cap interval)
returns interval
language sql volatile set search_path = leasehold, pg_temp as $$
    select leasehold_internal.doubled(attempts, base, cap) * (0.8 + 0.4 * random())
$$;

-- Returns the version of the SQL contract. Functions of one contract keep their names, arguments and
-- results; an incompatible change gets a new name beside the old one.
create or replace function leasehold.contract()
returns int
language sql immutable as 'select 1';
