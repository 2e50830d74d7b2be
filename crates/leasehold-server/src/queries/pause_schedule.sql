-- Pauses a schedule and records who did it. Returns no row if there is none, or it is paused already.
with paused as (
    update leasehold.schedule set paused_at = statement_timestamp(), paused_by = $2
     where name = $1 and paused_at is null returning name
), noted as (
    insert into leasehold.audit (actor, action, subject)
    select $2, 'pause', 'schedule ' || p.name from paused p
)
select p.name from paused p
