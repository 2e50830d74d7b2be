-- Where a query to the index may look: the groups that the viewer may read, and the former names of the
-- user in the filter. The index has a former name until the rename's bulk operation and its jobs are
-- done. That is certain once index and table were seen equal after the operation finished. Finished
-- operations are deleted after a week, and their former names are no longer looked up then.
select case when $2::text is null then annotations.readable($1)
            else annotations.readable_as($1, $2) end,
       array(select f.name
               from annotations.user_account u
               join annotations.former_name f on f.user_id = u.id and f.name <> u.name
               -- The operation of the rename that gave the name up; if that was deleted, the next one.
               join lateral (select b.finished_at from annotations.bulk b
                              where b.tag = 'rename_user' and b.filter ->> 'user_id' = u.id::text
                                and b.created_at >= f.abandoned_at
                              order by b.created_at limit 1) renaming
                 on renaming.finished_at is null
                 or renaming.finished_at >= coalesce((select m.equal_as_of from leasehold.mirrors m
                                                   where m.name = $4), '-infinity')
              where u.name = $3 and u.deleted_at is null
              order by f.abandoned_at desc limit 20)
