-- Finished jobs, one row each.
create or replace view leasehold_internal.finished_job as
select one.id, h.outcome, h.queue, one.name, one.tag, one.attempts, one.enqueued_at, h.finished_at,
       h.claimed_by, h.lease_generation, one.kwargs, h.note, h.claimed_at,
       coalesce(one.priority, 0) as priority, one.key, one.max_attempts,
       coalesce(one.scheduled_at, one.enqueued_at) as scheduled_at, one.errors
  from leasehold_internal.history h
 cross join lateral unnest(h.job_ids, h.names, h.tags, h.attempts, h.enqueued_at, h.kwargs,
                           h.priorities, h.keys, h.max_attempts, h.scheduled_at, h.errors)
       as one (id, name, tag, attempts, enqueued_at, kwargs,
               priority, key, max_attempts, scheduled_at, errors);

-- Every job: waiting, running, finished and dead. The state is computed here and nowhere else.
--
-- `stored_in` is the table of the row. A reader that wants only waiting jobs writes `stored_in = 'job'`, and
-- the planner leaves the other tables out.
create or replace view leasehold.jobs as
select j.id, j.queue, j.name,
       case when j.held then 'running'
            when j.scheduled_at <= statement_timestamp() then 'ready'
            -- A snooze gives the attempt back: a job that only snoozed is scheduled.
            when j.attempts > 0 then 'retrying'
            else 'scheduled' end as state,
       null::text as cause, j.kwargs, j.priority, j.tag, j.idempotency_key, j.enqueued_at,
       j.scheduled_at, j.expires_at, l.claimed_at, null::timestamptz as finished_at, j.attempts,
       coalesce(j.max_attempts, q.max_attempts, 25) as max_attempts, j.lost_count::int as lost_count,
       l.claimed_by as worker, j.lease_generation, l.lease_expires_at, j.cancel_requested,
       j.last_error, j.errors, null::text as note, j.trace_context, 'job'::text as stored_in,
       j.deferred and not j.held as deferred
  from leasehold.job j
  left join leasehold_internal.lease l on j.held and l.lease_generation = j.lease_generation
  left join leasehold_internal.queue q on q.name = j.queue
union all
select d.id, d.queue, d.name, 'dead'::text,
       d.cause, d.kwargs, d.priority, d.tag,
       d.idempotency_key, d.enqueued_at, d.scheduled_at, d.expires_at, null::timestamptz, d.died_at,
       d.attempts, coalesce(d.max_attempts, q.max_attempts, 25), d.lost_count::int, d.claimed_by,
       d.lease_generation, null::timestamptz, false, d.last_error, d.errors, null::text,
       d.trace_context, 'dead_job'::text, false
  from leasehold_internal.dead_job d
  left join leasehold_internal.queue q on q.name = d.queue
union all
-- The names and keys of an array have the database's collation; those of the other tables have "C".
select f.id, f.queue, f.name collate "C", f.outcome, null::text, f.kwargs, f.priority, f.tag,
       f.key collate "C", f.enqueued_at, f.scheduled_at, null::timestamptz, f.claimed_at, f.finished_at,
       f.attempts, f.max_attempts, null::int, f.claimed_by, f.lease_generation, null::timestamptz, false,
       f.errors -> -1 ->> 'error', f.errors, f.note, null::text, 'history'::text, false
  from leasehold_internal.finished_job f;

-- Workers with their state by name. A worker that has not been seen for 30 s is dead.
create or replace view leasehold.workers as
select w.id, w.name, w.host, w.pid, w.version, w.queues, w.names, w.slots, w.busy, w.started_at,
       w.last_seen_at,
       case when w.stopped_at is not null then 'stopped'
            when w.last_seen_at < statement_timestamp() - interval '30 seconds' then 'dead'
            when w.draining_since is not null then 'draining'
            else 'alive' end as state,
       w.claimed_ahead
  from leasehold_internal.worker w;

-- Each queue that has a row or a job, with its counts. `dead` leaves out the expired jobs, which
-- `dead_expired` counts.
create or replace view leasehold.queues as
select names.queue, q.paused_at, q.paused_by, q.paused_why,
       coalesce(j.ready, 0) as ready, coalesce(j.running, 0) as running,
       coalesce(j.scheduled, 0) as scheduled, coalesce(d.dead, 0) as dead,
       coalesce(d.expired, 0) as dead_expired, j.oldest_ready_at,
       (select count(*) from leasehold.workers w
         where w.state = 'alive' and names.queue = any (w.queues)) as workers,
       coalesce(j.retrying, 0) as retrying,
       q.lease, q.max_attempts, q.max_lost, q.claim_size, q.run_limit, q.backoff_base, q.backoff_cap,
       q.keep_history, q.display_name, q.owner
  from (select name as queue from leasehold_internal.queue
        union select queue from leasehold.job
        union select queue from leasehold_internal.dead_job) names
  left join leasehold_internal.queue q on q.name = names.queue
  left join (
        select queue,
               count(*) filter (where not held and scheduled_at <= statement_timestamp()) as ready,
               count(*) filter (where held) as running,
               count(*) filter (where not held and scheduled_at > statement_timestamp()
                                  and attempts = 0) as scheduled,
               count(*) filter (where not held and scheduled_at > statement_timestamp()
                                  and attempts > 0) as retrying,
               min(scheduled_at) filter (where not held and scheduled_at <= statement_timestamp())
                   as oldest_ready_at
          from leasehold.job group by queue) j on j.queue = names.queue
  left join (
        select queue, count(*) filter (where cause <> 'expired') as dead,
               count(*) filter (where cause = 'expired') as expired
          from leasehold_internal.dead_job group by queue) d on d.queue = names.queue;

-- Schedules with their state by name.
create or replace view leasehold.schedules as
select s.name, s.cron, s.zone, s.queue, s.job_name, s.kwargs, s.tag, s.priority, s.missed,
       case when s.paused_at is not null then 'paused' else 'active' end as state,
       s.next_slot, s.last_slot, s.last_job_id, s.missed_slots, s.paused_at, s.paused_by, s.paused_why,
       s.declared_by, s.last_declared_at, s.created_at
  from leasehold_internal.schedule s;
