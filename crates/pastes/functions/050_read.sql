-- What readers may know of these pastes: only what is alive by this clock, and not what has failed.
-- `life` is how long it stays so.
create or replace function pastes.look(codes text[])
returns table (code text, status text, content_id bigint, content_hash text, object_id uuid,
               size int, language text, burn boolean, created_at timestamptz,
               expires_at timestamptz, life double precision)
language sql stable
set search_path = pastes, pg_temp set enable_seqscan = off set jit = off as $$
    select p.short_code::text, p.status::text, p.content_id, p.content_hash::text, c.object_id,
           c.size, p.language::text, p.burn, p.created_at, p.expires_at,
           extract(epoch from p.expires_at - statement_timestamp())::double precision
      from pastes.pastes p join pastes.contents c using (content_id)
     where p.short_code = any (codes)
       and p.expires_at > statement_timestamp() and p.deletion_status = 'NOT_EXPIRED'
       and p.status in ('IN_PROGRESS', 'PROCESSED')
$$;

-- Ends a paste now. The sweep does the rest, as with any other expiry: one place counts down.
-- Answers false when it was over before.
create or replace function pastes.end_now(code text)
returns boolean
language plpgsql volatile set search_path = pastes, pg_temp as $$
begin
    update pastes.pastes p set expires_at = statement_timestamp()
     where p.short_code = code and p.expires_at > statement_timestamp()
       and p.deletion_status = 'NOT_EXPIRED';
    return found;
end $$;

-- Burns a paste: of two readers in the same instant one gets true. The clock is read when the row is
-- looked at, not when the statement began: one that began earlier and came later would find an end
-- that lies ahead of its own time, and burn the paste again.
create or replace function pastes.burn(code text)
returns boolean
language plpgsql volatile set search_path = pastes, pg_temp as $$
begin
    update pastes.pastes p set expires_at = statement_timestamp()
     where p.short_code = code and p.burn and p.expires_at > clock_timestamp()
       and p.deletion_status = 'NOT_EXPIRED' and p.status in ('IN_PROGRESS', 'PROCESSED');
    return found;
end $$;

-- Takes a paste down; with a ban also every other paste of the same bytes, and all to come.
-- Answers how many pastes ended; null: there is no such paste.
create or replace function pastes.take_down(code text, reason text, and_ban boolean)
returns bigint
language plpgsql volatile set search_path = pastes, pg_temp as $$
declare
    hash text;
    ended bigint;
begin
    select p.content_hash into hash from pastes.pastes p
     where p.short_code = code and p.deletion_status <> 'DELETED';
    if not found then
        return null;
    end if;
    if and_ban then
        perform 1 from pastes.contents c
          where c.content_hash = hash and c.state in ('STAGED', 'LIVE') for update;
        insert into pastes.banned (content_hash, reason) values (hash, reason)
        on conflict (content_hash) do update set reason = excluded.reason;
        update pastes.pastes p set expires_at = statement_timestamp()
         where p.content_id in (select c.content_id from pastes.contents c
                                 where c.content_hash = hash and c.state in ('STAGED', 'LIVE'))
           and p.expires_at > statement_timestamp() and p.deletion_status = 'NOT_EXPIRED';
    else
        update pastes.pastes p set expires_at = statement_timestamp()
         where p.short_code = code
           and p.expires_at > statement_timestamp() and p.deletion_status = 'NOT_EXPIRED';
    end if;
    get diagnostics ended = row_count;
    return ended;
end $$;
