-- Finds the jobs of a claim whose reply never came.
select null::timestamptz, 0::float8,
       id, name, kwargs, priority, scheduled_at, attempts, max_attempts, lost_count, lease_generation,
       tag, enqueued_at, idempotency_key, trace_context,
       extract(epoch from run_limit)::float8, extract(epoch from lease)::float8, false, deferred
  from leasehold.recover_claim($1, $2)
