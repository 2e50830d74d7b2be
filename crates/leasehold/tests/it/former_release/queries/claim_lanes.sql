-- Claims from known lanes, each from just after the place where this worker left off.
select id, name, kwargs, priority, scheduled_at, attempts, max_attempts, lost_count, lease_generation,
       tag, enqueued_at, idempotency_key, trace_context,
       extract(epoch from run_limit)::float8, extract(epoch from lease)::float8, max_lost
  from leasehold.claim_lanes($1, $2, $3, null, $4, $5, $6, $7, $8)
