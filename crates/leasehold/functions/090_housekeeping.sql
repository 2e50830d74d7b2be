-- Removes what nobody needs any more, a bounded number of rows a call.
-- Finished jobs go by dropping partitions: see `drop_history`.
create or replace function leasehold.prune(
    up_to int default 5000,
    dead_for interval default null,
    ended_leases_for interval default interval '2 minutes'
)
returns table (leases int, keys int, markers int, workers int, dead int)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    old_queues text[];
    old_keys text[];
begin
    delete from leasehold.lease l where l.lease_generation = any (array(
        select e.lease_generation from leasehold.lease e
         where e.ended_at < statement_timestamp() - ended_leases_for
         limit up_to for update skip locked));
    get diagnostics leases = row_count;
    -- A key stays while its job waits or runs. Its job is looked for when the key is locked, in a
    -- statement of its own: one that looked before would miss a job that was made meanwhile.
    select array_agg(e.queue), array_agg(e.key) into old_queues, old_keys
      from (select k.queue, k.key from leasehold.idempotency_key k
             where k.holds_until < statement_timestamp()
               and not exists (select from leasehold.job j where j.id = k.job_id)
             order by k.holds_until limit up_to for update skip locked) e;
    delete from leasehold.idempotency_key k
     using unnest(old_queues, old_keys) as old (queue, key)
     where k.queue = old.queue and k.key = old.key
       and not exists (select from leasehold.job j where j.id = k.job_id);
    get diagnostics keys = row_count;
    -- A mark stays while its job can still run.
    delete from leasehold.once_marker m where (m.scope, m.step) in (
        select e.scope, e.step from leasehold.once_marker e
         where e.keep_until < statement_timestamp()
           and not exists (select from leasehold.job j where j.id = e.job_id)
           and not exists (select from leasehold.dead_job d where d.id = e.job_id)
         order by e.keep_until limit up_to for update skip locked);
    get diagnostics markers = row_count;
    delete from leasehold.worker w
     where w.last_seen_at < statement_timestamp() - interval '1 day';
    get diagnostics workers = row_count;
    dead := 0;
    if dead_for is not null then
        delete from leasehold.dead_job d where d.id = any (array(
            select e.id from leasehold.dead_job e
             where e.died_at < statement_timestamp() - dead_for
             limit up_to for update skip locked));
        get diagnostics dead = row_count;
    end if;
    return next;
end $$;

-- Makes the history partitions of the coming days. Answers with the number made.
--
-- Attaching asks for a lock that finishes do not mind, except on the partition that takes the rest.
-- It waits a second at most, and leaves the work for next time: every finish queues up behind it.
create or replace function leasehold.extend_history(days int default 7)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
declare
    day date;
    part text;
    made int := 0;
begin
    for day in select d::date from generate_series(
            (statement_timestamp() at time zone 'UTC')::date + 1,
            (statement_timestamp() at time zone 'UTC')::date + days, interval '1 day') d loop
        part := 'history_' || to_char(day, 'YYYYMMDD');
        continue when to_regclass('leasehold.' || part) is not null;
        begin
            execute format('create table leasehold.%I (like leasehold.history including all)', part);
            execute format(
                'alter table leasehold.history attach partition leasehold.%I for values from (%L) to (%L)',
                part, day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
            made := made + 1;
        exception
            -- The clock was ahead once and rows of that day are in the rest: it goes on taking them.
            when check_violation then null;
            when duplicate_table or unique_violation then null; -- made by another housekeeper meanwhile
            when lock_not_available then return made;
        end;
    end loop;
    return made;
end $$;

-- Drops history partitions whose last day is older than `keep`. Answers with the number dropped.
-- Every finish queues up behind a drop, so it waits a second at most: see `extend_history`.
create or replace function leasehold.drop_history(keep interval)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
declare
    part record;
    dropped int := 0;
begin
    delete from leasehold.history_rest where finished_at < statement_timestamp() - keep;
    for part in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
         where i.inhparent = 'leasehold.history'::regclass and c.relname ~ '^history_\d{8}$'
           and (to_date(substr(c.relname, 9), 'YYYYMMDD') + 1)::timestamp at time zone 'UTC'
               < statement_timestamp() - keep
         order by c.relname
    loop
        begin
            execute format('drop table if exists leasehold.%I', part.relname);
            dropped := dropped + 1;
        exception when lock_not_available then return dropped;
        end;
    end loop;
    return dropped;
end $$;

-- Fires one slot of a schedule: moves `next_slot` from the value the caller saw and inserts the
-- job, both or neither. Null: somebody else fired it, or the schedule was paused or removed.
create or replace function leasehold.fire_schedule(
    of_name text, slot timestamptz, following timestamptz, passed bigint default 0, with_job boolean default true
)
returns bigint
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    entry leasehold.schedule;
    made bigint;
begin
    update leasehold.schedule s
       set next_slot = following, missed_slots = s.missed_slots + passed,
           last_slot = case when with_job then slot else s.last_slot end
     where s.name = of_name and s.next_slot = slot and s.paused_at is null
    returning * into entry;
    if not found then
        return null;
    end if;
    if not with_job then
        return 0;
    end if;
    insert into leasehold.job as j (name, kwargs, queue, priority, tag)
    values (entry.job_name, entry.kwargs, entry.queue, entry.priority, entry.tag)
    returning j.id into made;
    update leasehold.schedule s set last_job_id = made where s.name = of_name;
    return made;
end $$;

-- A worker says that it is alive.
create or replace function leasehold.register_worker(
    of_id text, of_name text, of_host text, of_pid int, of_version text, of_queues text[],
    of_names text[], of_slots int, is_busy int, is_draining boolean
)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold.worker as w
        (id, name, host, pid, version, queues, names, slots, busy, draining_since)
    values (of_id, of_name, of_host, of_pid, of_version, of_queues, of_names, of_slots, is_busy,
            case when is_draining then statement_timestamp() end)
    on conflict (id) do update
        set last_seen_at = statement_timestamp(), busy = excluded.busy,
            draining_since = coalesce(w.draining_since, excluded.draining_since),
            stopped_at = null
$$;

create or replace function leasehold.unregister_worker(of_id text)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold.worker set stopped_at = statement_timestamp(), busy = 0,
           last_seen_at = statement_timestamp()
     where id = of_id
$$;
