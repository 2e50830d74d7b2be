-- Finished jobs, one row each.
create or replace view leasehold.finished_job as
select one.id, h.outcome, h.queue, one.name, one.tag, one.attempts, one.enqueued_at, h.finished_at,
       h.claimed_by, h.lease_generation, one.kwargs, h.note, h.claimed_at,
       coalesce(one.priority, 0) as priority, one.key, one.max_attempts,
       coalesce(one.scheduled_at, one.enqueued_at) as scheduled_at, one.errors
  from leasehold.history h
 cross join lateral unnest(h.job_ids, h.names, h.tags, h.attempts, h.enqueued_at, h.kwargs,
                           h.priorities, h.keys, h.max_attempts, h.scheduled_at, h.errors)
       as one (id, name, tag, attempts, enqueued_at, kwargs,
               priority, key, max_attempts, scheduled_at, errors);

-- Every job, in the words of an inbox.
create or replace view leasehold.inbox as
select j.id,
       case when j.held then 'processing' else 'pending' end as status,
       j.queue, j.name as kind, j.enqueued_at as created_at, j.scheduled_at as available_at,
       l.claimed_by, l.lease_expires_at, j.lease_generation, j.attempts,
       coalesce(j.max_attempts, q.max_attempts, 25) as max_attempts, j.idempotency_key,
       j.priority, j.tag, j.expires_at, j.lost_count, j.cancel_requested, null::timestamptz as finished_at,
       j.kwargs as payload, j.last_error
  from leasehold.job j
  left join leasehold.lease l on j.held and l.lease_generation = j.lease_generation
  left join leasehold.queue q on q.name = j.queue
union all
select d.id, case d.cause when 'expired' then 'expired' else 'dead_letter' end,
       d.queue, d.name, d.enqueued_at, d.scheduled_at, null, null, d.lease_generation, d.attempts,
       coalesce(d.max_attempts, q.max_attempts, 25), d.idempotency_key, d.priority, d.tag,
       d.expires_at, d.lost_count, false, d.died_at, d.kwargs, d.last_error
  from leasehold.dead_job d
  left join leasehold.queue q on q.name = d.queue
union all
select f.id, case f.outcome when 'completed' then 'done' else f.outcome end,
       f.queue, f.name, f.enqueued_at, null, f.claimed_by, null, f.lease_generation, f.attempts,
       null, null, null, f.tag, null, null, false, f.finished_at, f.kwargs, f.note
  from leasehold.finished_job f;

-- Workers with their state by name. A worker that has not been seen for 30 s is dead.
create or replace view leasehold.worker_state as
select w.id, w.name, w.host, w.pid, w.version, w.queues, w.names, w.slots, w.busy, w.started_at,
       w.last_seen_at,
       case when w.stopped_at is not null then 'stopped'
            when w.last_seen_at < statement_timestamp() - interval '30 seconds' then 'dead'
            when w.draining_since is not null then 'draining'
            else 'alive' end as state
  from leasehold.worker w;

-- Each queue that has a row or a job, with its counts.
create or replace view leasehold.queue_state as
select names.queue, q.paused_at, q.paused_by, q.paused_why,
       coalesce(j.ready, 0) as ready, coalesce(j.running, 0) as running,
       coalesce(j.scheduled, 0) as scheduled, coalesce(d.dead, 0) as dead,
       coalesce(d.expired, 0) as expired, j.oldest_ready_at,
       (select count(*) from leasehold.worker_state w
         where w.state = 'alive' and names.queue = any (w.queues)) as workers
  from (select name as queue from leasehold.queue
        union select queue from leasehold.job
        union select queue from leasehold.dead_job) names
  left join leasehold.queue q on q.name = names.queue
  left join (
        select queue,
               count(*) filter (where not held and scheduled_at <= statement_timestamp()) as ready,
               count(*) filter (where held) as running,
               count(*) filter (where not held and scheduled_at > statement_timestamp()) as scheduled,
               min(scheduled_at) filter (where not held and scheduled_at <= statement_timestamp())
                   as oldest_ready_at
          from leasehold.job group by queue) j on j.queue = names.queue
  left join (
        select queue, count(*) filter (where cause <> 'expired') as dead,
               count(*) filter (where cause = 'expired') as expired
          from leasehold.dead_job group by queue) d on d.queue = names.queue;
