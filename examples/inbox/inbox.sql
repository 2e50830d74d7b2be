-- The jobs of Leasehold as an inbox: one table of messages with a status, in the words of articles about
-- that pattern. The view only renames: `leasehold.jobs` computes every state.
create or replace view inbox as
select j.id,
       case when j.state = 'running' then 'processing'
            when j.state in ('scheduled', 'ready', 'retrying') then 'pending'
            when j.state = 'completed' then 'done'
            when j.state = 'dead' and j.cause = 'expired' then 'expired'
            when j.state = 'dead' then 'dead_letter'
            else j.state end as status,
       j.queue, j.name as kind, j.enqueued_at as created_at, j.scheduled_at as available_at,
       -- An article clears these two when a message is dead.
       case when j.state <> 'dead' then j.worker end as claimed_by, j.lease_expires_at,
       j.lease_generation, j.attempts, j.max_attempts, j.idempotency_key, j.priority, j.tag, j.expires_at,
       j.lost_count, j.cancel_requested, j.finished_at, j.kwargs as payload,
       coalesce(j.last_error, j.note) as last_error
  from leasehold.jobs j;
