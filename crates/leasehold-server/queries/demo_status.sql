-- Counts the demo's jobs: completed in the last hour, waiting, running, retrying, dead.
select (select coalesce(sum(cardinality(h.job_ids)), 0)::bigint from leasehold_internal.history h
         where h.queue like 'demo.%' and h.outcome = 'completed'
           and h.finished_at > statement_timestamp() - interval '1 hour'),
       count(*) filter (where not j.held and j.attempts = 0),
       count(*) filter (where j.held),
       count(*) filter (where not j.held and j.attempts > 0),
       (select count(*) from leasehold_internal.dead_job d where d.queue like 'demo.%')
  from leasehold.job j where j.queue like 'demo.%'
