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
    -- A worker that ends the batch may have more rights than the role that opened it.
    if draft ->> 'name' like 'mirror.%.order'
       or (draft ->> 'name' like 'leasehold.%' and draft ->> 'name' not in ('leasehold.canary', 'leasehold.self_test')) then
        raise exception '%.name is %, which is reserved', what, quote_literal(draft ->> 'name')
            using errcode = 'LH002', constraint = 'LH002', hint = 'Choose another name.';
    end if;
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
--
-- Not through `leasehold.enqueue`: a debounce or a throttle of the limit key would return another job, and
-- `max_waiting` would keep the batch from being closed.
create or replace function leasehold_internal.enqueue_follow_up(draft jsonb)
returns bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_variable
declare
    job_id bigint;
    name text := draft ->> 'name';
    queue text := coalesce(draft ->> 'queue', 'default');
    limit_key text := draft ->> 'limit_key';
    due timestamptz := greatest(
        statement_timestamp() + make_interval(secs => coalesce((draft ->> 'run_after')::float8, 0)),
        (draft ->> 'scheduled_at')::timestamptz);
    on_success jsonb := nullif(draft -> 'on_success', 'null');
    on_end jsonb := nullif(draft -> 'on_end', 'null');
    on_death jsonb := nullif(draft -> 'on_death', 'null');
    next_batch bigint;
begin
    if limit_key is null and exists (select from leasehold_internal.queue q where q.name = queue and q.is_limited) then
        limit_key := leasehold_internal.key_of_name(queue, name);
    end if;
    if coalesce(on_success, on_end, on_death) is not null then
        next_batch := leasehold_internal.open_batch_of_one(on_success, on_end, on_death);
    end if;
    insert into leasehold.job as j
        (name, kwargs, queue, priority, scheduled_at, expires_at, tag, max_attempts, trace_context,
         limit_key, batch_id)
    values (name, coalesce(nullif(draft -> 'kwargs', 'null'), '{}'), queue,
            coalesce((draft ->> 'priority')::int, 0), due,
            due + coalesce(make_interval(secs => (draft ->> 'expire_after')::float8), interval '30 days'),
            coalesce(draft ->> 'tag', ''), (draft ->> 'max_attempts')::int, draft ->> 'trace_context',
            limit_key, next_batch)
    returning j.id into job_id;
    if next_batch is not null then
        perform leasehold_internal.add_only_member(next_batch, job_id);
    end if;
    if limit_key is not null then
        perform leasehold_internal.jobs_stored(array[job_id], queue, limit_key, due, null);
    end if;
    return job_id;
end $$;
