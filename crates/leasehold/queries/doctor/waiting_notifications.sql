-- Notifications of alarms that wait: how many, how old the oldest is, and the most attempts.
select count(*), max(extract(epoch from statement_timestamp() - j.enqueued_at))::float8, max(j.attempts)
  from (select * from leasehold.job where queue = 'leasehold.alarms' and limit_key is null limit 10000) j
