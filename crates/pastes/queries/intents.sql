-- What the table says of these objects: whether they have been dead for long enough, and since when
-- an object counts as young.
select content_id, object_id,
       state = 'GONE' and changed_at < statement_timestamp() - make_interval(secs => $2),
       statement_timestamp() - make_interval(secs => $2)
  from pastes.contents
 where content_id = any ($1)
