-- Jobs that match a filter, newest first, in any state: waiting, running, dead, finished.
-- $1 states, $2 queue, $3 name (like), $4 tag, $5 ids, $6 only ids below, $7 cause, $8 how far back to
-- look for finished jobs in seconds (null: all), $9 limit. Null: any.
-- Each part is limited before the union, so a full table costs no more than a page.
with live as (
    select j.id, case when j.held then 'processing' else 'pending' end as state, j.queue, j.name,
           j.tag, j.priority, j.attempts, coalesce(j.max_attempts, q.max_attempts, 25) as max_attempts,
           j.lost_count::int as lost_count, j.enqueued_at, j.scheduled_at, j.expires_at,
           null::timestamptz as finished_at, j.idempotency_key as key, j.lease_generation,
           l.claimed_by, l.claimed_at, l.lease_expires_at, j.cancel_requested, null as cause,
           j.last_error, null as note, j.kwargs, j.trace_context, j.errors
      from leasehold.job j
      left join leasehold.lease l on j.held and l.lease_generation = j.lease_generation
      left join leasehold.queue q on q.name = j.queue
     where ($1 is null or (case when j.held then 'processing' else 'pending' end) = any ($1))
       and ($2 is null or j.queue = $2) and ($3 is null or j.name like $3)
       and ($4 is null or j.tag = $4) and ($5 is null or j.id = any ($5))
       and ($6 is null or j.id < $6) and $7 is null
     order by j.id desc limit $9
), dead as (
    select d.id, case d.cause when 'expired' then 'expired' else 'dead_letter' end, d.queue, d.name,
           d.tag, d.priority, d.attempts, coalesce(d.max_attempts, q.max_attempts, 25),
           d.lost_count::int, d.enqueued_at, d.scheduled_at, d.expires_at,
           d.died_at, d.idempotency_key, d.lease_generation,
           d.claimed_by, null::timestamptz, null::timestamptz, false, d.cause,
           d.last_error, null, d.kwargs, d.trace_context, d.errors
      from leasehold.dead_job d
      left join leasehold.queue q on q.name = d.queue
     where ($1 is null or (case d.cause when 'expired' then 'expired' else 'dead_letter' end) = any ($1))
       and ($2 is null or d.queue = $2) and ($3 is null or d.name like $3)
       and ($4 is null or d.tag = $4) and ($5 is null or d.id = any ($5))
       and ($6 is null or d.id < $6) and ($7 is null or d.cause = $7)
     order by d.id desc limit $9
), over as (
    select f.id, case f.outcome when 'completed' then 'done' else f.outcome end, f.queue, f.name,
           f.tag, f.priority, f.attempts, f.max_attempts,
           null::int, f.enqueued_at, f.scheduled_at, null::timestamptz,
           f.finished_at, f.key, f.lease_generation,
           f.claimed_by, f.claimed_at, null::timestamptz, false, null,
           null, f.note, f.kwargs, null, f.errors
      from leasehold.finished_job f
     where ($1 is null or $1 && array['done', 'cancelled'])
       and ($1 is null or (case f.outcome when 'completed' then 'done' else f.outcome end) = any ($1))
       and ($8 is null or f.finished_at > statement_timestamp() - make_interval(secs => $8))
       and ($2 is null or f.queue = $2) and ($3 is null or f.name like $3)
       and ($4 is null or f.tag = $4) and ($5 is null or f.id = any ($5))
       and ($6 is null or f.id < $6) and $7 is null
     order by f.id desc limit $9
)
select * from live
union all select * from dead
union all select * from over
order by id desc limit $9
