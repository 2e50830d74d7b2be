-- Every queue with its counts and settings.
select s.queue, s.ready, s.running, s.scheduled, s.dead, s.expired, s.workers, s.oldest_ready_at,
       s.paused_at, s.paused_by, s.paused_why,
       extract(epoch from q.lease)::float8 as lease_seconds, q.max_attempts, q.max_lost, q.batch,
       extract(epoch from q.run_limit)::float8 as run_limit_seconds,
       extract(epoch from q.backoff_base)::float8 as backoff_first_seconds,
       extract(epoch from q.backoff_cap)::float8 as backoff_longest_seconds, q.keep_history,
       q.display_name, q.owner
  from leasehold.queue_state s
  left join leasehold.queue q on q.name = s.queue
 order by s.queue
