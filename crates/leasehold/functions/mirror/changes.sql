-- What a mirror does in the database. The library generates the statements on the mirrored table for
-- each table; these functions keep the changes, the deletions, the check and the rebuild.

-- Returns the fingerprint of a key in a version: 52 bits, the same as the library's `fingerprint`.
create or replace function leasehold_internal.fingerprint(key text, version bigint)
returns bigint
language sql immutable strict parallel safe as $$
    select ('x' || encode(substring(sha256(convert_to(key || ':' || version, 'UTF8')) from 1 for 7),
                          'hex'))::bit(56)::bigint >> 4
$$;

-- Declares a mirror. Repeating the same declaration changes nothing of its check or its rebuild. A new
-- queue gets the claim size of the mirror; an existing queue keeps its own.
create or replace function leasehold_internal.declare_mirror(
    name text, table_name text, key_column text, key_kind text, version_column text, queue text,
    job_name text, job_field text, after interval, keep interval, every interval, range_rows int,
    claim_size int
)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold_internal.queue (name, claim_size) values (declare_mirror.queue, declare_mirror.claim_size)
    on conflict (name) do nothing;
    insert into leasehold_internal.mirror as m
        (name, table_name, key_column, key_kind, version_column, queue, job_name, job_field,
         verify_after, tombstones, check_every, range_rows)
    values (declare_mirror.name, declare_mirror.table_name, declare_mirror.key_column, declare_mirror.key_kind, declare_mirror.version_column, declare_mirror.queue, declare_mirror.job_name, declare_mirror.job_field, after, keep,
            every, declare_mirror.range_rows)
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
create or replace function leasehold_internal.mirror_mark(mirror text, key text)
returns text
language sql immutable set search_path = leasehold, pg_temp as $$
    select case when octet_length(mirror_mark.mirror) + octet_length(key) <= 180 and key not like 'sha256:%'
                then 'mirror:' || mirror_mark.mirror || ':' || key
                else 'mirror:' || mirror_mark.mirror || ':sha256:'
                     || encode(sha256(convert_to(key, 'UTF8')), 'hex') end
$$;

-- Returns the kwargs of a job for one row. Stores see integers with leading zeros; kwargs hold plain
-- numbers.
create or replace function leasehold_internal.mirror_kwargs(kind text, field text, key text)
returns jsonb
language sql immutable set search_path = leasehold, pg_temp as $$
    select jsonb_build_object(
        field, case kind when 'integer' then to_jsonb(key::bigint) else to_jsonb(key) end)
$$;

-- Records deletions, in the transaction that makes them.
create or replace function leasehold_internal.mirror_bury(mirror text, keys text[], versions bigint[])
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    insert into leasehold_internal.mirror_gone as g (mirror, key, version)
    select mirror_bury.mirror, r.key, max(r.version)
      from unnest(keys, versions) as r (key, version) group by r.key order by r.key collate "C"
    on conflict on constraint mirror_gone_pkey do update
        set version = greatest(g.version, excluded.version), gone_at = statement_timestamp();
end $$;

-- Enqueues jobs for rows that changed, in the transaction that changed them: one per row. `former_versions` are
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
create or replace function leasehold_internal.mirror_saved(
    mirror text, keys text[], former_versions bigint[], deletions bigint[] default null
)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    m leasehold_internal.mirror;
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
    select * into m from leasehold_internal.mirror w where w.name = mirror_saved.mirror;
    if not found then
        return; -- The mirror was removed. One that is declared again compares every row.
    end if;
    perform from unnest(keys) as k (key) where k.key = '' or octet_length(k.key) > 400;
    if found then
        raise exception 'a row of % has a key that mirror % cannot use', m.table_name, m.name
            using errcode = 'LH002', constraint = 'LH002', hint = 'A key has 1 to 400 bytes.';
    end if;
    if deletions is not null then
        if joins then
            perform leasehold_internal.mirror_bury(m.name, keys, deletions);
        else
            perform leasehold_internal.mirror_bury_apart(m.name, keys, deletions);
        end if;
    end if;
    due := statement_timestamp() + m.verify_after;
    late := due + interval '30 days';
    with_tag := coalesce(nullif(current_setting('leasehold.tag', true), ''), 'mirror.' || m.name);
    if octet_length(with_tag) > 200 then
        with_tag := left(with_tag, 50);
    end if;
    with_priority := coalesce(nullif(current_setting('leasehold.priority', true), '')::int, 1);
    if cardinality(keys) > 100 or not joins then
        insert into leasehold.job
            (name, kwargs, queue, priority, scheduled_at, expires_at, tag, max_attempts)
        select m.job_name,
               -- These have no mark, and the check must tell them from jobs that change nothing.
               '{"changed": true}'::jsonb || k.stored
                   || leasehold_internal.mirror_kwargs(m.key_kind, m.job_field, k.key),
               m.queue, with_priority,
               -- The direct path writes no more than this: there is nothing to wait for.
               case when cardinality(keys) > 100 then statement_timestamp() else due end,
               late, with_tag, 2147483647
          from leasehold_internal.mirror_former_versions(m.name, keys, former_versions) k;
        return;
    end if;
    for one, stored in
        select k.key, k.stored from leasehold_internal.mirror_former_versions(m.name, keys, former_versions) k order by 1
    loop
        mark := leasehold_internal.mirror_mark(m.name, one);
        arguments := leasehold_internal.mirror_kwargs(m.key_kind, m.job_field, one);
        made := nextval('leasehold.job_id_seq');
        -- The transaction that changes a row has locked it, so no other one inserts the same key now.
        insert into leasehold_internal.idempotency_key as i (queue, key, job_id, request_hash, holds_until)
        values (m.queue, mark, made, leasehold_internal.request_hash(m.job_name, arguments),
                statement_timestamp())
        on conflict on constraint idempotency_key_pkey do nothing;
        keyed := found;
        if not keyed then
            select i.job_id into known from leasehold_internal.idempotency_key i
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
                       set priority = least(j.priority, with_priority), deferred = false,
                           scheduled_at = least(j.scheduled_at, due)
                     where j.id = known
                       and (j.deferred or j.priority > with_priority or j.scheduled_at > due);
                    continue;
                end if;
                update leasehold_internal.idempotency_key i
                   set job_id = made, request_hash = leasehold_internal.request_hash(m.job_name, arguments),
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
create or replace function leasehold_internal.mirror_former_versions(mirror text, keys text[], former_versions bigint[])
returns table (key text, stored jsonb)
language plpgsql stable set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select u.key collate "C",
           case when former_versions is null then '{}'::jsonb
                when bool_and(u.before is null) and max(g.version) is not null
                then jsonb_build_object('before', max(g.version), 'gone', true)
                else jsonb_build_object('before', coalesce(min(u.before), 0)) end
      from unnest(keys, former_versions) as u (key, before)
      left join leasehold_internal.mirror_gone g
        on u.before is null and g.mirror = mirror_former_versions.mirror and g.key = u.key
     group by 1;
end $$;

-- As `mirror_bury`, above READ COMMITTED. This transaction cannot raise a tombstone that a worker has
-- written since the snapshot; the tombstone stays, and a pass raises it above what the store holds.
create or replace function leasehold_internal.mirror_bury_apart(mirror text, keys text[], versions bigint[])
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    one record;
begin
    begin
        perform leasehold_internal.mirror_bury(mirror_bury_apart.mirror, keys, versions);
        return;
    exception when serialization_failure then null;
    end;
    for one in select r.key, r.version from unnest(keys, versions) as r (key, version)
                order by r.key collate "C" loop
        begin
            perform leasehold_internal.mirror_bury(
                mirror_bury_apart.mirror, array[one.key], array[one.version]);
        exception when serialization_failure then null;
        end;
    end loop;
end $$;

-- As `mirror_saved`, for triggers of an earlier release, which do not pass the former versions of the
-- rows.
create or replace function leasehold_internal.mirror_changed(mirror text, keys text[])
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select leasehold_internal.mirror_saved(mirror_changed.mirror, keys, null)
$$;

create or replace function leasehold_internal.mirror_removed(mirror text, keys text[], versions bigint[])
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select leasehold_internal.mirror_saved(mirror_removed.mirror, keys, null, versions)
$$;

-- Returns rows that are inserted under a deleted key, with the version of the deletion. Called after
-- the insert: only then has it waited for a transaction that deletes the same key.
create or replace function leasehold_internal.mirror_restored(mirror text, keys text[])
returns table (key text, version bigint)
language sql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    select g.key, g.version from leasehold_internal.mirror_gone g
     where g.mirror = mirror_restored.mirror and g.key = any (keys)
$$;

-- Enqueues jobs that write rows again, due now. `force`: even if the store has them.
create or replace function leasehold_internal.reindex_mirror(
    name text, keys text[], tag text default 'reindex', priority int default 100,
    force boolean default false
)
returns bigint
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
declare
    m leasehold_internal.mirror;
    made bigint;
begin
    select * into m from leasehold_internal.mirror where name = reindex_mirror.name;
    if not found then
        raise exception 'there is no mirror %', quote_literal(reindex_mirror.name)
            using errcode = 'LH002', constraint = 'LH002', hint = 'See which there are: select name from leasehold.mirrors.';
    end if;
    insert into leasehold.job (name, kwargs, queue, priority, tag, max_attempts)
    select m.job_name,
           leasehold_internal.mirror_kwargs(m.key_kind, m.job_field, k.key)
               || case when force then '{"force": true}'::jsonb else '{}'::jsonb end,
           m.queue, reindex_mirror.priority, reindex_mirror.tag, 2147483647
      from unnest(keys) as k (key);
    get diagnostics made = row_count;
    return made;
end $$;

-- Makes deferred jobs due after the store has recovered, up to `up_to`. Returns how many.
create or replace function leasehold_internal.mirror_recovered(mirror text, up_to int default 5000)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    moved int;
begin
    update leasehold.job j set scheduled_at = statement_timestamp()
     where j.id = any (array(
            select w.id from leasehold_internal.mirror m
              join leasehold.job w on w.queue = m.queue and w.limit_key is null and w.name = m.job_name
             where m.name = mirror_recovered.mirror and w.deferred and not w.held
               and w.scheduled_at > statement_timestamp()
             -- Jobs that failed by themselves keep waiting.
               and w.attempts = 0
             limit up_to for update of w skip locked))
       and not j.held;
    get diagnostics moved = row_count;
    return moved;
end $$;
