-- Changes the settings of a queue, inserts its row if there is none, and records who did it: all in
-- one statement. $1 queue, $2 actor; null leaves a setting as it is, and an empty text removes a name.
with set_to as (
    insert into leasehold.queue as q
        (name, lease, max_attempts, max_lost, batch, run_limit, backoff_base, backoff_cap, keep_history,
         display_name, owner)
    values ($1, coalesce(make_interval(secs => $3), interval '30 seconds'), coalesce($4, 25),
            coalesce($5, 3), coalesce($6, 1000), coalesce(make_interval(secs => $7), interval '1 hour'),
            coalesce(make_interval(secs => $8), interval '1 second'),
            coalesce(make_interval(secs => $9), interval '1 hour'), coalesce($10, true),
            nullif($11, ''), nullif($12, ''))
    on conflict (name) do update
        set lease = coalesce(make_interval(secs => $3), q.lease),
            max_attempts = coalesce($4, q.max_attempts),
            max_lost = coalesce($5, q.max_lost),
            batch = coalesce($6, q.batch),
            run_limit = coalesce(make_interval(secs => $7), q.run_limit),
            backoff_base = coalesce(make_interval(secs => $8), q.backoff_base),
            backoff_cap = coalesce(make_interval(secs => $9), q.backoff_cap),
            keep_history = coalesce($10, q.keep_history),
            display_name = nullif(coalesce($11, q.display_name), ''),
            owner = nullif(coalesce($12, q.owner), '')
    returning q.*
), noted as (
    insert into leasehold.audit (actor, action, subject, detail)
    select $2, 'set', 'queue ' || s.name, concat_ws(', ',
        'lease ' || make_interval(secs => $3), 'max_attempts ' || $4::int, 'max_lost ' || $5::int,
        'batch ' || $6::int, 'run_limit ' || make_interval(secs => $7),
        'backoff ' || make_interval(secs => $8) || '..' || make_interval(secs => $9),
        'keep_history ' || $10::boolean, 'display_name ' || $11::text, 'owner ' || $12::text)
      from set_to s
)
select jsonb_build_object(
    'queue', s.name, 'lease_seconds', extract(epoch from s.lease)::float8,
    'max_attempts', s.max_attempts, 'max_lost', s.max_lost, 'batch', s.batch,
    'run_limit_seconds', extract(epoch from s.run_limit)::float8,
    'backoff_first_seconds', extract(epoch from s.backoff_base)::float8,
    'backoff_longest_seconds', extract(epoch from s.backoff_cap)::float8,
    'keep_history', s.keep_history, 'display_name', s.display_name, 'owner', s.owner)
  from set_to s
