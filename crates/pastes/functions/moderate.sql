-- What operators do. Each function records its action in pastes.moderation, in the same transaction.

-- Takes down the paste of a report, or the one under a code. With `ban`, also takes down every other
-- paste of the same bytes and refuses them in future. `hash` is the SHA-256 that the paste must have.
--
-- Fails with PB007 if there is no such report or paste, and with PB008 if another paste has the name by
-- now. A code alone is not enough if a report under it is about another paste. A ban by report works
-- even if the reported paste has ended: it applies to the bytes, not to the name.
create or replace function pastes.take_down(
    report bigint, code text, hash text, ban boolean, who text, why text)
returns table (short_code text, content_hash text, ended bigint)
language plpgsql volatile set search_path = pastes, leasehold, pg_temp as $$
#variable_conflict use_column
declare
    reported pastes.reports;
    present pastes.pastes;
    name text := code;
    n bigint;
begin
    if report is not null then
        select * into reported from pastes.reports r where r.id = report;
        if not found then
            raise exception 'there is no report %', report using errcode = 'PB007';
        end if;
        name := reported.short_code;
    end if;
    select * into present from pastes.pastes p
     where p.short_code = name and p.deletion_status <> 'DELETED';
    if report is null then
        if present.paste_id is null then
            raise exception 'there is no paste %', name using errcode = 'PB007';
        end if;
        if present.content_hash <> hash
           or hash is null and exists (
               select from pastes.reports r
                where r.short_code = name and r.paste_id is distinct from present.paste_id) then
            raise exception 'another paste has the name %', name using errcode = 'PB008';
        end if;
    elsif reported.content_hash <> hash then
        raise exception 'report % is about other content', report using errcode = 'PB008';
    elsif present.paste_id is null or present.paste_id is distinct from reported.paste_id then
        if not ban and present.paste_id is not null then
            raise exception 'another paste has the name %', name using errcode = 'PB008';
        elsif not ban then
            raise exception 'there is no paste % any more', name using errcode = 'PB007';
        end if;
        present := null;
    end if;
    hash := coalesce(present.content_hash, reported.content_hash);
    if ban then
        insert into pastes.banned (content_hash, reason) values (hash, why)
        on conflict (content_hash) do update set reason = excluded.reason;
        n := pastes.end_copies(hash);
        -- Creators lock the content before they check for bans. Those in flight have already checked:
        -- this waits for them, and later ones see the ban. The pastes are locked by now, so the lock
        -- order is the usual one: pastes before contents.
        perform 1 from pastes.contents c
          where c.content_hash = hash and c.state in ('STAGED', 'LIVE') for update;
        -- The first job ends what those creators made. The second runs 10 s later, the longest that the
        -- service waits for a statement. It ends what a creator made that had not locked the content
        -- yet.
        insert into leasehold.job (name, queue, kwargs, scheduled_at, max_attempts, tag)
        select k.name, k.queue, jsonb_build_object('hash', hash), statement_timestamp() + u.wait,
               k.max_attempts, 'pastes.end'
          from pastes.jobs() k, unnest(array[interval '0', interval '10 seconds']) as u (wait)
         where k.job = 'end_banned';
    else
        n := pastes.end_now(name, present.paste_id)::int;
    end if;
    insert into pastes.moderation
        (action, short_code, paste_id, content_hash, report_id, ended, banned, who, why)
    values ('takedown', name, coalesce(present.paste_id, reported.paste_id), hash, report, n, ban,
            who, why);
    return query select name, hash, n;
end $$;

-- Completes a ban: ends the live pastes of banned bytes. Does nothing if the ban was lifted.
create or replace function pastes.end_banned(hash text)
returns bigint
language plpgsql volatile set search_path = pastes, pg_temp as $$
begin
    if not exists (select from pastes.banned b where b.content_hash = hash) then
        return 0;
    end if;
    return pastes.end_copies(hash);
end $$;

-- Refuses these bytes from now on. Existing pastes of them stay.
create or replace function pastes.ban(hash text, who text, why text)
returns void
language sql volatile set search_path = pastes, pg_temp as $$
    insert into pastes.banned (content_hash, reason) values (hash, why)
    on conflict (content_hash) do update set reason = excluded.reason;
    insert into pastes.moderation (action, content_hash, banned, who, why)
    values ('ban', hash, true, who, why);
$$;

-- Allows these bytes again. Returns false if they were not banned.
create or replace function pastes.unban(hash text, who text, why text)
returns boolean
language plpgsql volatile set search_path = pastes, pg_temp as $$
begin
    delete from pastes.banned b where b.content_hash = hash;
    if not found then
        return false;
    end if;
    insert into pastes.moderation (action, content_hash, who, why) values ('unban', hash, who, why);
    return true;
end $$;
