-- Adds a schedule; replaces one of the same name only if $10 is true. Returns no row if it exists
-- already. The operator's pause stays: a paused schedule is still paused.
with made as (
    insert into leasehold.schedule as s
        (name, cron, zone, queue, job_name, kwargs, priority, missed, next_slot)
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    on conflict (name) do update
        set cron = excluded.cron, zone = excluded.zone, queue = excluded.queue,
            job_name = excluded.job_name, kwargs = excluded.kwargs, priority = excluded.priority,
            missed = excluded.missed, next_slot = excluded.next_slot,
            -- It belongs to the operator until a worker that declares it starts again.
            declared_by = null, last_declared_at = null
        where $10
    returning s.name
), noted as (
    insert into leasehold.audit (actor, action, subject, detail)
    select $11, 'add', 'schedule ' || m.name, concat_ws(' ', $2, $3, $5) from made m
)
select m.name from made m
