c.id, c.name, c.kwargs, c.priority, c.scheduled_at, c.attempts, c.max_attempts, c.lost_count,
       c.lease_generation, c.tag, c.enqueued_at, c.idempotency_key, c.trace_context,
       date_part('epoch', c.run_limit), date_part('epoch', c.lease), c.deferred
