-- For each of these contents: its object, whether it has been GONE for longer than $2 seconds, and the
-- time after which an object counts as young.
select content_id, object_id,
       state = 'GONE' and changed_at < statement_timestamp() - make_interval(secs => $2),
       statement_timestamp() - make_interval(secs => $2)
  from pastes.contents
 where content_id = any ($1)
