-- Claims in order, reading on from cursors. An empty claim also returns when the server looked (null:
-- the queue is paused, and it did not) and for how long. $11: return whether there are deferred jobs.
select s.as_of, extract(epoch from clock_timestamp() - statement_timestamp())::float8,
       c.id, c.name, c.kwargs, c.priority, c.scheduled_at, c.attempts, c.max_attempts, c.lost_count,
       c.lease_generation, c.tag, c.enqueued_at, c.idempotency_key, c.trace_context,
       extract(epoch from c.run_limit)::float8, extract(epoch from c.lease)::float8,
       s.put_off
  from (select case when (leasehold.queue_settings($2)).paused_at is null
                    then statement_timestamp() end as as_of,
               $11 and leasehold.has_put_off($2) as put_off) s
  left join lateral leasehold.claim_next($1, $2, $3, null, $4, $5, null, $6, 2147483647, $7, $8, $9, $10) c
    on true
