-- The objects of these contents were seen in the store with the right bytes: every paste that waits
-- for them can be read, and its staged bytes and its job are done with. Answers which contents may
-- keep their object; for the others nobody refers to it any more.
--
-- Pastes are locked before contents, as the sweep does, and a paste that someone else is at work on
-- is left alone: it is being deleted, or being finished.
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

-- What an upload job has to do; no row: nothing any more.
create or replace function pastes.to_upload(codes text[])
returns table (code text, content_id bigint, content_hash text, object_id uuid, state text, bytes bytea)
language sql stable set search_path = pastes, pg_temp as $$
    select s.short_code::text, c.content_id, c.content_hash::text, c.object_id, c.state::text, s.bytes
      from pastes.staged s
      join pastes.pastes p using (short_code)
      join pastes.contents c on c.content_id = p.content_id
     where s.short_code = any (codes) and p.status = 'IN_PROGRESS'
       and p.deletion_status = 'NOT_EXPIRED' and p.expires_at > statement_timestamp()
$$;

-- An upload job was buried, for whatever cause and by whomever: its paste has failed, in the same
-- transaction. It goes after a day. The job's id is compared because a name can be used again.
create or replace function pastes.upload_buried()
returns trigger language plpgsql security definer set search_path = pastes, pg_temp as $$
begin
    update pastes.pastes p
       set status = 'FAILED',
           expires_at = least(p.expires_at, statement_timestamp() + interval '24 hours')
     where p.short_code = (select s.short_code from pastes.staged s
                            where s.short_code = new.kwargs ->> 'code' and s.job_id = new.id)
       and p.status = 'IN_PROGRESS';
    return null;
end $$;

create or replace trigger pastes_upload_buried after insert on leasehold.dead_job
    for each row when (new.name = 'pastes.upload') execute function pastes.upload_buried();
