-- Actions of operators on schedules. Each one records its actor.

-- Adds a schedule; replaces one of the same name only if `replace` is true. A paused schedule stays paused.
-- Returns false if there is one already.
create or replace function leasehold.add_schedule(
    name text, cron text, zone text, queue text, job_name text, kwargs jsonb, priority int, missed text,
    next_slot timestamptz, actor text, why text default null, replace boolean default false
)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
begin
    -- A worker parses the pattern; what it cannot parse would fail in every tick.
    if cron !~ '^\s*(@[a-z]+|(\S+\s+){4}\S+)\s*$' then
        raise exception 'cron is %; it must be five fields or a name such as @daily', quote_literal(cron)
            using errcode = 'LH002', constraint = 'LH002',
                  hint = 'Use "leasehold schedules add", which checks every field and computes next_slot.';
    end if;
    -- By name: the worker, which computes the slots, knows neither abbreviations nor offsets.
    if not exists (select from pg_timezone_names z where z.name = zone) then
        raise exception 'there is no time zone %', coalesce(quote_literal(zone), 'null')
            using errcode = 'LH002', constraint = 'LH002', hint = 'Use a name such as Europe/Berlin, or UTC.';
    end if;
    perform leasehold_internal.check_actor(actor);
    perform leasehold_internal.check_enqueue(job_name, kwargs, queue);
    if coalesce(next_slot not between timestamptz '0001-01-01 00:00Z' and timestamptz '9999-01-01 00:00Z', true) then
        raise exception 'next_slot is %; it must be a date before the year 9999', coalesce(next_slot::text, 'null')
            using errcode = 'LH002', constraint = 'LH002',
                  hint = 'Use "leasehold schedules add", which computes it.';
    end if;
    if coalesce(missed not in ('skip', 'once', 'all'), true) then
        raise exception 'missed is %; it must be skip, once or all', coalesce(quote_literal(missed), 'null')
            using errcode = 'LH002', constraint = 'LH002',
                  hint = 'missed decides what happens to slots that passed while no worker ran.';
    end if;
    insert into leasehold_internal.schedule as s
        (name, cron, zone, queue, job_name, kwargs, priority, missed, next_slot)
    values (name, cron, zone, queue, job_name, kwargs, priority, missed, next_slot)
    on conflict on constraint schedule_pkey do update
        set cron = excluded.cron, zone = excluded.zone, queue = excluded.queue,
            job_name = excluded.job_name, kwargs = excluded.kwargs, priority = excluded.priority,
            missed = excluded.missed, next_slot = excluded.next_slot,
            -- It belongs to the operator until a worker that declares it starts again.
            declared_by = null, last_declared_at = null
        where replace;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'add', 'schedule ' || name, concat_ws(' ', cron, zone, job_name, why));
    return true;
end $$;

-- Pauses a schedule. Returns false if there is none, or it is paused already.
create or replace function leasehold.pause_schedule(name text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
begin
    perform leasehold_internal.check_actor(actor);
    update leasehold_internal.schedule s set paused_at = statement_timestamp(), paused_by = actor, paused_why = why
     where s.name = name and s.paused_at is null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'pause', 'schedule ' || name, why);
    return true;
end $$;

-- Resumes a schedule. Returns false if there is none, or it is not paused.
create or replace function leasehold.resume_schedule(name text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
begin
    update leasehold_internal.schedule s set paused_at = null, paused_by = null, paused_why = null
     where s.name = name and s.paused_at is not null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'resume', 'schedule ' || name, why);
    return true;
end $$;

-- Removes a schedule; jobs that it made stay. Returns false if there is none.
create or replace function leasehold.remove_schedule(name text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
declare
    removed leasehold_internal.schedule;
begin
    delete from leasehold_internal.schedule s where s.name = name returning s.* into removed;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'remove', 'schedule ' || name,
            concat_ws(' ', removed.cron, removed.zone, removed.job_name, why));
    return true;
end $$;

-- Enqueues the job of a schedule now, paused or not; its slots stay as they are. Returns the id of the job,
-- or null if there is no such schedule.
create or replace function leasehold.run_schedule(name text, actor text, why text default null)
returns bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
declare
    entry leasehold_internal.schedule;
    made bigint;
begin
    select s.* into entry from leasehold_internal.schedule s where s.name = name for update;
    if not found then
        return null;
    end if;
    insert into leasehold.job as j (name, kwargs, queue, priority, tag)
    values (entry.job_name, entry.kwargs, entry.queue, entry.priority, entry.tag)
    returning j.id into made;
    update leasehold_internal.schedule s set last_job_id = made where s.name = entry.name;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'run', 'schedule ' || name, concat_ws(': ', 'job ' || made, why));
    return made;
end $$;
