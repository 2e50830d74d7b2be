-- Creates the history partitions of the coming days. Returns the number created.
--
-- ATTACH takes a lock that does not block finishes, except on the default partition. It waits one
-- second at most, and leaves the work for next time: every finish queues behind it.
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
            -- The clock was ahead once and rows of that day are in the default partition, which keeps
            -- taking them.
            when check_violation then null;
            when duplicate_table or unique_violation then null; -- made by another housekeeper meanwhile
            when lock_not_available then return made;
        end;
    end loop;
    return made;
end $$;

-- Refuses a negative time. By dates: an interval of months and days with different signs has no length
-- of its own.
create or replace function leasehold.check_time(what text, given interval)
returns void
language plpgsql stable set search_path = leasehold, pg_temp as $$
begin
    if statement_timestamp() - given > statement_timestamp() then
        raise exception '% is %, which is negative', what, given
            using errcode = 'LH002', hint = 'Give a time such as interval ''7 days''.';
    end if;
end $$;

-- Drops history partitions whose last day is older than `keep`. Returns the number dropped. Every
-- finish queues behind a drop, so it waits one second at most: see `extend_history`.
create or replace function leasehold.drop_history(keep interval)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
declare
    part record;
    dropped int := 0;
begin
    perform leasehold.check_time('keep', keep);
    -- The default partition takes what no other does. Its rows must not keep the partitions from being
    -- dropped.
    begin
        delete from leasehold.history_rest where ctid = any (array(
            select h.ctid from leasehold.history_rest h
             where h.finished_at < statement_timestamp() - keep limit 20000));
    exception when lock_not_available then null;
    end;
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

-- Fires one slot of a schedule: moves `next_slot` from the value the caller saw and inserts the job,
-- both or neither. Returns null if another worker fired it, or the schedule was paused or removed. A
-- schedule that a transaction has locked is left for the next look: the others must not wait for it.
create or replace function leasehold.fire_schedule(
    of_name text, slot timestamptz, following timestamptz, passed bigint default 0, with_job boolean default true
)
returns bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
declare
    entry leasehold.schedule;
    made bigint;
begin
    update leasehold.schedule s
       set next_slot = following, moved_at = statement_timestamp(),
           missed_slots = s.missed_slots + passed,
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

-- Returns schedules that code declared and no running worker declares any more. They still fire.
create or replace function leasehold.undeclared_schedules()
returns table (name text, declared_by text, last_declared_at timestamptz)
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select s.name, s.declared_by, s.last_declared_at from leasehold.schedule s
     where s.declared_by is not null and s.paused_at is null
       and s.last_declared_at < statement_timestamp() - interval '1 day'
     order by s.name limit 1000
$$;

-- Removes a schedule that code declared and declares no longer. Returns false if there is none, or an
-- operator added it.
create or replace function leasehold.retire_schedule(name text, actor text)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
declare
    gone leasehold.schedule;
begin
    delete from leasehold.schedule s where s.name = name and s.declared_by is not null
    returning * into gone;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'retire', 'schedule ' || gone.name, concat_ws(' ', gone.cron, gone.zone, gone.job_name));
    return true;
end $$;

-- Records that a worker is alive.
create or replace function leasehold.register_worker(
    of_id text, of_name text, of_host text, of_pid int, of_version text, of_queues text[],
    of_names text[], of_slots int, is_busy int, is_draining boolean
)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold.worker as w
        (id, name, host, pid, version, queues, names, slots, busy, draining_since)
    values (left(of_id, 200), left(of_name, 200), left(of_host, 200), of_pid, left(of_version, 200),
            -- Readers expect names: a null among them would break every list of workers.
            array_remove(of_queues, null), array_remove(of_names, null), greatest(of_slots, 0),
            greatest(is_busy, 0),
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
