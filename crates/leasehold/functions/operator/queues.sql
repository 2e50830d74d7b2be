-- Actions of operators on queues. Each one records its actor.

-- Stops claims from a queue; running jobs continue. Returns false if it was paused already.
create or replace function leasehold.pause(queue text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_variable
begin
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
    perform leasehold.wake(queue);
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
    former leasehold_internal.queue := leasehold_internal.queue_settings(queue);
    settings leasehold_internal.queue;
begin
    update leasehold_internal.queue q
       set lease = coalesce(lease, q.lease),
           max_attempts = coalesce(max_attempts, q.max_attempts),
           max_lost = coalesce(max_lost, q.max_lost),
           claim_size = coalesce(set_queue.claim_size, q.claim_size),
           run_limit = coalesce(run_limit, q.run_limit),
           backoff_base = coalesce(backoff_base, q.backoff_base),
           backoff_cap = coalesce(backoff_cap, q.backoff_cap),
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
