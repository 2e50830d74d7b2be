-- Refuses a job whose name is reserved: an order to a mirror, or a job of the engine itself. Only a
-- role that may call the function that creates such a job may enqueue it.
--
-- The caller is the role that inserts. Inside a function that runs as the owner, such as `enqueue`, it
-- is the role of the session: the owner's own rights prove nothing about the caller. Producers enqueue
-- canaries, and no worker handles the self-test of `leasehold doctor`: the trigger leaves both out.
create or replace function leasehold_internal.check_reserved_name()
returns trigger
language plpgsql set search_path = leasehold, pg_temp as $$
declare
    owner name := (select pg_get_userbyid(c.relowner) from pg_class c where c.oid = tg_relid);
    caller name := current_user;
    -- A schedule has its own name, and enqueues jobs of another.
    wanted text := coalesce(to_jsonb(new) ->> 'job_name', new.name);
    is_order boolean := wanted like 'mirror.%.order';
begin
    if pg_has_role(current_user, owner, 'usage') then
        caller := case current_setting('role') when 'none' then session_user
                       else current_setting('role')::name end;
    end if;
    if exists (select from pg_proc p
                where p.pronamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace)
                  and p.proname = any (case when is_order then array['order_mirror']
                                            else array['apply_alarms', 'test_alarm'] end)
                  and has_function_privilege(caller, p.oid, 'execute')) then
        return null;
    end if;
    raise exception 'job name % is reserved, and role % may not enqueue it', quote_literal(wanted), caller
        using errcode = 'insufficient_privilege',
              hint = case when is_order
                  then 'Run leasehold mirrors check, rebuild, rollback or drop with the role leasehold_operator.'
                  else 'Choose a name that does not begin with leasehold.' end;
end $$;

-- After the row and not before it: a trigger before would make COPY store its rows one by one. Created
-- only once: CREATE TRIGGER locks the table.
do $$ begin
    if not exists (select from pg_trigger t
                    where t.tgrelid = 'leasehold.job'::regclass and t.tgname = 'job_reserved_name') then
        create trigger job_reserved_name after insert on leasehold.job
            for each row
            when ((new.name like 'leasehold.%'
                   and new.name not in ('leasehold.canary', 'leasehold.self_test'))
                  or new.name like 'mirror.%.order')
            execute function leasehold_internal.check_reserved_name();
    end if;
    -- Check the writer too, of the name and of the kwargs: the role that fires the schedule may have more
    -- rights. That role is checked like every other one that enqueues.
    if not exists (select from pg_trigger t
                    where t.tgrelid = 'leasehold_internal.schedule'::regclass
                      and t.tgname = 'schedule_reserved_name') then
        create trigger schedule_reserved_name
            after insert or update of job_name, kwargs on leasehold_internal.schedule
            for each row
            when (new.job_name like 'leasehold.%' or new.job_name like 'mirror.%.order')
            execute function leasehold_internal.check_reserved_name();
    end if;
end $$;
