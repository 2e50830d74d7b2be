-- When index and table were last seen equal, and whether the index is behind: a difference was found, a job is
-- deferred, so that the index may lack its note, or the job of a save (priority $3) is overdue by more than $2
-- seconds.
--
-- A save that was in flight when the check began its round has an earlier timestamp and was not
-- compared. Hence the minute: no save takes that long.
select m.equal_as_of - interval '1 minute',
       m.oldest_difference is not null
       -- The table, not the view: there a job is not deferred while it runs, although the index still lacks its
       -- note, and no index finds the oldest job, so that the statement would read all jobs of a re-index each second.
       or exists (select from leasehold.job j
                   where j.queue = 'annotations' and j.name = 'index' and j.deferred)
       or exists (select from leasehold.job j
                   where j.queue = 'annotations' and j.name = 'index' and not j.deferred and j.priority = $3
                     and j.scheduled_at < statement_timestamp() - make_interval(secs => $2))
  from (select 1) one left join leasehold.mirrors m on m.name = $1
