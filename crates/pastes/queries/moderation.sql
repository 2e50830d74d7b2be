-- What operators did, newest first, before a given action.
select id, action::text, short_code::text, content_hash::text, report_id, ended, banned, who, why,
       acted_at
  from pastes.moderation
 where $1::bigint is null or id < $1
 order by id desc
 limit $2
