-- The objects of these contents that may be deleted. Includes GONE ones: a put that landed late may
-- have recreated the object. `case` makes the planner find them by id (see objects_gone).
select content_id, content_hash::text, object_id
  from pastes.contents
 where content_id = any ($1) and case when state in ('DOOMED', 'GONE') then true else false end
