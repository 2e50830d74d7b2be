-- What a mirror does in the database. The library generates the statements on the mirrored table for
-- each table; these functions keep the changes, the deletions, the check and the rebuild.

-- Returns the fingerprint of a key in a version: 52 bits, the same as the library's `fingerprint`.
create or replace function leasehold.fingerprint(key text, version bigint)
returns bigint
language sql immutable strict parallel safe as $$
    select ('x' || encode(substring(sha256(convert_to(key || ':' || version, 'UTF8')) from 1 for 7),
                          'hex'))::bit(56)::bigint >> 4
$$;

-- Declares a mirror. Repeating the same declaration changes nothing of its check or its rebuild. A new
-- queue gets the mirror's batch as its claim size; an existing queue keeps its own.
create or replace function leasehold.declare_mirror(
    of_name text, of_table text, of_key text, of_kind text, of_version text, of_queue text,
    of_job text, of_field text, after interval, keep interval, every interval, of_range int,
    of_batch int
)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold.queue (name, batch) values (of_queue, of_batch)
    on conflict (name) do nothing;
    insert into leasehold.mirror as m
        (name, table_name, key_column, key_kind, version_column, queue, job_name, job_field,
         verify_after, tombstones, check_every, range_rows)
    values (of_name, of_table, of_key, of_kind, of_version, of_queue, of_job, of_field, after, keep,
            every, of_range)
    on conflict (name) do update
        set table_name = excluded.table_name, key_column = excluded.key_column,
            key_kind = excluded.key_kind, version_column = excluded.version_column,
            queue = excluded.queue, job_name = excluded.job_name, job_field = excluded.job_field,
            verify_after = excluded.verify_after, tombstones = excluded.tombstones,
            check_every = excluded.check_every, range_rows = excluded.range_rows
      -- A deploy of many workers must not make all of them wait for one row.
      where (m.table_name, m.key_column, m.key_kind, m.version_column, m.queue, m.job_name,
             m.job_field, m.verify_after, m.tombstones, m.check_every, m.range_rows)
            is distinct from
            (excluded.table_name, excluded.key_column, excluded.key_kind, excluded.version_column,
             excluded.queue, excluded.job_name, excluded.job_field, excluded.verify_after,
             excluded.tombstones, excluded.check_every, excluded.range_rows)
$$;

-- Returns the idempotency key under which the changes of one row become one job. A key that looks like
-- a hash is hashed too: otherwise it would be the mark of the row whose key has that hash.
create or replace function leasehold.mirror_mark(of_mirror text, key text)
returns text
language sql immutable set search_path = leasehold, pg_temp as $$
    select case when octet_length(of_mirror) + octet_length(key) <= 180 and key not like 'sha256:%'
                then 'mirror:' || of_mirror || ':' || key
                else 'mirror:' || of_mirror || ':sha256:'
                     || encode(sha256(convert_to(key, 'UTF8')), 'hex') end
$$;

-- Returns the kwargs of a job for one row. Stores see integers with leading zeros; kwargs hold plain
-- numbers.
create or replace function leasehold.mirror_kwargs(kind text, field text, key text)
returns jsonb
language sql immutable set search_path = leasehold, pg_temp as $$
    select jsonb_build_object(
        field, case kind when 'integer' then to_jsonb(key::bigint) else to_jsonb(key) end)
$$;

-- Records deletions, in the transaction that makes them.
create or replace function leasehold.mirror_bury(mirror text, keys text[], versions bigint[])
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    insert into leasehold.mirror_gone as g (mirror, key, version)
    select mirror_bury.mirror, r.key, max(r.version)
      from unnest(keys, versions) as r (key, version) group by r.key order by r.key collate "C"
    on conflict on constraint mirror_gone_pkey do update
        set version = greatest(g.version, excluded.version), gone_at = statement_timestamp();
end $$;

-- Enqueues jobs for rows that changed, in the transaction that changed them: one per row. `befores` are
-- the versions that the rows had; null for a row that did not exist. `deletions` are given for rows
-- that are deleted: versions above those that the rows had.
--
-- A change joins the job of an earlier one while that job waits: the lock on it keeps every claim away
-- until this transaction ends, so that the next claim sees the change. A job that is running, or that
-- another transaction has locked, may have read the row before this change: a new one is enqueued.
-- Nothing here waits for a lock that another transaction may hold for long. A statement that changes
-- many rows enqueues jobs without keys; a pass handles each row once, however many jobs name it.
--
-- Above READ COMMITTED no change joins a job either. A claim that has touched the job since the
-- snapshot would fail the save with a conflict in a table that the caller does not know.
--
-- A job keeps the version that its row had before the first of its changes, and whether that was a
-- deletion: the check excuses a row with a fresh job only if the store holds at least that.
create or replace function leasehold.mirror_saved(
    mirror text, keys text[], befores bigint[], deletions bigint[] default null
)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    m leasehold.mirror;
    joins constant boolean := current_setting('transaction_isolation') = 'read committed';
    due timestamptz;
    late timestamptz;
    with_tag text;
    with_priority int;
    one text;
    stored jsonb;
    mark text;
    arguments jsonb;
    made bigint;
    known bigint;
    keyed boolean;
begin
    if coalesce(cardinality(keys), 0) = 0 then
        return;
    end if;
    select * into m from leasehold.mirror w where w.name = mirror_saved.mirror;
    if not found then
        return; -- The mirror was removed. One that is declared again compares every row.
    end if;
    perform from unnest(keys) as k (key) where k.key = '' or octet_length(k.key) > 400;
    if found then
        raise exception 'a row of % has a key that mirror % cannot use', m.table_name, m.name
            using errcode = 'LH002', hint = 'A key has 1 to 400 bytes.';
    end if;
    if deletions is not null then
        if joins then
            perform leasehold.mirror_bury(m.name, keys, deletions);
        else
            perform leasehold.mirror_bury_apart(m.name, keys, deletions);
        end if;
    end if;
    due := statement_timestamp() + m.verify_after;
    late := due + interval '30 days';
    with_tag := coalesce(nullif(current_setting('leasehold.tag', true), ''), 'mirror.' || m.name);
    if octet_length(with_tag) > 200 then
        with_tag := left(with_tag, 50);
    end if;
    with_priority := least(
        coalesce(nullif(current_setting('leasehold.priority', true), '')::int, 1), 999999);
    if cardinality(keys) > 100 or not joins then
        insert into leasehold.job
            (name, kwargs, queue, priority, scheduled_at, expires_at, tag, max_attempts)
        select m.job_name,
               -- These have no mark, and the check must tell them from jobs that change nothing.
               '{"changed": true}'::jsonb || k.stored
                   || leasehold.mirror_kwargs(m.key_kind, m.job_field, k.key),
               m.queue, with_priority,
               -- The direct path writes no more than this: there is nothing to wait for.
               case when cardinality(keys) > 100 then statement_timestamp() else due end,
               late, with_tag, 2147483647
          from leasehold.mirror_befores(m.name, keys, befores) k;
        return;
    end if;
    for one, stored in
        select k.key, k.stored from leasehold.mirror_befores(m.name, keys, befores) k order by 1
    loop
        mark := leasehold.mirror_mark(m.name, one);
        arguments := leasehold.mirror_kwargs(m.key_kind, m.job_field, one);
        made := nextval('leasehold.job_id_seq');
        -- The transaction that changes a row has locked it, so no other one inserts the same key now.
        insert into leasehold.idempotency_key as i (queue, key, job_id, payload_hash, holds_until)
        values (m.queue, mark, made, leasehold.payload_hash(m.job_name, arguments),
                statement_timestamp())
        on conflict on constraint idempotency_key_pkey do nothing;
        keyed := found;
        if not keyed then
            select i.job_id into known from leasehold.idempotency_key i
             where i.queue = m.queue and i.key = mark for update skip locked;
            if found then
                perform from leasehold.job j
                 where j.id = known and not j.held and j.lost_count = 0 and not j.cancel_requested
                   -- A job that is about to expire would lose the change.
                   and j.expires_at > due + interval '15 days'
                   for update skip locked;
                if found then
                    -- However long the job was deferred before: this change is new.
                    update leasehold.job j
                       set priority = least(j.priority, with_priority),
                           scheduled_at = least(j.scheduled_at, due)
                     where j.id = known and (j.priority > with_priority or j.scheduled_at > due);
                    continue;
                end if;
                update leasehold.idempotency_key i
                   set job_id = made, payload_hash = leasehold.payload_hash(m.job_name, arguments),
                       holds_until = statement_timestamp()
                 where i.queue = m.queue and i.key = mark;
                keyed := true;
            end if;
        end if;
        insert into leasehold.job
            (id, name, kwargs, queue, priority, scheduled_at, expires_at, tag, max_attempts,
             idempotency_key)
        overriding system value
        values (made, m.job_name, stored || arguments, m.queue, with_priority, due, late, with_tag,
                2147483647, case when keyed then mark end);
    end loop;
end $$;

-- Returns each key once, with what its job keeps of the row before the change. Empty: not known.
create or replace function leasehold.mirror_befores(mirror text, keys text[], befores bigint[])
returns table (key text, stored jsonb)
language plpgsql stable set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select u.key collate "C",
           case when befores is null then '{}'::jsonb
                when bool_and(u.before is null) and max(g.version) is not null
                then jsonb_build_object('before', max(g.version), 'gone', true)
                else jsonb_build_object('before', coalesce(min(u.before), 0)) end
      from unnest(keys, befores) as u (key, before)
      left join leasehold.mirror_gone g
        on u.before is null and g.mirror = mirror_befores.mirror and g.key = u.key
     group by 1;
end $$;

-- As `mirror_bury`, above READ COMMITTED. This transaction cannot raise a tombstone that a worker has
-- written since the snapshot; the tombstone stays, and a pass raises it above what the store holds.
create or replace function leasehold.mirror_bury_apart(mirror text, keys text[], versions bigint[])
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    one record;
begin
    begin
        perform leasehold.mirror_bury(mirror_bury_apart.mirror, keys, versions);
        return;
    exception when serialization_failure then null;
    end;
    for one in select r.key, r.version from unnest(keys, versions) as r (key, version)
                order by r.key collate "C" loop
        begin
            perform leasehold.mirror_bury(
                mirror_bury_apart.mirror, array[one.key], array[one.version]);
        exception when serialization_failure then null;
        end;
    end loop;
end $$;

-- As `mirror_saved`, for triggers of an earlier release, which do not pass the former versions of the
-- rows.
create or replace function leasehold.mirror_changed(of_mirror text, keys text[])
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select leasehold.mirror_saved(of_mirror, keys, null)
$$;

create or replace function leasehold.mirror_removed(of_mirror text, keys text[], versions bigint[])
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select leasehold.mirror_saved(of_mirror, keys, null, versions)
$$;

-- Returns rows that are inserted under a deleted key, with the version of the deletion. Called after
-- the insert: only then has it waited for a transaction that deletes the same key.
create or replace function leasehold.mirror_revived(of_mirror text, keys text[])
returns table (key text, version bigint)
language sql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    select g.key, g.version from leasehold.mirror_gone g
     where g.mirror = of_mirror and g.key = any (keys)
$$;

-- Enqueues jobs that write rows again, due now. `force`: even if the store has them.
create or replace function leasehold.mirror_reindex(
    of_mirror text, keys text[], with_tag text default 'reindex', with_priority int default 100,
    force boolean default false
)
returns bigint
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    m leasehold.mirror;
    made bigint;
begin
    select * into m from leasehold.mirror where name = of_mirror;
    if not found then
        raise exception 'there is no mirror %', quote_literal(of_mirror)
            using errcode = 'LH002', hint = 'See which there are: select name from leasehold.mirror.';
    end if;
    insert into leasehold.job (name, kwargs, queue, priority, tag, max_attempts)
    select m.job_name,
           leasehold.mirror_kwargs(m.key_kind, m.job_field, k.key)
               || case when force then '{"force": true}'::jsonb else '{}'::jsonb end,
           m.queue, least(with_priority, 999999), with_tag, 2147483647
      from unnest(keys) as k (key);
    get diagnostics made = row_count;
    return made;
end $$;

-- Defers jobs of one lease, many at once. They move to lanes of their own, behind those of jobs that
-- were never deferred, so that however many of them are due, a claim has room for fresh ones.
-- `counted`: the attempt was a failure and stays counted. There is no last attempt: such jobs end when
-- their work is seen done, or when they expire. Returns the ids that the lease still held.
create or replace function leasehold.put_off(
    ids bigint[], generation bigint, waits float8[], whys text[], counted boolean[]
)
returns setof bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_nestloop = on set enable_bitmapscan = off set enable_seqscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    unwanted bigint[];
    holder text;
    since timestamptz;
begin
    -- Lock first, in the order of the ids: see `snooze`.
    select coalesce(array_agg(mine.id) filter (where mine.cancel_requested), '{}') into unwanted
      from (select j.id, j.cancel_requested from leasehold.job j
             where j.id = any (ids) and j.lease_generation = generation and j.held
             order by j.id for update) mine;
    if unwanted <> '{}' then
        perform leasehold.cancel_rows(unwanted, true, generation, 'cancelled while it was put off');
    end if;
    select l.claimed_by, l.claimed_at into holder, since
      from leasehold.lease l where l.lease_generation = generation;
    return query
    update leasehold.job j
       set held = false, lost_count = 0,
           attempts = j.attempts - (case when o.counted then 0 else 1 end),
           max_attempts = 2147483647,
           priority = case when j.priority < 1000000 then j.priority + 1000000 else j.priority end,
           scheduled_at = statement_timestamp()
               + make_interval(secs => least(greatest(o.wait, 0), 315360000)),
           last_error = coalesce(left(o.why, 4096), j.last_error),
           errors = case when o.counted
                         then leasehold.add_error(j.errors, j.attempts, holder, since, o.why)
                         else j.errors end
      from unnest(ids, waits, whys, counted) as o (id, wait, why, counted)
     -- An array of one, not `=`: for a plain join the planner may read every job in the order of ids.
     where j.id = any (array[o.id]) and j.lease_generation = generation and j.held
    returning j.id;
    perform leasehold.settle(generation);
    return query select unnest(unwanted);
end $$;

-- Makes deferred jobs due after the store has recovered, up to `up_to`. Returns how many.
create or replace function leasehold.mirror_recovered(of_mirror text, up_to int default 5000)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    moved int;
begin
    update leasehold.job j set scheduled_at = statement_timestamp()
     where j.id = any (array(
            select w.id from leasehold.mirror m
              join leasehold.job w on w.queue = m.queue and w.name = m.job_name
             where m.name = of_mirror and w.priority >= 1000000 and not w.held
               and w.scheduled_at > statement_timestamp()
             -- Jobs that failed by themselves keep waiting.
               and w.attempts = 0
             limit up_to for update of w skip locked))
       and not j.held;
    get diagnostics moved = row_count;
    return moved;
end $$;
