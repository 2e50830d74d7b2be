-- An owner's live pastes, newest first, after a given cursor.
select p.short_code::text, p.paste_id, p.status::text, p.language::text, c.size, p.burn,
       p.created_at, p.expires_at
  from pastes.pastes p
  join pastes.owners o using (user_id)
  join pastes.contents c using (content_id)
 where o.token_hash = $1
   and p.expires_at > statement_timestamp() and p.deletion_status = 'NOT_EXPIRED'
   and p.status in ('IN_PROGRESS', 'PROCESSED')
   and ($2::timestamptz is null or (p.created_at, p.short_code) < ($2, $3))
 order by p.created_at desc, p.short_code desc
 limit $4
