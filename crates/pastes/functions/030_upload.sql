-- Records that the objects of these contents are in the store with the right bytes. Every paste that
-- waits for them becomes readable; its staged bytes are deleted and its job completes. Returns the
-- contents that keep their object; no paste refers to the others any more.
--
-- Locks pastes before contents, as the sweep does. Skips a paste that another transaction holds: that
-- one is deleting or finishing it.
create or replace function pastes.finish_uploads(ids bigint[], urls text[])
returns setof bigint
language plpgsql volatile
set search_path = pastes, leasehold, pg_temp
set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
    codes text[];
    kept bigint[];
    jobs bigint[];
begin
    codes := array(
        select p.short_code from pastes.pastes p
         where p.content_id = any (ids) and p.status = 'IN_PROGRESS'
           and p.deletion_status = 'NOT_EXPIRED'
         order by p.short_code for update skip locked);
    with locked as (
        select c.content_id, c.state from pastes.contents c
         where c.content_id = any (ids) and c.state in ('STAGED', 'LIVE')
         order by c.content_hash for update
    ), made_live as (
        update pastes.contents c set state = 'LIVE', changed_at = statement_timestamp()
          from locked l where c.content_id = l.content_id and l.state = 'STAGED'
    )
    select coalesce(array_agg(l.content_id), '{}') into kept from locked l;
    update pastes.pastes p set status = 'PROCESSED', s3_url = u.url
      from unnest(ids, urls) as u (content_id, url)
     where p.short_code = any (codes) and p.content_id = u.content_id
       and p.content_id = any (kept)
       and p.status = 'IN_PROGRESS' and p.deletion_status = 'NOT_EXPIRED';
    with dropped as (
        delete from pastes.staged s where s.short_code = any (codes) and s.content_id = any (kept)
        returning s.job_id
    )
    select array_agg(d.job_id) into jobs from dropped d;
    perform leasehold.complete_waiting(jobs);
    return query select unnest(kept);
end $$;

-- Returns what an upload job has to do; no row means nothing is left. A null id matches whichever paste
-- has the code: jobs from before pastes had an identity carry none.
create or replace function pastes.to_upload(codes text[], ids uuid[])
returns table (code text, content_id bigint, content_hash text, object_id uuid, state text, bytes bytea)
language sql stable set search_path = pastes, pg_temp set enable_seqscan = off set jit = off as $$
    select s.short_code::text, c.content_id, c.content_hash::text, c.object_id, c.state::text, s.bytes
      from unnest(codes, ids) as u (code, id)
      join pastes.staged s on s.short_code = u.code
      join pastes.pastes p on p.short_code = u.code and p.paste_id = coalesce(u.id, p.paste_id)
      join pastes.contents c on c.content_id = p.content_id
     where s.short_code = any (codes) and p.status = 'IN_PROGRESS'
       and p.deletion_status = 'NOT_EXPIRED' and p.expires_at > statement_timestamp()
$$;

-- Returns the pastes among these that still wait for their upload. finish_uploads skips a paste that
-- another transaction holds; if that transaction rolls back, the paste's own job must run again.
create or replace function pastes.still_uploading(codes text[], ids uuid[])
returns setof text
language sql stable set search_path = pastes, pg_temp set enable_seqscan = off set jit = off as $$
    select p.short_code::text
      from unnest(codes, ids) as u (code, id)
      join pastes.pastes p on p.short_code = u.code and p.paste_id = coalesce(u.id, p.paste_id)
     where p.short_code = any (codes) and p.status = 'IN_PROGRESS'
       and p.deletion_status = 'NOT_EXPIRED' and p.expires_at > statement_timestamp()
$$;

-- Marks the paste of a buried upload job FAILED, whatever buried the job and why, in the transaction
-- that buries it. The paste expires within a day. Compares the job's id because a name can be used
-- again; if the staged bytes, which hold that id, are missing, the identity in the job decides.
create or replace function pastes.upload_buried()
returns trigger language plpgsql security definer set search_path = pastes, pg_temp as $$
begin
    update pastes.pastes p
       set status = 'FAILED',
           expires_at = least(p.expires_at, statement_timestamp() + interval '24 hours')
     where p.short_code = new.kwargs ->> 'code' and p.status = 'IN_PROGRESS'
       and coalesce((select s.job_id = new.id from pastes.staged s
                      where s.short_code = new.kwargs ->> 'code'),
                    p.paste_id::text = new.kwargs ->> 'paste');
    return null;
end $$;

create or replace trigger pastes_upload_buried after insert on leasehold.dead_job
    for each row when (new.name = 'pastes.upload') execute function pastes.upload_buried();
