-- Resumes a schedule and records who did it. Returns no row if there is none, or it is not paused.
with resumed as (
    update leasehold.schedule set paused_at = null, paused_by = null
     where name = $1 and paused_at is not null returning name
), noted as (
    insert into leasehold.audit (actor, action, subject)
    select $2, 'resume', 'schedule ' || r.name from resumed r
)
select r.name from resumed r
