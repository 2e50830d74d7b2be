-- Where one job is, without reading more than it must: the job itself, then the dead, then the history.
select coalesce(
    (select case when j.held then 'processing' else 'pending' end from leasehold.job j where j.id = $1),
    (select case d.cause when 'expired' then 'expired' else 'dead_letter' end
       from leasehold.dead_job d where d.id = $1),
    (select case h.outcome when 'completed' then 'done' else h.outcome end
       from leasehold.history h where h.job_ids @> array[$1] order by h.finished_at desc limit 1),
    -- A queue without history leaves no trace of what it completed; cancelled jobs are always filed.
    'done')
