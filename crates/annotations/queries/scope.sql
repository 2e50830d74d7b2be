-- Where a question to the index may look: the groups, and the former names of the person who is
-- looked for. The index keeps a name until the work of a rename has come by.
select case when $2::text is null then annotations.readable($1)
            else annotations.readable_as($1, $2) end,
       array(select f.name
               from annotations.user_account u
               join annotations.former_name f on f.user_id = u.id and f.name <> u.name
              where u.name = $3 and u.deleted_at is null
              order by f.given_up_at desc limit 8)
