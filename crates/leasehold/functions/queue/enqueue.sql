-- Enqueues one job in the caller's transaction.
--
-- Without a key every call creates a job. With a key, the first call creates the job and later ones
-- return its id: the key is taken while the job waits or runs, and for `key_ttl` after the enqueue. The
-- same key with another name or other kwargs is refused.
--
-- With a follow-up the job is a batch of one: see `leasehold.open_batch`.
--
-- An error carries its code as the name of a constraint too: some drivers do not pass on SQLSTATE.
create or replace function leasehold.enqueue(
    name text,
    kwargs jsonb default '{}'::jsonb,
    queue text default 'default',
    priority int default 0,
    scheduled_at timestamptz default null,
    expires_at timestamptz default null,
    tag text default '',
    max_attempts int default null,
    key text default null,
    key_ttl interval default interval '24 hours',
    trace_context text default null,
    limit_key text default null,
    batch bigint default null,
    on_success jsonb default null,
    on_end jsonb default null,
    on_death jsonb default null
)
returns table (job_id bigint, inserted boolean)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_variable
declare
    due timestamptz := coalesce(scheduled_at, statement_timestamp());
    expiry timestamptz := coalesce(
        expires_at, greatest(due, statement_timestamp()) + interval '30 days');
    digest bytea;
    known leasehold_internal.idempotency_key;
    rule leasehold_internal.limit_rule;
    limited boolean := false;
    followed boolean := on_success is not null or on_end is not null or on_death is not null;
begin
    perform leasehold_internal.check_enqueue(name, kwargs, queue);
    perform leasehold_internal.check_options(tag, max_attempts, due, key);
    perform leasehold_internal.check_expiry(due, expires_at);
    priority := coalesce(priority, 0);
    key_ttl := coalesce(key_ttl, interval '24 hours');
    if key_ttl not between interval '0' and interval '10 years' then
        raise exception 'key_ttl is %; it must be between 0 and 10 years', key_ttl
            using errcode = 'LH002', constraint = 'LH002', hint = 'Leave it out for 24 hours.';
    end if;
    if octet_length(trace_context) > 1024 then
        raise exception 'this trace context has % bytes', octet_length(trace_context)
            using errcode = 'LH002', constraint = 'LH002', hint = 'A trace context has at most 1,024 bytes.';
    end if;
    perform leasehold_internal.check_limit_key(limit_key);
    if followed and batch is not null then
        raise exception 'a job of batch % cannot have follow-ups of its own', batch
            using errcode = 'LH002', constraint = 'LH002',
                  hint = 'Give them to the batch, or let a follow-up of the batch be followed.';
    end if;
    if exists (select from leasehold_internal.queue q where q.name = queue and q.is_limited) then
        limited := true;
        limit_key := coalesce(limit_key, leasehold_internal.key_of_name(queue, name));
    end if;
    if limit_key is not null then
        rule := leasehold_internal.limit_rule_of(queue, limit_key);
        limited := limited or rule.key is not null;
    end if;
    if rule.debounce is not null then
        due := greatest(due, statement_timestamp() + rule.debounce);
        expiry := coalesce(expires_at, due + interval '30 days');
        if key is null and batch is null and not followed then
            job_id := leasehold_internal.debounce_job(
                name, kwargs, queue, priority, due, expiry, tag, max_attempts, trace_context, limit_key,
                rule.debounce_max);
            if job_id is not null then
                inserted := false;
                return next;
                return;
            end if;
        end if;
    end if;
    if key is null then
        if rule.throttle is not null and batch is null and not followed then
            job_id := nextval('leasehold.job_id_seq');
            -- Waits for a transaction that stores a job of the same key.
            insert into leasehold_internal.limit_throttle as t (queue, key, job_id, ends_at)
            values (queue, limit_key, job_id, statement_timestamp() + rule.throttle)
            on conflict on constraint limit_throttle_pkey do update
                set job_id = excluded.job_id, ends_at = excluded.ends_at
                where t.ends_at <= statement_timestamp() or t.ends_at > excluded.ends_at + rule.throttle;
            if not found then
                select t.job_id into job_id from leasehold_internal.limit_throttle t
                 where t.queue = enqueue.queue and t.key = enqueue.limit_key;
                inserted := false;
                return next;
                return;
            end if;
            perform leasehold_internal.check_waiting(queue, limit_key, rule, 1);
            insert into leasehold.job
                (id, name, kwargs, queue, priority, scheduled_at, expires_at, tag, max_attempts, trace_context,
                 limit_key)
            overriding system value
            values (job_id, name, kwargs, queue, priority, due, expiry, tag, max_attempts, trace_context, limit_key);
            perform leasehold_internal.jobs_stored(array[job_id], queue, limit_key, due, batch);
            inserted := true;
            return next;
            return;
        end if;
        if limited then
            perform leasehold_internal.check_waiting(queue, limit_key, rule, 1);
        end if;
        if followed then
            batch := leasehold_internal.open_batch_of_one(on_success, on_end, on_death);
        end if;
        insert into leasehold.job as j
            (name, kwargs, queue, priority, scheduled_at, expires_at, tag, max_attempts, trace_context,
             limit_key, batch_id)
        values (name, kwargs, queue, priority, due, expiry, tag, max_attempts, trace_context, limit_key, batch)
        returning j.id into job_id;
        if followed then
            perform leasehold_internal.add_only_member(batch, job_id);
            batch := null;
        end if;
        if limit_key is not null or batch is not null then
            perform leasehold_internal.jobs_stored(array[job_id], queue, limit_key, due, batch);
        end if;
        inserted := true;
        return next;
        return;
    end if;

    digest := leasehold_internal.request_hash(name, kwargs);
    loop
        job_id := nextval('leasehold.job_id_seq');
        -- Waits for a transaction that is inserting the same key.
        insert into leasehold_internal.idempotency_key (queue, key, job_id, request_hash, holds_until)
        values (queue, key, job_id, digest, statement_timestamp() + key_ttl)
        on conflict on constraint idempotency_key_pkey do nothing;
        if not found then
            -- Lock first and look afterwards, in two statements: a statement that waits here does not
            -- see the job that the other transaction created, considers the key free and creates a
            -- second one.
            select * into known from leasehold_internal.idempotency_key k
             where k.queue = queue and k.key = key
               for update;
            if not found then
                continue; -- the key was pruned in between
            end if;
            if known.holds_until > statement_timestamp()
               or exists (select from leasehold.job j where j.id = known.job_id) then
                if known.request_hash <> digest then
                    raise exception 'key % of queue % belongs to job %, which has another name or other kwargs',
                        quote_literal(key), quote_literal(queue), known.job_id
                        using errcode = 'LH003', constraint = 'LH003',
                              hint = 'Use a new key for a new request; repeat a request with the same name and kwargs.';
                end if;
                job_id := known.job_id;
                inserted := false;
                return next;
                return;
            end if;
            -- The key has expired and its job has finished.
            update leasehold_internal.idempotency_key k
               set job_id = job_id, request_hash = digest,
                   holds_until = statement_timestamp() + key_ttl, created_at = statement_timestamp()
             where k.queue = queue and k.key = key;
        end if;
        if limited then
            perform leasehold_internal.check_waiting(queue, limit_key, rule, 1);
        end if;
        if followed then
            batch := leasehold_internal.open_batch_of_one(on_success, on_end, on_death);
        end if;
        insert into leasehold.job
            (id, name, kwargs, queue, priority, scheduled_at, expires_at, tag, max_attempts,
             idempotency_key, trace_context, limit_key, batch_id)
        overriding system value
        values (job_id, name, kwargs, queue, priority, due, expiry, tag, max_attempts,
                key, trace_context, limit_key, batch);
        if followed then
            perform leasehold_internal.add_only_member(batch, job_id);
            batch := null;
        end if;
        if limit_key is not null or batch is not null then
            perform leasehold_internal.jobs_stored(array[job_id], queue, limit_key, due, batch);
        end if;
        inserted := true;
        return next;
        return;
    end loop;
end $$;

-- Enqueues many jobs of one queue in the caller's transaction; `keys` may hold nulls. The result is in
-- the order of the arguments.
create or replace function leasehold.enqueue_many(
    names text[],
    kwargs jsonb[],
    queue text default 'default',
    priority int default 0,
    scheduled_at timestamptz default null,
    expires_at timestamptz default null,
    tag text default '',
    max_attempts int default null,
    keys text[] default null,
    key_ttl interval default interval '24 hours',
    limit_key text default null,
    batch bigint default null
)
returns table (job_id bigint, inserted boolean)
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_variable
declare
    due timestamptz := coalesce(scheduled_at, statement_timestamp());
    expiry timestamptz := coalesce(
        expires_at, greatest(due, statement_timestamp()) + interval '30 days');
    job_ids bigint[] := array_fill(null::bigint, array[coalesce(cardinality(names), 0)]);
    new_ones boolean[] := array_fill(null::boolean, array[coalesce(cardinality(names), 0)]);
    i int;
    rule leasehold_internal.limit_rule;
    limited boolean := exists (select from leasehold_internal.queue q where q.name = queue and q.is_limited);
    one_by_one boolean := keys is not null;
begin
    if names is null or kwargs is null or cardinality(names) <> cardinality(kwargs)
       or (keys is not null and cardinality(keys) <> cardinality(names)) then
        raise exception 'names, kwargs and keys must have the same length'
            using errcode = 'LH002', constraint = 'LH002', hint = 'Pass one entry per job in each array.';
    end if;
    -- Anything else would give a job the key of another, or none.
    if array_ndims(names) > 1 or array_ndims(kwargs) > 1 or array_ndims(keys) > 1
       or array_lower(names, 1) <> 1 or array_lower(kwargs, 1) <> 1 or array_lower(keys, 1) <> 1 then
        raise exception 'names, kwargs and keys must be arrays of one dimension that begin at 1'
            using errcode = 'LH002', constraint = 'LH002', hint = 'Pass one entry per job in each array.';
    end if;
    perform leasehold_internal.check_options(tag, max_attempts, due, null);
    perform leasehold_internal.check_expiry(due, expires_at);
    perform leasehold_internal.check_limit_key(limit_key);
    priority := coalesce(priority, 0);
    for i in 1 .. cardinality(names) loop
        perform leasehold_internal.check_enqueue(names[i], kwargs[i], queue);
    end loop;
    if limit_key is not null then
        rule := leasehold_internal.limit_rule_of(queue, limit_key);
        limited := limited or rule.key is not null;
        one_by_one := one_by_one or rule.debounce is not null or rule.throttle is not null;
    elsif limited then
        one_by_one := one_by_one or coalesce(names && leasehold_internal.limited_names(queue), false);
    end if;
    if limited and not one_by_one then
        perform leasehold_internal.check_waiting(queue, limit_key, rule, cardinality(names));
    end if;
    if not one_by_one and limit_key is null and batch is null then
        return query
        insert into leasehold.job as j
            (name, kwargs, queue, priority, scheduled_at, expires_at, tag, max_attempts)
        select u.name, u.kwargs, queue, priority, due, expiry, tag, max_attempts
          from unnest(names, kwargs) as u (name, kwargs)
        returning j.id, true;
        return;
    end if;
    if not one_by_one then
        with stored as (
            insert into leasehold.job as j
                (name, kwargs, queue, priority, scheduled_at, expires_at, tag, max_attempts, limit_key, batch_id)
            select u.name, u.kwargs, queue, priority, due, expiry, tag, max_attempts, limit_key, batch
              from unnest(names, kwargs) as u (name, kwargs)
            returning j.id
        )
        select array_agg(s.id) into job_ids from stored s;
        if job_ids is not null then
            perform leasehold_internal.jobs_stored(job_ids, queue, limit_key, due, batch);
        end if;
        return query select s.id, true from unnest(job_ids) as s (id);
        return;
    end if;
    -- Every batch takes its keys in the same order, so that two batches cannot deadlock. The results
    -- are kept in arrays: a temporary table of the same name that the caller created before, with a
    -- trigger on it, would run the caller's code with the owner's rights.
    for i in select s.i from generate_subscripts(names, 1) as s (i)
             order by keys[s.i] collate "C" nulls last, s.i loop
        select e.job_id, e.inserted into job_id, inserted
          from leasehold.enqueue(names[i], kwargs[i], queue, priority, due, expiry, tag,
                                 max_attempts, keys[i], key_ttl, null, limit_key, batch) e;
        job_ids[i] := job_id;
        new_ones[i] := inserted;
    end loop;
    return query
    select u.job_id, u.inserted
      from unnest(job_ids, new_ones) with ordinality as u (job_id, inserted, position)
     order by u.position;
end $$;

-- Returns the limit key of jobs of a name that have none of their own. Null: the name has no limit.
create or replace function leasehold_internal.key_of_name(queue text, name text)
returns text
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_variable
begin
    return (select r.key from leasehold_internal.limit_rule r
             where r.queue = key_of_name.queue and r.key = key_of_name.name and r.by_name limit 1);
end $$;

-- Raises an error if `jobs` more jobs than may wait for a limit key, or for a queue, would wait. Producers do
-- not wait for each other: those that enqueue at the same time may exceed the number by what they enqueue.
create or replace function leasehold_internal.check_waiting(
    queue text, limit_key text, rule leasehold_internal.limit_rule, jobs int
)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_indexscan = on set enable_seqscan = off
set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
    most int := rule.max_waiting;
    waiting int;
begin
    if most is not null then
        waiting := (select count(*) from (
            select from leasehold.job j
             where j.queue = check_waiting.queue and j.limit_key = check_waiting.limit_key and not j.held
             limit most) w);
        if waiting + jobs > most then
            raise exception 'limit % of queue % has % waiting jobs; it may have %', limit_key, queue, waiting, most
                using errcode = 'LH005', constraint = 'LH005',
                      hint = 'Enqueue again when some have started, or raise max_waiting of the limit.';
        end if;
    end if;
    select r.max_waiting into most from leasehold_internal.limit_rule r
     where r.queue = check_waiting.queue and r.key = '' order by r.by_operator desc limit 1;
    if most is not null then
        waiting := (select count(*) from (
            (select from leasehold.job j
              where j.queue = check_waiting.queue and j.limit_key is null and not j.held limit most)
            union all
            (select from leasehold.job j
              where j.queue = check_waiting.queue and j.limit_key is not null and not j.held limit most)
            limit most) w);
        if waiting + jobs > most then
            raise exception 'queue % has % waiting jobs; it may have %', queue, waiting, most
                using errcode = 'LH005', constraint = 'LH005',
                      hint = 'Enqueue again when some have started, or raise max_waiting of the queue''s limit.';
        end if;
    end if;
end $$;

-- Replaces the newest job that waits for a debounced key and has not started: it gets the new values and a
-- later due time, but not later than `debounce_max` after its first enqueue. Returns its id. Null: there is
-- none, or another transaction has locked it; the caller then stores a job, and the look at the key makes
-- one of them.
create or replace function leasehold_internal.debounce_job(
    name text, kwargs jsonb, queue text, priority int, due timestamptz, expiry timestamptz, tag text,
    max_attempts int, trace_context text, limit_key text, debounce_max interval
)
returns bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_indexscan = on set enable_seqscan = off
set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_variable
declare
    newest tid;
    replaced bigint;
    moved timestamptz;
begin
    select n.row_at into newest from (
        select j.ctid as row_at, j.enqueued_at, j.id from leasehold.job j
         where j.queue = debounce_job.queue and j.limit_key = debounce_job.limit_key and not j.permit
           and j.name = debounce_job.name and j.attempts = 0 and not j.held and j.batch_id is null
           and j.idempotency_key is null
         limit 1000) n
     order by n.enqueued_at desc, n.id desc limit 1;
    if newest is null then
        return null;
    end if;
    update leasehold.job j
       set kwargs = debounce_job.kwargs, priority = debounce_job.priority, tag = debounce_job.tag,
           max_attempts = debounce_job.max_attempts, trace_context = debounce_job.trace_context,
           scheduled_at = greatest(least(due, j.enqueued_at + debounce_max), statement_timestamp()),
           expires_at = expiry
     where j.ctid = any (array(
            select w.ctid from leasehold.job w
             where w.ctid = newest and not w.held and w.attempts = 0 and w.limit_key = debounce_job.limit_key
               for update skip locked))
       and not j.held
    returning j.id, j.scheduled_at into replaced, moved;
    if replaced is not null then
        perform leasehold_internal.signal_key(queue, limit_key, moved);
    end if;
    return replaced;
end $$;

-- Raises an error if a queue must not have this name. A plain INSERT checks only the length, because a
-- pattern would cost every job; so whatever acts on a queue that exists takes any name.
create or replace function leasehold_internal.check_queue_name(queue text)
returns void
language plpgsql immutable set search_path = leasehold, pg_temp as $$
begin
    if queue is null or queue !~ '^[a-z0-9][a-z0-9_.-]{0,63}$' then
        raise exception 'queue name % is not allowed', coalesce(quote_literal(left(queue, 80)), 'null')
            using errcode = 'LH001', constraint = 'LH001',
                  hint = 'Use 1 to 64 of a-z, 0-9, dot, dash and underscore, starting with a letter or digit.';
    end if;
end $$;

-- The same unless the queue exists: it has settings, or a job.
create or replace function leasehold_internal.check_new_queue(queue text)
returns void
language plpgsql stable set search_path = leasehold, pg_temp set enable_seqscan = off as $$
#variable_conflict use_variable
begin
    if not exists (select from leasehold_internal.queue q where q.name = queue)
       and not exists (select from leasehold.job j where j.queue = queue) then
        perform leasehold_internal.check_queue_name(queue);
    end if;
end $$;

-- Raises an error if the name, the kwargs or the queue of a job is invalid.
create or replace function leasehold_internal.check_enqueue(name text, kwargs jsonb, queue text)
returns void
language plpgsql immutable set search_path = leasehold, pg_temp as $$
begin
    perform leasehold_internal.check_queue_name(queue);
    if name is null or name = '' or octet_length(name) > 200 then
        raise exception 'name has % bytes; it must have 1 to 200', coalesce(octet_length(name)::text, 'no')
            using errcode = 'LH002', constraint = 'LH002',
                  hint = 'Name the job after what it does, such as email.send.';
    end if;
    if kwargs is null or jsonb_typeof(kwargs) <> 'object' then
        raise exception 'kwargs are %; they must be a JSON object', coalesce(jsonb_typeof(kwargs), 'missing')
            using errcode = 'LH002', constraint = 'LH002', hint = 'Wrap the value: {"value": ...}.';
    end if;
    perform leasehold_internal.check_kwargs_size(kwargs);
end $$;

-- Refuses kwargs of more than 64 KiB. The concatenation is a copy that is not compressed: a value that
-- comes from a table may be, and would then count a hundredth of its length.
create or replace function leasehold_internal.check_kwargs_size(kwargs jsonb)
returns void
language plpgsql immutable set search_path = leasehold, pg_temp as $$
begin
    if pg_column_size(kwargs || '{}') > 65536 then
        raise exception 'kwargs have % bytes; they must have at most 65536 (64 KiB)',
            pg_column_size(kwargs || '{}')
            using errcode = 'LH002', constraint = 'LH002',
                  hint = 'Store the bulk elsewhere and enqueue a reference to it.';
    end if;
end $$;

-- The same for jobs stored by a plain INSERT or COPY. The table's own check counts compressed bytes, so
-- compressed kwargs come here.
create or replace function leasehold_internal.check_stored_kwargs()
returns trigger
language plpgsql set search_path = leasehold, pg_temp as $$
begin
    perform leasehold_internal.check_kwargs_size(new.kwargs);
    return null;
end $$;

-- After the row, as `default_expiry`.
do $$ begin
    if not exists (select from pg_trigger t
                    where t.tgrelid = 'leasehold.job'::regclass and t.tgname = 'job_stored_kwargs') then
        create trigger job_stored_kwargs after insert on leasehold.job
            for each row when (pg_column_compression(new.kwargs) is not null)
            execute function leasehold_internal.check_stored_kwargs();
    end if;
end $$;

-- The same for optional values. The table checks them too; this raises clearer errors.
create or replace function leasehold_internal.check_options(
    tag text, max_attempts int, scheduled_at timestamptz, key text
)
returns void
language plpgsql immutable set search_path = leasehold, pg_temp as $$
begin
    if key = '' or octet_length(key) > 200 then
        raise exception 'key has % bytes; it must have 1 to 200', octet_length(key)
            using errcode = 'LH002', constraint = 'LH002',
                  hint = 'Leave the key out to enqueue without one; hash a longer one.';
    end if;
    if tag is null or octet_length(tag) > 200 then
        raise exception 'tag has % bytes; it must have at most 200', coalesce(octet_length(tag)::text, 'no')
            using errcode = 'LH002', constraint = 'LH002', hint = 'Shorten the tag; it may be empty.';
    end if;
    if max_attempts < 1 then
        raise exception 'max_attempts is %; it must be at least 1', max_attempts
            using errcode = 'LH002', constraint = 'LH002',
                  hint = 'Leave it out for the number that the queue sets.';
    end if;
    if scheduled_at not between timestamptz '0001-01-01 00:00Z' and timestamptz '9999-01-01 00:00Z' then
        raise exception 'scheduled_at is %; it must be after the year 0 and before the year 9999', scheduled_at
            using errcode = 'LH002', constraint = 'LH002', hint = 'Leave it out for a job that is due now.';
    end if;
end $$;

-- Refuses a limit key that is empty or too long for an index entry.
create or replace function leasehold_internal.check_limit_key(limit_key text)
returns void
language plpgsql immutable set search_path = leasehold, pg_temp as $$
begin
    if limit_key = '' or octet_length(limit_key) > 200 then
        raise exception 'this limit key has % bytes', octet_length(limit_key)
            using errcode = 'LH002', constraint = 'LH002',
                  hint = 'A limit key has 1 to 200 bytes, such as tenant:7; leave it out for a job without a limit.';
    end if;
end $$;

-- Refuses an expiry that is not after the due time: the job could never start. Null is allowed: 30 days
-- after the due time.
create or replace function leasehold_internal.check_expiry(scheduled_at timestamptz, expires_at timestamptz)
returns void
language plpgsql stable set search_path = leasehold, pg_temp as $$
begin
    if expires_at <= scheduled_at then
        raise exception 'expires_at is %; it must be later than scheduled_at, which is %',
            expires_at, scheduled_at
            using errcode = 'LH002', constraint = 'LH002',
                  hint = 'Leave expires_at out and the job expires 30 days after its due time.';
    end if;
end $$;

-- The same for jobs stored by a plain INSERT or COPY. Called for rows whose `expires_at` is null or not
-- after the due time, and for later jobs with the column's own default, which counts from the insert: a
-- job that is due in 29 days would have one day to start.
create or replace function leasehold_internal.default_expiry()
returns trigger
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
begin
    if new.expires_at <> now() + interval '30 days' then
        perform leasehold_internal.check_expiry(new.scheduled_at, new.expires_at);
    end if;
    update leasehold.job j set expires_at = new.scheduled_at + interval '30 days' where j.id = new.id;
    return null;
end $$;

-- After the row, with a condition: COPY still writes whole pages, and a row with an expiry costs one
-- comparison. A trigger before the row would make COPY insert row by row. Created only once, because
-- CREATE TRIGGER waits for every writer. A new condition needs a migration that drops the trigger.
do $$ begin
    if not exists (select from pg_trigger t
                    where t.tgrelid = 'leasehold.job'::regclass and t.tgname = 'default_expiry') then
        create trigger default_expiry after insert on leasehold.job
            for each row when (new.expires_at is null or new.expires_at <= new.scheduled_at
                               or (new.scheduled_at > now()
                                   and new.expires_at = now() + interval '30 days'))
            execute function leasehold_internal.default_expiry();
    end if;
end $$;

-- Returns when a job expires whose due time moves to `due`: as long after it as before, and never sooner
-- than the old expiry. Otherwise a job that polls by snoozing would end 30 days after its enqueue.
create or replace function leasehold_internal.moved_expiry(
    expires_at timestamptz, scheduled_at timestamptz, due timestamptz
)
returns timestamptz
language sql stable as $$
    select case when isfinite(expires_at) and isfinite(scheduled_at)
                then greatest(expires_at, due + case
                         when expires_at <= scheduled_at then interval '30 days'
                         -- Compared before they are subtracted: the years between 4713 BC and 294276 AD
                         -- do not fit an interval.
                         when expires_at > greatest(scheduled_at, '0001-01-01 00:00Z') + interval '10 years'
                             then interval '10 years'
                         else expires_at - scheduled_at end)
                else expires_at end
$$;

-- Returns what two enqueues with one key must agree on. `jsonb` has one text for one value.
create or replace function leasehold_internal.request_hash(name text, kwargs jsonb)
returns bytea
language sql immutable set search_path = leasehold, pg_temp as $$
    select sha256(convert_to(name || E'\n' || kwargs::text, 'UTF8'))
$$;
