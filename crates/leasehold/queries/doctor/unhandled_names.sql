-- Names that wait in a queue with live workers, none of which handles the name. Looks at the first
-- 1,000 jobs of each of the first 200 priorities, and at 1,000 jobs with a limit key: jobs without a
-- handler accumulate at the front.
with recursive known (queue, priority, step) as (
    select q.queue, first.priority, 1
      from leasehold.queues q
     cross join lateral (
        select j.priority from leasehold.job j where j.queue = q.queue and j.limit_key is null
         order by j.queue, j.priority, j.scheduled_at limit 1) first
     where q.workers > 0 and q.ready + q.scheduled + q.retrying > 0
    union all
    select known.queue, next.priority, known.step + 1
      from known cross join lateral (
        select j.priority from leasehold.job j
         where j.queue = known.queue and j.limit_key is null and j.priority > known.priority
         order by j.queue, j.priority, j.scheduled_at limit 1) next
     where known.step < 200
)
select distinct j.queue, j.name
  from (select known.queue, first.name
          from known
         cross join lateral (
            select w.name from leasehold.job w
             where w.queue = known.queue and w.limit_key is null and w.priority = known.priority
             order by w.queue, w.priority, w.scheduled_at limit 1000) first
        union all
        select q.queue, first.name
          from leasehold.queues q
         cross join lateral (
            select w.name from leasehold.job w
             where w.queue = q.queue and w.limit_key is not null and not w.held
             order by w.queue, w.limit_key limit 1000) first
         where q.workers > 0) j
 where not exists (select from leasehold.workers w
                    where w.state = 'alive' and j.queue = any (w.queues) and j.name = any (w.names))
 order by 1, 2 limit 20
