-- Reports, newest first, before a given one, and whether the paste is still readable.
select r.id, r.short_code::text, r.content_hash::text, r.reason, r.contact, r.reported_at,
       exists (select from pastes.find_live(array[r.short_code::text]) l where l.paste_id = r.paste_id)
  from pastes.reports r
 where $1::bigint is null or r.id < $1
 order by r.id desc
 limit $2
