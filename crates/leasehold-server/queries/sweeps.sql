-- Sweeps with their state and counts.
select name, table_name, state, cron, zone, extract(epoch from every)::float8 as every_seconds,
       next_run_at, run_started_at, run_ended_at, watchdog_ran_at, paused_at, paused_by, paused_why,
       rows_claimed, rows_finished, rows_failed, rows_lost, rows_reset, failing, dead
  from leasehold.sweeps
 order by name
