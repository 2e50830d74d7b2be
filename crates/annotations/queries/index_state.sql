-- When index and table were last seen equal, and whether something waits for longer than it should:
-- a difference that was found, a job that was put off because the index lacked its note, or one that
-- was due a minute ago.
--
-- A save that was on its way when the round of the check began carries an earlier time and was not
-- compared. No save takes a minute.
select m.equal_as_of - interval '1 minute',
       exists (select from leasehold.mirror_difference d where d.mirror = $1)
       or exists (select from leasehold.job j
                   where j.queue = 'annotations' and j.name = 'index' and j.priority >= 1000000)
       or exists (select from leasehold.job j
                   where j.queue = 'annotations' and j.name = 'index' and j.priority = 1
                     and j.scheduled_at < statement_timestamp() - make_interval(secs => $2))
  from (select 1) one left join leasehold.mirror m on m.name = $1
