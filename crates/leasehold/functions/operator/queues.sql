-- Actions of operators on queues. Each one records its actor.

-- Refuses an action without an actor, and bounds what is stored about it.
create or replace function leasehold_internal.check_actor(actor text)
returns void
language plpgsql immutable set search_path = leasehold, pg_temp as $$
begin
    if coalesce(actor, '') = '' or octet_length(actor) > 200 then
        raise exception 'actor is %; it must have 1 to 200 bytes', coalesce(quote_literal(left(actor, 80)), 'null')
            using errcode = 'LH002', constraint = 'LH002', hint = 'Pass the name of the operator; it is recorded in leasehold.audit.';
    end if;
end $$;

-- The same for every row of the audit log, so that no action is recorded without an actor. A long name is cut:
-- the id of a worker may have any length, and its schedules must still be retired.
create or replace function leasehold_internal.check_audit()
returns trigger
language plpgsql set search_path = leasehold, pg_temp as $$
begin
    new.actor := left(new.actor, 100);
    if octet_length(new.actor) > 200 then
        new.actor := left(new.actor, 50);
    end if;
    perform leasehold_internal.check_actor(new.actor);
    new.detail := left(new.detail, 4096);
    return new;
end $$;

do $$ begin
    if not exists (select from pg_trigger t
                    where t.tgrelid = 'leasehold.audit'::regclass and t.tgname = 'audit_has_an_actor') then
        create trigger audit_has_an_actor before insert on leasehold.audit
            for each row execute function leasehold_internal.check_audit();
    end if;
end $$;

-- Returns a time within bounds, or raises an error that names them.
create or replace function leasehold_internal.check_setting(name text, value interval, least_value interval)
returns interval
language plpgsql stable set search_path = leasehold, pg_temp as $$
begin
    if value > interval '1 year' or statement_timestamp() + value < statement_timestamp() + least_value then
        raise exception '% is %; it must be between % and 1 year', name, value, least_value
            using errcode = 'LH002', constraint = 'LH002', hint = 'Leave it out to keep the present value.';
    end if;
    return value;
end $$;

-- The same for a number, which is at least 1.
create or replace function leasehold_internal.check_count(name text, value int)
returns void
language plpgsql immutable set search_path = leasehold, pg_temp as $$
begin
    if value < 1 then
        raise exception '% is %; it must be at least 1', name, value
            using errcode = 'LH002', constraint = 'LH002', hint = 'Leave it out to keep the present value.';
    end if;
end $$;

-- Stops claims from a queue; running jobs continue. Returns false if it was paused already.
create or replace function leasehold.pause(queue text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_variable
begin
    perform leasehold_internal.check_actor(actor);
    perform leasehold_internal.check_new_queue(queue);
    perform leasehold_internal.queue_settings(queue);
    update leasehold_internal.queue q set paused_at = statement_timestamp(), paused_by = actor, paused_why = why
     where q.name = queue and q.paused_at is null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'pause', 'queue ' || queue, why);
    return true;
end $$;

-- Resumes claims. Returns false if the queue was not paused.
create or replace function leasehold.resume(queue text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_variable
begin
    update leasehold_internal.queue q set paused_at = null, paused_by = null, paused_why = null
     where q.name = queue and q.paused_at is not null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'resume', 'queue ' || queue, why);
    perform leasehold_internal.wake(queue);
    return true;
end $$;

-- Changes the settings of a queue and inserts its row if there is none. Null leaves a setting as it is; an
-- empty text removes a name. Returns whether a setting changed.
create or replace function leasehold.set_queue(
    queue text, actor text, why text default null, lease interval default null,
    max_attempts int default null, max_lost int default null, claim_size int default null,
    run_limit interval default null, backoff_base interval default null,
    backoff_cap interval default null, keep_history boolean default null,
    display_name text default null, owner text default null
)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_variable
declare
    former leasehold_internal.queue;
    settings leasehold_internal.queue;
begin
    perform leasehold_internal.check_actor(actor);
    perform leasehold_internal.check_new_queue(queue);
    former := leasehold_internal.queue_settings(queue);
    settings := former;
    if (backoff_base is not null or backoff_cap is not null)
       and coalesce(backoff_base, settings.backoff_base) > coalesce(backoff_cap, settings.backoff_cap) then
        raise exception 'backoff_base is %; it must be at most backoff_cap, which is %',
            coalesce(backoff_base, settings.backoff_base), coalesce(backoff_cap, settings.backoff_cap)
            using errcode = 'LH002', constraint = 'LH002', hint = 'Set both.';
    end if;
    perform leasehold_internal.check_count('max_attempts', max_attempts);
    perform leasehold_internal.check_count('max_lost', max_lost);
    perform leasehold_internal.check_count('claim_size', set_queue.claim_size);
    update leasehold_internal.queue q
       -- As days and seconds: a month has another length in each month.
       set lease = coalesce(statement_timestamp() + leasehold_internal.check_lease_length(lease)
                            - statement_timestamp(), q.lease),
           max_attempts = coalesce(max_attempts, q.max_attempts),
           max_lost = coalesce(max_lost, q.max_lost),
           claim_size = coalesce(set_queue.claim_size, q.claim_size),
           run_limit = coalesce(leasehold_internal.check_setting('run_limit', run_limit, interval '1 second'),
                                q.run_limit),
           backoff_base = coalesce(leasehold_internal.check_setting('backoff_base', backoff_base, interval '0'),
                                   q.backoff_base),
           backoff_cap = coalesce(leasehold_internal.check_setting('backoff_cap', backoff_cap, interval '0'),
                                  q.backoff_cap),
           keep_history = coalesce(keep_history, q.keep_history),
           display_name = nullif(coalesce(display_name, q.display_name), ''),
           owner = nullif(coalesce(owner, q.owner), '')
     where q.name = queue
    returning q.* into settings;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'set', 'queue ' || queue, concat_ws(', ',
        'lease ' || lease, 'max_attempts ' || max_attempts, 'max_lost ' || max_lost,
        'claim_size ' || claim_size, 'run_limit ' || run_limit, 'backoff_base ' || backoff_base,
        'backoff_cap ' || backoff_cap, 'keep_history ' || keep_history, 'display_name ' || display_name,
        'owner ' || owner, why));
    return settings is distinct from former;
end $$;
