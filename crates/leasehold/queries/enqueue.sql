-- Enqueues one job. Delays are counted by the database's clock, never by the caller's. The casts are
-- for drivers that pass text.
select job_id, inserted
  from leasehold.enqueue(
    name => $1, kwargs => $2::jsonb, queue => $3, priority => $4,
    scheduled_at => coalesce($6::timestamptz, statement_timestamp() + make_interval(secs => $5)),
    expires_at => statement_timestamp() + make_interval(secs => $7),
    tag => $8, max_attempts => $9, key => $10, key_ttl => make_interval(secs => $11),
    trace_context => $12, limit_key => $13, batch => $14, on_success => $15::jsonb, on_end => $16::jsonb,
    on_death => $17::jsonb)
