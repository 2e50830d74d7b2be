-- When index and table were last seen equal, and whether the index is behind: a difference was found, a job is
-- deferred, so that the index may lack its note, or the job of a save (priority $3) is overdue by more than $2
-- seconds.
--
-- A save that was in flight when the check began its round has an earlier timestamp and was not
-- compared. Hence the minute: no save takes that long.
select m.equal_as_of - interval '1 minute',
       m.oldest_difference is not null
       or exists (select from leasehold.jobs j
                   where j.stored_in = 'job' and j.queue = 'annotations' and j.name = 'index' and j.deferred)
       -- The table, not the view: "deferred" of the view depends on two columns, so that no index finds the
       -- oldest job, and the statement would read all jobs of a re-index each second.
       or exists (select from leasehold.job j
                   where j.queue = 'annotations' and j.name = 'index' and not j.deferred and j.priority = $3
                     and j.scheduled_at < statement_timestamp() - make_interval(secs => $2))
  from (select 1) one left join leasehold.mirrors m on m.name = $1
