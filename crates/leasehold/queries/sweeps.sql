-- Sweeps with their state and counts, by name. What is claimed now is as the watchdog counted it: an operator
-- never reads the swept table, whose code would run with the operator's rights.
select s.name, s.table_name, s.state, s.cron, s.zone, extract(epoch from s.every)::float8 as every_seconds,
       s.next_run_at, s.run_started_at, s.run_ended_at, s.watchdog_ran_at, s.paused_at, s.paused_by, s.paused_why,
       s.rows_claimed, s.rows_finished, s.rows_failed, s.rows_lost, s.rows_reset, s.failing, s.dead,
       c.claimed_now, c.oldest_claim_at, c.claims_counted_at
  from leasehold.sweeps s
  join leasehold_internal.sweep c on c.name = s.name
 where $1::text is null or s.name = $1
 order by s.name
 limit $2
