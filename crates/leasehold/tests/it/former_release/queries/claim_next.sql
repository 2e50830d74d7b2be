-- Claims in order, reading on from cursors. An empty claim also returns when the server looked (null:
-- the queue is paused, and it did not) and for how long. $6: only deferred jobs. $12: return whether there
-- are deferred jobs.
select s.as_of, extract(epoch from clock_timestamp() - statement_timestamp())::float8,
       c.id, c.name, c.kwargs, c.priority, c.scheduled_at, c.attempts, c.max_attempts, c.lost_count,
       c.lease_generation, c.tag, c.enqueued_at, c.idempotency_key, c.trace_context,
       extract(epoch from c.run_limit)::float8, extract(epoch from c.lease)::float8,
       s.has_deferred, c.deferred
  from (select case when (leasehold_internal.queue_settings($2)).paused_at is null
                    then statement_timestamp() end as as_of,
               $12 and leasehold_internal.has_deferred($2) as has_deferred) s
  left join lateral leasehold_internal.claim_next($1, $2, $3, null, $4, $5, null, $6, -2147483648, true,
                                                  2147483647, $7, $8, $9, $10, $11) c
    on true
