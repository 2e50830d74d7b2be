-- Finds one job with as few reads as possible: in the jobs, then the dead, then the history.
select coalesce(
    (select case when j.held then 'processing' else 'pending' end from leasehold.job j where j.id = $1),
    (select case d.cause when 'expired' then 'expired' else 'dead_letter' end
       from leasehold.dead_job d where d.id = $1),
    (select case h.outcome when 'completed' then 'done' else h.outcome end
       from leasehold.history h where h.job_ids @> array[$1] order by h.finished_at desc limit 1),
    -- A queue without history keeps no trace of completed jobs; cancelled jobs are always recorded.
    'done')  as state,
    -- For a job that failed and waits: how often, why, and when it is due again.
    failed.attempts, failed.last_error, failed.next_in
  from (values ($1)) as asked (id)
  left join lateral (
    select j.attempts, j.last_error,
           -- Infinite times cannot be subtracted before PostgreSQL 17.
           greatest(extract(epoch from
               least(greatest(j.scheduled_at, '2000-01-01 00:00Z'), '9999-01-01 00:00Z')
                   - statement_timestamp()), 0)::float8 as next_in
      from leasehold.job j
     where j.id = asked.id and not j.held and j.attempts > 0 and j.last_error is not null) failed on true
