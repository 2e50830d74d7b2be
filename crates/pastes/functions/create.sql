-- Creates a paste: the row, its bytes and its upload job, or nothing.
--
-- Every paste takes the same path, whether its bytes are already stored or not: it starts IN_PROGRESS,
-- stages its own bytes and has its own job. So neither the response nor its timing reveals what other
-- users stored.
create or replace function pastes.create_paste(
    code text,            -- the new code
    paste uuid,           -- the new identity
    alias boolean,        -- the user chose the code
    owner bytea,          -- hash of the owner's token, or null
    hash text, content bytea, life interval, language text, burns boolean,
    request_key bytea, request_digest bytea,
    upload_after interval -- how long the upload job waits for the direct upload
)
returns table (short_code text, paste_id uuid, expires_at timestamptz, status text,
               content_id bigint, object_id uuid, replayed boolean)
language plpgsql volatile
set search_path = pastes, leasehold, pg_temp
set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    who bigint;
    known pastes.requests;
    now timestamptz := statement_timestamp();
    upload bigint;
    kept record;
begin
    if request_key is not null then
        insert into pastes.requests (key_hash, request_hash, short_code, paste_id)
        values (request_key, request_digest, code, paste) on conflict (key_hash) do nothing;
        if not found then
            -- The key was seen before. If its first request was still running, the insert waited for it.
            select * into known from pastes.requests r where r.key_hash = request_key;
            if known.request_hash <> request_digest then
                raise exception 'this key was sent with another paste' using errcode = 'PB002';
            end if;
            -- Match the identity, too: the name may belong to another paste by now.
            return query
            select p.short_code::text, p.paste_id, p.expires_at, p.status::text, p.content_id,
                   null::uuid, true
              from pastes.pastes p
             where p.short_code = known.short_code and p.paste_id = known.paste_id
               and p.expires_at > now and p.deletion_status = 'NOT_EXPIRED'
               and p.status in ('IN_PROGRESS', 'PROCESSED');
            if not found then
                raise exception 'the paste of this key has ended' using errcode = 'PB006';
            end if;
            return;
        end if;
    end if;
    if owner is not null then
        select o.user_id into who from pastes.owners o where o.token_hash = owner;
        if not found then
            raise exception 'no such owner' using errcode = 'PB003';
        end if;
    end if;
    if alias then
        -- A name is free again once its paste has ended. The old row is renamed after its identity,
        -- which no code and no other row can have as a name.
        delete from pastes.pastes p where p.short_code = code and p.deletion_status = 'DELETED';
        if found then
            -- The sweep leaves the staged bytes of a paste that was never uploaded to the purge. They
            -- would keep the name until then.
            delete from pastes.staged s where s.short_code = code;
        end if;
        with ended as (
            update pastes.pastes p set short_code = '~' || p.paste_id
             where p.short_code = code and p.expires_at <= now
            returning p.paste_id
        )
        update pastes.staged s set short_code = '~' || e.paste_id
          from ended e where s.short_code = code;
        if exists (select from pastes.pastes p where p.short_code = code) then
            raise exception 'alias taken' using errcode = 'PB005';
        end if;
    end if;

    insert into pastes.contents as c (content_hash, size) values (hash, octet_length(content))
    on conflict (content_hash) where state in ('STAGED', 'LIVE')
       do update set ref_count = c.ref_count + 1
    returning c.content_id, c.object_id into kept;
    -- Checked while the content is locked: a ban that committed earlier is seen here, and a later one
    -- finds this paste and ends it.
    if exists (select from pastes.banned b where b.content_hash = hash) then
        raise exception 'banned content' using errcode = 'PB004';
    end if;
    insert into pastes.pastes as p
        (short_code, paste_id, user_id, content_hash, content_id, created_at, expires_at, language,
         burn)
    values (code, paste, who, hash, kept.content_id, now, now + life, language, burns);
    insert into leasehold.job as j (name, queue, kwargs, scheduled_at, max_attempts, tag)
    select k.name, k.queue, jsonb_build_object('code', code, 'paste', paste),
           now + upload_after, k.max_attempts, 'pastes.create'
      from pastes.jobs() k where k.job = 'upload'
    returning j.id into upload;
    insert into pastes.staged (short_code, content_id, job_id, size, bytes)
    values (code, kept.content_id, upload, octet_length(content), content);
    return query select code, paste, now + life, 'IN_PROGRESS'::text, kept.content_id,
                        kept.object_id, false;
exception
    -- Two users chose one name at the same time.
    when unique_violation then
        if alias then
            raise exception 'alias taken' using errcode = 'PB005';
        end if;
        raise;
end $$;

-- Creates many pastes in one statement: those without an alias, an owner or a request key. Creates all
-- of them or none.
--
-- Contents are locked in the order of their hashes, as in every function that locks several.
create or replace function pastes.create_many(
    codes text[], ids uuid[], hashes text[], contents bytea[], lives double precision[], languages text[],
    burns boolean[], upload_after interval
)
returns table (short_code text, expires_at timestamptz, content_id bigint, object_id uuid)
language plpgsql volatile
set search_path = pastes, leasehold, pg_temp
set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    now timestamptz := statement_timestamp();
begin
    return query
    with given as materialized (
        select u.code, u.id, u.hash, u.content, now + make_interval(secs => u.life) as expires_at,
               u.language, u.burn
          from unnest(codes, ids, hashes, contents, lives, languages, burns)
               as u (code, id, hash, content, life, language, burn)
    ), kept as (
        insert into pastes.contents as c (content_hash, size, ref_count)
        select g.hash, min(octet_length(g.content)), count(*) from given g group by g.hash order by g.hash
        on conflict (content_hash) where state in ('STAGED', 'LIVE')
           do update set ref_count = c.ref_count + excluded.ref_count
        returning c.content_id, c.content_hash, c.object_id
    ), queued as (
        insert into leasehold.job as j (name, queue, kwargs, scheduled_at, max_attempts, tag)
        select k.name, k.queue, jsonb_build_object('code', g.code, 'paste', g.id),
               now + upload_after, k.max_attempts, 'pastes.create'
          from given g join pastes.jobs() k on k.job = 'upload'
        returning j.id, j.kwargs ->> 'code' as code
    ), made as (
        insert into pastes.pastes
            (short_code, paste_id, content_hash, content_id, created_at, expires_at, language, burn)
        select g.code, g.id, g.hash, k.content_id, now, g.expires_at, g.language, g.burn
          from given g join kept k on k.content_hash = g.hash
    ), staged as (
        insert into pastes.staged (short_code, content_id, job_id, size, bytes)
        select g.code, k.content_id, q.id, octet_length(g.content), g.content
          from given g join kept k on k.content_hash = g.hash join queued q on q.code = g.code
    )
    select g.code, g.expires_at, k.content_id, k.object_id
      from given g join kept k on k.content_hash = g.hash;
    -- Checked while the contents are locked; see create_paste.
    if exists (select from pastes.banned b where b.content_hash = any (hashes)) then
        raise exception 'banned content' using errcode = 'PB004';
    end if;
end $$;
