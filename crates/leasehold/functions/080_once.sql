-- Durable once-markers for handlers.

-- Begins a step. Returns 'started' to the first caller; 'unfinished' when an earlier attempt began and
-- it is unknown whether its effect took place; 'finished' with the stored result.
create or replace function leasehold.once_start(
    in_scope text, of_step text, by_job bigint, generation bigint, keep interval default interval '30 days'
)
returns table (state text, result jsonb)
language plpgsql volatile security definer set search_path = leasehold, pg_temp set enable_seqscan = off as $$
begin
    insert into leasehold.once_marker as m (scope, step, job_id, lease_generation, keep_until)
    values (in_scope, of_step, by_job, generation, statement_timestamp() + keep)
    on conflict (scope, step) do nothing;
    if found then
        state := 'started';
        return next;
        return;
    end if;
    select case when m.finished_at is null then 'unfinished' else 'finished' end, m.result
      into state, result
      from leasehold.once_marker m where m.scope = in_scope and m.step = of_step;
    return next;
end $$;

-- Finishes a step with its result; the first result stays. Returns false if it was finished before.
create or replace function leasehold.once_finish(in_scope text, of_step text, with_result jsonb)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp set enable_seqscan = off as $$
begin
    update leasehold.once_marker m set finished_at = statement_timestamp(), result = with_result
     where m.scope = in_scope and m.step = of_step and m.finished_at is null;
    return found;
end $$;

-- Forgets a step whose effect is known not to have taken place. Finished steps stay.
create or replace function leasehold.once_forget(in_scope text, of_step text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp set enable_seqscan = off as $$
begin
    delete from leasehold.once_marker m
     where m.scope = in_scope and m.step = of_step and m.finished_at is null;
    return found;
end $$;
