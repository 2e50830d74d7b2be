-- One job, and a wake-up for the workers of its queue in the same commit. Sent at most once a moment
-- for each queue; a NOTIFY in every commit would make them wait for each other.
select job_id, inserted, pg_notify('leasehold_wake', $3)
  from leasehold.enqueue(
    name => $1, kwargs => $2, queue => $3, priority => $4,
    scheduled_at => coalesce($6, statement_timestamp() + make_interval(secs => $5)),
    expires_at => statement_timestamp() + make_interval(secs => $7),
    tag => $8, max_attempts => $9, key => $10, key_for => make_interval(secs => $11),
    trace_context => $12)
