-- Removes a schedule and records who did it. Returns no row if there is none.
with gone as (
    delete from leasehold.schedule where name = $1 returning name, cron, zone, job_name
), noted as (
    insert into leasehold.audit (actor, action, subject, detail)
    select $2, 'remove', 'schedule ' || g.name, concat_ws(' ', g.cron, g.zone, g.job_name) from gone g
)
select g.name from gone g
