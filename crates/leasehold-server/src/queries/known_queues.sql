-- Every known queue: it has settings, a job, a dead job, a live worker or a schedule.
select name from leasehold.queue
union
-- Hops from one queue to the next in the index; never reads the jobs in between.
select queue from (
    with recursive hop (queue) as (
        (select j.queue from leasehold.job j order by j.queue limit 1)
        union all
        select (select j.queue from leasehold.job j where j.queue > hop.queue order by j.queue limit 1)
          from hop where hop.queue is not null
    )
    select hop.queue from hop where hop.queue is not null) waiting
union
select d.queue from leasehold.dead_job d
union
select unnest(w.queues) from leasehold.worker_state w where w.state in ('alive', 'draining')
union
select s.queue from leasehold.schedule s
order by 1
