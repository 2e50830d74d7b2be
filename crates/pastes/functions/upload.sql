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

-- Marks the pastes among these FAILED that wait for an upload job which has ended: it is dead, for
-- any cause, or an operator cancelled or deleted it. They expire within a day. A paste without
-- staged bytes can never be uploaded, so it counts as well. Compares the identity, because a name can be used
-- again; a null id matches whichever paste has the code: jobs from before pastes had an identity carry none.
-- Returns how many it marked.
--
-- The condition on the job is in the update: a job that an operator redrove meanwhile keeps its paste. The
-- jobs are looked up by an array of ids, because a join with the view would read all of its rows. `is true`
-- leaves the index of live pastes out, which would read every one of them.
create or replace function pastes.fail_uploads(codes text[], ids uuid[])
returns int
language plpgsql volatile
set search_path = pastes, leasehold, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    failed int;
begin
    update pastes.pastes p
       set status = 'FAILED',
           expires_at = least(p.expires_at, statement_timestamp() + interval '24 hours')
      from unnest(codes, ids) as u (code, id)
     where p.short_code = u.code and p.paste_id = coalesce(u.id, p.paste_id)
       and p.status = 'IN_PROGRESS' and (p.deletion_status = 'NOT_EXPIRED') is true
       and not exists (
           select from pastes.staged s
            where s.short_code = u.code
              and s.job_id = any (array(
                      select j.id from leasehold.jobs j
                       where j.stored_in = 'job'
                         and j.id = any (array(
                                 select t.job_id from pastes.staged t
                                  where t.short_code = any (codes))))));
    get diagnostics failed = row_count;
    return failed;
end $$;

-- Calls fail_uploads for at most `most` pastes that wait for their upload, in the order of their contents
-- and codes, after the given ones. Returns how many were marked, and the last paste of the page; null after
-- the last page.
--
-- The worker that buries a job marks its paste at once. This finds the others: the worker died in between,
-- or housekeeping buried the job because its worker was lost or its time was over.
create or replace function pastes.check_uploads(after_content bigint, after_code text, most int)
returns table (failed int, last_content bigint, last_code text)
language plpgsql volatile
set search_path = pastes, pg_temp
set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
    codes text[];
    ids uuid[];
    contents bigint[];
begin
    select array_agg(w.short_code::text), array_agg(w.paste_id), array_agg(w.content_id)
      into codes, ids, contents
      from (select p.short_code, p.paste_id, p.content_id from pastes.pastes p
             where p.status = 'IN_PROGRESS' and (p.deletion_status = 'NOT_EXPIRED') is true
               and (p.content_id, p.short_code) > (after_content, after_code)
               -- Without staged bytes the job's own attempts decide, for an hour.
               and (p.created_at < statement_timestamp() - interval '1 hour'
                    or exists (select from pastes.staged s where s.short_code = p.short_code))
             order by p.content_id, p.short_code limit most) w;
    failed := coalesce(pastes.fail_uploads(codes, ids), 0);
    if cardinality(codes) = most then
        last_content := contents[most];
        last_code := codes[most];
    end if;
    return next;
end $$;
