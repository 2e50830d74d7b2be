-- Batches with their state and their counts. A batch is `cancelled` from the cancel on, while its running
-- members stop too: `closed_at` is when the last one has.
create or replace view leasehold.batches as
select b.id, b.description,
       case when b.cancelled_at is not null then 'cancelled'
            when b.closed_at is not null then 'closed'
            when b.sealed_at is not null then 'sealed'
            else 'open' end as state,
       b.completed + b.cancelled + b.dead + b.deleted + coalesce(e.n, 0) + coalesce(m.n, 0) as total,
       coalesce(m.n - m.running, 0) as waiting,
       coalesce(m.running, 0) as running,
       b.completed + coalesce(e.completed, 0) as completed,
       b.cancelled + coalesce(e.cancelled, 0) as cancelled,
       b.dead + coalesce(e.dead, 0) as dead,
       b.deleted + coalesce(e.deleted, 0) as deleted,
       b.created_at, b.sealed_at, b.closed_at, b.cancelled_at, b.cancelled_by, b.cancelled_why,
       b.on_success ->> 'name' as on_success, b.on_end ->> 'name' as on_end, b.on_death ->> 'name' as on_death,
       b.follow_up_job_id
  from leasehold_internal.batch b
  left join lateral (
        select count(*) as n, count(*) filter (where j.held) as running
          from leasehold_internal.batch_member w left join leasehold.job j on j.id = w.job_id
         where w.batch_id = b.id and b.closed_at is null) m on true
  left join lateral (
        select sum(w.n)::bigint as n,
               coalesce(sum(w.n) filter (where w.outcome = 'completed'), 0)::bigint as completed,
               coalesce(sum(w.n) filter (where w.outcome = 'cancelled'), 0)::bigint as cancelled,
               coalesce(sum(w.n) filter (where w.outcome = 'dead'), 0)::bigint as dead,
               coalesce(sum(w.n) filter (where w.outcome = 'deleted'), 0)::bigint as deleted
          from leasehold_internal.batch_end w where w.batch_id = b.id and b.closed_at is null) e on true;

-- Returns one batch, for roles that do not read the view.
create or replace function leasehold_internal.read_batch(batch_id bigint)
returns setof leasehold.batches
language sql stable security definer set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    select b.* from leasehold.batches b where b.id = batch_id
$$;
