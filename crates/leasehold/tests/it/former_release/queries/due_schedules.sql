-- Schedules whose next slot is due, by the database's clock, after the last one that was read. Also
-- those that were moved at a time in the future: the clock was set back, and the slot may be a year
-- away.
select name, cron, zone, missed, next_slot, statement_timestamp()
  from leasehold_internal.schedule
 where paused_at is null
   and next_slot between timestamptz '0001-01-01 00:00Z' and timestamptz '9999-01-01 00:00Z'
   and (next_slot <= statement_timestamp() or moved_at > statement_timestamp() + interval '1 hour')
   and ($1::timestamptz is null or (next_slot, name) > ($1, $2))
 order by next_slot, name
 limit 100
