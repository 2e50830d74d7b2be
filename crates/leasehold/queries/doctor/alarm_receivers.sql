-- Receivers of alarms, and when each was last seen.
select r.job_name, extract(epoch from statement_timestamp() - r.seen_at)::float8
  from leasehold_internal.alarm_receiver r
 where r.seen_at > statement_timestamp() - interval '7 days' order by 1
