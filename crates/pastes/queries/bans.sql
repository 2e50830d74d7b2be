-- Banned content, newest first, before a given ban.
select id, content_hash::text, reason, banned_at
  from pastes.banned
 where $1::bigint is null or id < $1
 order by id desc
 limit $2
