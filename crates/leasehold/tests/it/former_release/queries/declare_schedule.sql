-- Declares a schedule. Repeating the same declaration changes nothing: its next slot stays, so a deploy
-- neither repeats nor drops a slot.
insert into leasehold_internal.schedule as s
    (name, cron, zone, queue, job_name, kwargs, priority, missed, next_slot, declared_by,
     last_declared_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, statement_timestamp())
on conflict (name) do update
    set queue = excluded.queue, job_name = excluded.job_name, kwargs = excluded.kwargs,
        priority = excluded.priority, missed = excluded.missed,
        next_slot = case when s.cron = excluded.cron and s.zone = excluded.zone
                         then s.next_slot else excluded.next_slot end,
        cron = excluded.cron, zone = excluded.zone, declared_by = excluded.declared_by,
        last_declared_at = excluded.last_declared_at
