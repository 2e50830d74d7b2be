-- The objects of these contents that may be deleted. GONE ones too: a put that landed late may
-- have brought the object back. `case` makes the planner find them by number (see objects_gone).
select content_id, content_hash::text, object_id
  from pastes.contents
 where content_id = any ($1) and case when state in ('DOOMED', 'GONE') then true else false end
