-- Schedules whose next slot has come, by the database's clock.
select name, cron, zone, missed, next_slot, statement_timestamp()
  from leasehold.schedule
 where next_slot <= statement_timestamp() and paused_at is null
 order by next_slot
 limit 100
