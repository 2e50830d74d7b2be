-- Leases that ran out more than a minute ago and were not reclaimed: how many, and how late the oldest is.
select count(*), max(extract(epoch from statement_timestamp() - lease_expires_at))::float8
  from leasehold_internal.lease
 where ended_at is null and lease_expires_at < statement_timestamp() - interval '60 seconds'
