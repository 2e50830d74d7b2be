-- Fires one slot of a schedule: moves `next_slot` from the value the caller saw and inserts the job,
-- both or neither. Returns null if another worker fired it, or the schedule was paused or removed. A
-- schedule that a transaction has locked is left for the next look: the others must not wait for it.
create or replace function leasehold_internal.fire_schedule(
    name text, slot timestamptz, following timestamptz, passed bigint default 0, enqueues boolean default true
)
returns bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_column
declare
    entry leasehold_internal.schedule;
    made bigint;
begin
    update leasehold_internal.schedule s
       set next_slot = following, moved_at = statement_timestamp(),
           missed_slots = s.missed_slots + passed,
           last_slot = case when enqueues then slot else s.last_slot end
     where s.name = fire_schedule.name and s.next_slot = slot and s.paused_at is null
    returning * into entry;
    if not found then
        return null;
    end if;
    if not enqueues then
        return 0;
    end if;
    insert into leasehold.job as j (name, kwargs, queue, priority, tag)
    values (entry.job_name, entry.kwargs, entry.queue, entry.priority, entry.tag)
    returning j.id into made;
    update leasehold_internal.schedule s set last_job_id = made where s.name = fire_schedule.name;
    return made;
end $$;

-- Returns schedules that code declared and no running worker declares any more. They still fire.
create or replace function leasehold_internal.undeclared_schedules()
returns table (name text, declared_by text, last_declared_at timestamptz)
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select s.name, s.declared_by, s.last_declared_at from leasehold_internal.schedule s
     where s.declared_by is not null and s.paused_at is null
       and s.last_declared_at < statement_timestamp() - interval '1 day'
     order by s.name limit 1000
$$;

-- Removes a schedule that code declared and declares no longer. Returns false if there is none, or an
-- operator added it.
create or replace function leasehold_internal.retire_schedule(name text, actor text)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
declare
    gone leasehold_internal.schedule;
begin
    delete from leasehold_internal.schedule s where s.name = name and s.declared_by is not null
    returning * into gone;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'retire', 'schedule ' || gone.name, concat_ws(' ', gone.cron, gone.zone, gone.job_name));
    return true;
end $$;
