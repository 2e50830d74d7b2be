-- Claims one job whose worker died, alone.
select id, name, kwargs, priority, scheduled_at, attempts, max_attempts, lost_count, lease_generation,
       tag, enqueued_at, idempotency_key, trace_context,
       extract(epoch from run_limit)::float8, extract(epoch from lease)::float8, max_lost
  from leasehold.claim_lost($1, $2, null, $3, $4, $5)
