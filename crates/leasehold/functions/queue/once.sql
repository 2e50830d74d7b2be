-- Durable once-markers for handlers.

-- Begins a step. Returns 'started' to the first caller; 'unfinished' when an earlier attempt began and
-- it is unknown whether its effect took place; 'finished' with the stored result.
create or replace function leasehold.once_start(
    scope text, step text, job_id bigint, generation bigint, keep interval default interval '30 days'
)
returns table (state text, result jsonb)
language plpgsql volatile security definer set search_path = leasehold, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
begin
    -- Ends after the first turn, unless another caller forgets the step between the two statements.
    loop
        insert into leasehold_internal.once_marker as m (scope, step, job_id, lease_generation, keep_until)
        values (once_start.scope, once_start.step, once_start.job_id, generation, statement_timestamp() + keep)
        on conflict (scope, step) do nothing;
        if found then
            state := 'started';
            exit;
        end if;
        select case when m.finished_at is null then 'unfinished' else 'finished' end, m.result
          into state, result
          from leasehold_internal.once_marker m where m.scope = once_start.scope and m.step = once_start.step;
        exit when found;
    end loop;
    return next;
end $$;

-- Finishes a step with its result; the first result stays. Returns false if it was finished before.
create or replace function leasehold.once_finish(scope text, step text, result jsonb)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
begin
    update leasehold_internal.once_marker m set finished_at = statement_timestamp(), result = once_finish.result
     where m.scope = once_finish.scope and m.step = once_finish.step and m.finished_at is null;
    return found;
end $$;

-- Forgets a step whose effect is known not to have taken place. Finished steps stay.
create or replace function leasehold.once_forget(scope text, step text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
begin
    delete from leasehold_internal.once_marker m
     where m.scope = once_forget.scope and m.step = once_forget.step and m.finished_at is null;
    return found;
end $$;
