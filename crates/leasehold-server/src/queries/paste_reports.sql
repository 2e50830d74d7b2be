-- Complaints, newest first, with what became of the paste.
select r.id, r.short_code::text, r.content_hash::text, r.reason, r.contact, r.reported_at,
       exists (select from pastes.look(array[r.short_code::text]))
  from pastes.reports r
 order by r.id desc
 limit $1
