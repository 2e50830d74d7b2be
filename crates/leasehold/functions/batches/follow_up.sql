-- Follow-ups: jobs as JSON objects, stored with a batch and enqueued when it closes.

-- Refuses a follow-up that could not be enqueued: it would keep its batch from being closed. `what`: the
-- parameter that holds it.
create or replace function leasehold_internal.check_follow_up(draft jsonb, what text)
returns void
language plpgsql stable set search_path = leasehold, pg_temp as $$
declare
    known text[] := array['name', 'kwargs', 'queue', 'priority', 'tag', 'max_attempts', 'limit_key',
                          'trace_context', 'scheduled_at', 'run_after', 'expire_after',
                          'on_success', 'on_end', 'on_death'];
    unknown text;
    field text;
    kind text;
begin
    if draft is null then
        return;
    end if;
    if jsonb_typeof(draft) <> 'object' then
        raise exception '% is a JSON %; it must be an object', what, jsonb_typeof(draft)
            using errcode = 'LH002', constraint = 'LH002',
                  hint = 'Write a job: {"name": "report.send", "kwargs": {"id": 7}}.';
    end if;
    -- The concatenation is a copy that is not compressed: see `check_kwargs_size`.
    if pg_column_size(draft || '{}') > 65536 then
        raise exception '% takes % bytes; it must take at most 64 KiB, with the jobs that follow it',
            what, pg_column_size(draft || '{}')
            using errcode = 'LH002', constraint = 'LH002',
                  hint = 'Store the bulk elsewhere and give the job a reference to it.';
    end if;
    select k into unknown from jsonb_object_keys(draft) as k where k <> all (known) limit 1;
    if found then
        raise exception '% has the field %; a follow-up has no such field', what, quote_literal(unknown)
            using errcode = 'LH002', constraint = 'LH002',
                  hint = 'Use some of ' || array_to_string(known, ', ') || '.';
    end if;
    for field, kind in
        select f.name, f.kind from (values
            ('name', 'string'), ('kwargs', 'object'), ('queue', 'string'), ('priority', 'number'),
            ('tag', 'string'), ('max_attempts', 'number'), ('limit_key', 'string'),
            ('trace_context', 'string'), ('scheduled_at', 'string'), ('run_after', 'number'),
            ('expire_after', 'number')) as f (name, kind)
         where jsonb_typeof(draft -> f.name) <> 'null' and jsonb_typeof(draft -> f.name) <> f.kind
    loop
        raise exception '%.% is %; it must be a JSON %', what, field, left((draft -> field)::text, 100), kind
            using errcode = 'LH002', constraint = 'LH002', hint = 'Leave it out for the default.';
    end loop;
    perform leasehold_internal.check_enqueue(
        draft ->> 'name', coalesce(nullif(draft -> 'kwargs', 'null'), '{}'), coalesce(draft ->> 'queue', 'default'));
    perform leasehold_internal.check_options(
        coalesce(draft ->> 'tag', ''), (draft ->> 'max_attempts')::int,
        coalesce((draft ->> 'scheduled_at')::timestamptz, statement_timestamp()), null);
    perform leasehold_internal.check_limit_key(draft ->> 'limit_key');
    perform (draft ->> 'priority')::int;
    if octet_length(draft ->> 'trace_context') > 1024 then
        raise exception '%.trace_context has % bytes', what, octet_length(draft ->> 'trace_context')
            using errcode = 'LH002', constraint = 'LH002', hint = 'A trace context has at most 1,024 bytes.';
    end if;
    for field in select unnest(array['run_after', 'expire_after']) loop
        if (draft ->> field)::numeric not between 0 and 315360000 then
            raise exception '%.% is % s; it must be between 0 and ten years', what, field, draft ->> field
                using errcode = 'LH002', constraint = 'LH002', hint = 'Give it in seconds.';
        end if;
    end loop;
    if (draft ->> 'expire_after')::numeric = 0 then
        raise exception '%.expire_after is 0; the job could never start', what
            using errcode = 'LH002', constraint = 'LH002', hint = 'Leave it out for 30 days.';
    end if;
    foreach field in array array['on_success', 'on_end', 'on_death'] loop
        -- 100 jobs in a row, each inside the one before.
        if length(what) > 1100 then
            raise exception 'more than 100 follow-ups are inside each other'
                using errcode = 'LH002', constraint = 'LH002', hint = 'Let the last job enqueue the others.';
        end if;
        perform leasehold_internal.check_follow_up(nullif(draft -> field, 'null'), what || '.' || field);
    end loop;
exception when invalid_text_representation or numeric_value_out_of_range or datetime_field_overflow
            or invalid_datetime_format then
    raise exception '% holds a value that cannot be read: %', what, sqlerrm
        using errcode = 'LH002', constraint = 'LH002',
              hint = 'Numbers are whole, run_after and expire_after are seconds, scheduled_at is a time with a zone.';
end $$;

-- Enqueues a follow-up that was checked. Returns the id of the job.
create or replace function leasehold_internal.enqueue_follow_up(draft jsonb)
returns bigint
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    due timestamptz := greatest(
        statement_timestamp() + make_interval(secs => coalesce((draft ->> 'run_after')::float8, 0)),
        (draft ->> 'scheduled_at')::timestamptz);
begin
    return (select e.job_id from leasehold.enqueue(
        name => draft ->> 'name', kwargs => coalesce(nullif(draft -> 'kwargs', 'null'), '{}'),
        queue => coalesce(draft ->> 'queue', 'default'), priority => coalesce((draft ->> 'priority')::int, 0),
        scheduled_at => due, expires_at => due + make_interval(secs => (draft ->> 'expire_after')::float8),
        tag => coalesce(draft ->> 'tag', ''), max_attempts => (draft ->> 'max_attempts')::int,
        trace_context => draft ->> 'trace_context', limit_key => draft ->> 'limit_key',
        on_success => nullif(draft -> 'on_success', 'null'), on_end => nullif(draft -> 'on_end', 'null'),
        on_death => nullif(draft -> 'on_death', 'null')) e);
end $$;
