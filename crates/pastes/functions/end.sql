-- Ends pastes before they expire: deleted, burnt, taken down. Each function sets `expires_at` to now
-- and enqueues a job that drops the reference at once; the sweep handles pastes that expire by
-- themselves.
--
-- Every function takes the paste's identity beside its code: another paste may get the name between the
-- caller's read and its request.

-- Enqueues the deletion of pastes that have ended, 500 per job: their codes and ids stay below the 64
-- KiB that the kwargs of a job may have.
create or replace function pastes.enqueue_end(codes text[], ids uuid[])
returns void
language sql volatile set search_path = pastes, leasehold, pg_temp as $$
    insert into leasehold.job (name, queue, kwargs, max_attempts, tag)
    select k.name, k.queue,
           jsonb_build_object('codes', jsonb_agg(u.code order by u.position),
                              'ids', jsonb_agg(u.id order by u.position)),
           k.max_attempts, 'pastes.end'
      from pastes.jobs() k, unnest(codes, ids) with ordinality as u (code, id, position)
     where k.job = 'end'
     group by k.name, k.queue, k.max_attempts, (u.position - 1) / 500
$$;

-- Makes these pastes DELETED if they have ended, drops their references, and deletes their staged
-- bytes. Returns how many. A paste whose name was used again is found under the name that create_paste
-- gave it.
--
-- Locks pastes before contents, as every function here does.
create or replace function pastes.end_pastes(codes text[], ids uuid[])
returns int
language plpgsql volatile
set search_path = pastes, leasehold, pg_temp
set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
    now timestamptz := statement_timestamp();
    -- No claim of the sweep is negative.
    claim bigint := -(pg_current_xact_id()::text::bigint);
    names text[];
    contents bigint[];
    jobs bigint[];
begin
    names := array(
        select p.short_code from pastes.pastes p
         where p.short_code = any (codes || array(select '~' || u.id from unnest(ids) as u (id)))
           and p.paste_id = any (ids)
           and p.deletion_status = 'NOT_EXPIRED' and p.expires_at <= now
         order by p.short_code for update);
    update pastes.pastes p
       set deletion_status = 'DELETION_IN_PROGRESS', deletion_initiated_at = now,
           deletion_claim = claim
     where p.short_code = any (names) and p.paste_id = any (ids)
       and p.deletion_status = 'NOT_EXPIRED' and p.expires_at <= now;
    with ended as (
        update pastes.pastes p set deletion_status = 'DELETED'
         where p.short_code = any (names)
           and p.deletion_status = 'DELETION_IN_PROGRESS' and p.deletion_claim = claim
        returning p.content_id
    )
    select array_agg(e.content_id) into contents from ended e;
    perform pastes.drop_references(contents);
    with dropped as (
        delete from pastes.staged s where s.short_code = any (names) returning s.job_id
    )
    select array_agg(d.job_id) into jobs from dropped d;
    perform leasehold.complete_waiting(jobs);
    return coalesce(cardinality(contents), 0);
end $$;

-- Ends a paste now. Returns false if it had already ended.
create or replace function pastes.end_now(code text, paste uuid)
returns boolean
language plpgsql volatile set search_path = pastes, pg_temp as $$
begin
    update pastes.pastes p set expires_at = statement_timestamp()
     where p.short_code = code and p.paste_id = paste and p.expires_at > statement_timestamp()
       and p.deletion_status = 'NOT_EXPIRED';
    if not found then
        return false;
    end if;
    perform pastes.enqueue_end(array[code], array[paste]);
    return true;
end $$;

-- Ends an owner's paste now; if `paste` is given, only that one. Returns null if the owner has no such
-- paste, and false if it had already ended.
create or replace function pastes.end_owned(code text, owner bytea, paste uuid)
returns boolean
language plpgsql volatile set search_path = pastes, pg_temp as $$
declare
    owned uuid;
begin
    select p.paste_id into owned
      from pastes.pastes p join pastes.owners o using (user_id)
     where p.short_code = code and o.token_hash = owner
       and p.paste_id = coalesce(paste, p.paste_id);
    if not found then
        return null;
    end if;
    return pastes.end_now(code, owned);
end $$;

-- Burns a paste: of two concurrent readers, one gets true. The condition uses the clock at the moment
-- the row is checked, not the start of the statement: a statement that began earlier but got the lock
-- later would see an `expires_at` after its own start, and burn the paste again.
create or replace function pastes.burn(code text, paste uuid)
returns boolean
language plpgsql volatile set search_path = pastes, pg_temp as $$
begin
    update pastes.pastes p set expires_at = statement_timestamp()
     where p.short_code = code and p.paste_id = paste
       and p.burn and p.expires_at > clock_timestamp()
       and p.deletion_status = 'NOT_EXPIRED' and p.status in ('IN_PROGRESS', 'PROCESSED');
    if not found then
        return false;
    end if;
    perform pastes.enqueue_end(array[code], array[paste]);
    return true;
end $$;

-- Ends every live paste of these bytes. Returns how many.
--
-- Finds them by their content: a live paste refers to content in use, and of one hash there is one.
create or replace function pastes.end_copies(hash text)
returns bigint
language plpgsql volatile
set search_path = pastes, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    codes text[];
    ids uuid[];
begin
    with living as materialized (
        select p.short_code, p.paste_id from pastes.pastes p
         where p.content_id = any (array(
                   select c.content_id from pastes.contents c
                    where c.content_hash = hash and c.state in ('STAGED', 'LIVE')))
           -- `is true` leaves the index on `expires_at` out: it would read every live paste.
           and (p.expires_at > statement_timestamp()) is true and p.deletion_status = 'NOT_EXPIRED'
         order by p.short_code for update
    ), ended as (
        update pastes.pastes p set expires_at = statement_timestamp()
          from living l where p.short_code = l.short_code and p.paste_id = l.paste_id
           and (p.expires_at > statement_timestamp()) is true and p.deletion_status = 'NOT_EXPIRED'
        returning p.short_code, p.paste_id
    )
    select array_agg(e.short_code::text), array_agg(e.paste_id) into codes, ids from ended e;
    perform pastes.enqueue_end(codes, ids);
    return coalesce(cardinality(codes), 0);
end $$;
