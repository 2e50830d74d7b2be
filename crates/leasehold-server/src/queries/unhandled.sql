-- Names that wait in a queue that has live workers, none of which knows the name.
select q.queue, l.name
  from leasehold.queue_state q
 cross join lateral (select distinct lane.name from leasehold.lanes(q.queue) lane) l
 where q.workers > 0 and q.ready + q.scheduled > 0
   and not exists (select from leasehold.worker_state w
                    where w.state = 'alive' and q.queue = any (w.queues) and l.name = any (w.names))
 order by 1, 2 limit 20
