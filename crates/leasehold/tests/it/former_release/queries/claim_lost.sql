-- Claims one job on its last chance, alone.
select statement_timestamp(), 0::float8,
       id, name, kwargs, priority, scheduled_at, attempts, max_attempts, lost_count, lease_generation,
       tag, enqueued_at, idempotency_key, trace_context,
       extract(epoch from run_limit)::float8, extract(epoch from lease)::float8, false, deferred
  from leasehold_internal.claim_alone($1, $2, null, $3, $4, null)
