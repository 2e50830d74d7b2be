-- Returns the pastes that readers may see: those that have not expired by the database's clock and have
-- not failed. `life` is the number of seconds until they expire.
create or replace function pastes.find_live(codes text[])
returns table (code text, paste_id uuid, status text, content_id bigint, content_hash text,
               object_id uuid, size int, language text, burn boolean, created_at timestamptz,
               expires_at timestamptz, life double precision)
language sql stable
set search_path = pastes, pg_temp set enable_seqscan = off set jit = off as $$
    select p.short_code::text, p.paste_id, p.status::text, p.content_id, p.content_hash::text,
           c.object_id, c.size, p.language::text, p.burn, p.created_at, p.expires_at,
           extract(epoch from p.expires_at - statement_timestamp())::double precision
      from pastes.pastes p join pastes.contents c using (content_id)
     where p.short_code = any (codes)
       and p.expires_at > statement_timestamp() and p.deletion_status = 'NOT_EXPIRED'
       and p.status in ('IN_PROGRESS', 'PROCESSED')
$$;
