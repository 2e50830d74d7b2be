-- Members of batches, and the end of a batch.
--
-- A transaction cannot know whether it is the last one to commit without waiting for the others. So the end
-- of a job closes its batch when it sees no other member, and leaves a row in `batch_end` otherwise: after
-- two ends that did not see each other, housekeeping finds that row.

-- Adds jobs that were just stored to a batch. Only the transaction of a running member may add to a sealed
-- batch: see `leasehold.extend_batch`.
create or replace function leasehold_internal.add_members(batch bigint, ids bigint[])
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    known leasehold_internal.batch;
    fence text[] := string_to_array(current_setting('leasehold.extends', true), ':');
begin
    if cardinality(ids) > 10000 then
        raise exception 'this call adds % jobs to batch %; one call adds at most 10,000', cardinality(ids), batch
            using errcode = 'LH002', constraint = 'LH002', hint = 'Add them in several calls.';
    end if;
    select * into known from leasehold_internal.batch b where b.id = batch;
    if found and known.sealed_at is null then
        -- A seal waits for this transaction: it must not overtake an add. Other adds do not wait, and
        -- neither does a housekeeper that counts ends.
        select * into known from leasehold_internal.batch b where b.id = batch for key share;
    end if;
    if known.id is null then
        raise exception 'there is no batch %', batch
            using errcode = 'LH006', constraint = 'LH006', hint = 'Open one with leasehold.open_batch.';
    end if;
    if known.cancelled_at is not null then
        raise exception 'batch % is cancelled; no job can be added', batch
            using errcode = 'LH006', constraint = 'LH006', hint = 'Open another batch.';
    end if;
    if known.sealed_at is not null then
        -- The lock keeps the member from ending before this transaction: the batch cannot be closed.
        perform from leasehold.job j
          where j.id = fence[1]::bigint and j.lease_generation = fence[2]::bigint and j.held
            and j.batch_id = batch
            for share;
        if not found then
            raise exception 'batch % is %; no job can be added', batch,
                    case when known.closed_at is null then 'sealed' else 'closed' end
                using errcode = 'LH006', constraint = 'LH006',
                      hint = 'Open another batch. A running member adds to its own one after leasehold.extend_batch.';
        end if;
    end if;
    insert into leasehold_internal.batch_member (batch_id, job_id)
    select batch, i.id from unnest(ids) as i (id);
end $$;

-- Ends members: deletes their rows, records how they ended, and closes the batches of which no other
-- member is left. A job that is no member any more counts nothing.
create or replace function leasehold_internal.end_members(ended leasehold_internal.ended_job[])
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
declare
    batches bigint[];
    one bigint;
begin
    if cardinality(ended) = 0 then
        return;
    end if;
    with gone as (
        delete from leasehold_internal.batch_member m
         using unnest(ended) as e
         where m.batch_id = e.batch_id and m.job_id = e.id
        returning m.batch_id, e.outcome
    ), recorded as (
        insert into leasehold_internal.batch_end (batch_id, outcome, n)
        select g.batch_id, g.outcome, count(*) from gone g group by g.batch_id, g.outcome
    )
    select array_agg(distinct g.batch_id) into batches from gone g;
    foreach one in array coalesce(batches, '{}') loop
        perform leasehold_internal.close_if_last(one);
    end loop;
end $$;

-- Closes a batch if no member is left, for a transaction that has ended one or sealed it. A failure, such
-- as a trigger that refuses the follow-up, must not fail the end of the job: housekeeping tries again.
create or replace function leasehold_internal.close_if_last(batch bigint)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    -- A snapshot of the whole transaction may be older than members that were added since.
    if current_setting('transaction_isolation') <> 'read committed' then
        return false;
    end if;
    if leasehold_internal.has_members(batch) then
        return false;
    end if;
    -- An open batch is not locked: the transaction may stay open, and a seal would wait for it.
    if not exists (select from leasehold_internal.batch b
                    where b.id = batch and b.sealed_at is not null and b.closed_at is null) then
        return false;
    end if;
    begin
        return leasehold_internal.close_batch(batch);
    exception when others then
        raise warning 'batch % could not be closed: %', batch, sqlerrm;
        return false;
    end;
end $$;

-- Returns whether a batch has a member that the current snapshot sees.
--
-- While an old snapshot is open the index entries of ended members stay, and a scan from either end may pass
-- all of them: with 100,000 members each end would. So the session remembers the member that it found, looks
-- that one up first, and searches from the other end when it has ended.
create or replace function leasehold_internal.has_members(batch bigint)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set jit = off set plan_cache_mode = force_generic_plan as $$
declare
    -- As in 17:1201>: the batch, the member, and how it was found.
    known text[] := regexp_match(current_setting('leasehold.member', true), '^(\d{1,18}):(\d{1,18})([<>])$');
    upwards boolean := false;
    member bigint;
begin
    if known[1]::bigint = batch then
        if exists (select from leasehold_internal.batch_member m
                    where m.batch_id = batch and m.job_id = known[2]::bigint) then
            return true;
        end if;
        upwards := known[3] = '>';
    end if;
    -- From the highest id first: jobs end about in the order of their ids.
    if upwards then
        member := (select m.job_id from leasehold_internal.batch_member m
                    where m.batch_id = batch order by m.batch_id, m.job_id limit 1);
    else
        member := (select m.job_id from leasehold_internal.batch_member m
                    where m.batch_id = batch order by m.batch_id desc, m.job_id desc limit 1);
    end if;
    if member is null then
        return false;
    end if;
    perform set_config('leasehold.member',
                       batch || ':' || member || case when upwards then '<' else '>' end, false);
    return true;
end $$;

-- Counts the ends of a batch and, if it is sealed and has no member, closes it and enqueues its follow-up.
-- Never waits: a batch that another transaction has locked is left to that one, or to the next look.
-- Returns true if it was closed. `closing` false: only counts.
create or replace function leasehold_internal.close_batch(batch bigint, closing boolean default true)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    mine leasehold_internal.batch;
    draft jsonb;
    job bigint;
begin
    -- Not `for update`: an add would wait.
    perform from leasehold_internal.batch b where b.id = batch and b.closed_at is null
        for no key update skip locked;
    if not found then
        return false;
    end if;
    -- The lock first, then a new snapshot: one that is older than the lock may miss members that were
    -- added before the batch was sealed.
    with ends as (
        delete from leasehold_internal.batch_end e where e.batch_id = batch returning e.outcome, e.n
    ), sums as (
        select coalesce(sum(e.n) filter (where e.outcome = 'completed'), 0) as completed,
               coalesce(sum(e.n) filter (where e.outcome = 'cancelled'), 0) as cancelled,
               coalesce(sum(e.n) filter (where e.outcome = 'dead'), 0) as dead,
               coalesce(sum(e.n) filter (where e.outcome = 'deleted'), 0) as deleted
          from ends e
    )
    update leasehold_internal.batch b
       set completed = b.completed + s.completed, cancelled = b.cancelled + s.cancelled,
           dead = b.dead + s.dead, deleted = b.deleted + s.deleted
      from sums s where b.id = batch
    returning b.* into mine;
    if not closing or mine.sealed_at is null or leasehold_internal.has_members(batch) then
        return false;
    end if;
    draft := case
        when mine.dead = 0 and mine.cancelled = 0 and mine.deleted = 0 and mine.cancelled_at is null
            then coalesce(mine.on_success, mine.on_end)
        when mine.dead > 0 then coalesce(mine.on_death, mine.on_end)
        else mine.on_end end;
    if draft is not null then
        job := leasehold_internal.enqueue_follow_up(draft);
    end if;
    update leasehold_internal.batch b
       set closed_at = statement_timestamp(), follow_up_job_id = job
     where b.id = batch;
    return true;
end $$;

-- Locks those of these batches that may get members back, and returns them. The lock keeps them from being
-- closed until the transaction ends. A transaction that closes one of them may stay open: after a second
-- the redriven jobs belong to no batch.
create or replace function leasehold_internal.lock_open_batches(batches bigint[])
returns bigint[]
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off set lock_timeout = '1s' as $$
begin
    if cardinality(batches) = 0 then
        return '{}';
    end if;
    begin
        return array(
            select b.id from leasehold_internal.batch b
             where b.id = any (batches) and b.closed_at is null and b.cancelled_at is null
             order by b.id for no key update);
    exception when lock_not_available then
        return array(
            select b.id from leasehold_internal.batch b
             where b.id = any (batches) and b.closed_at is null and b.cancelled_at is null
             order by b.id for no key update skip locked);
    end;
end $$;

-- Makes redriven jobs members of their batches again, and takes their deaths back. The caller has locked
-- the batches, which are not closed.
create or replace function leasehold_internal.rejoin_members(ids bigint[], batches bigint[])
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold_internal.batch_member (batch_id, job_id)
    select r.batch_id, r.job_id from unnest(ids, batches) as r (job_id, batch_id);
    insert into leasehold_internal.batch_end (batch_id, outcome, n)
    select r.batch_id, 'dead', -count(*) from unnest(batches) as r (batch_id) group by r.batch_id;
    -- A look with an older snapshot does not see these members; after this write it cannot lock the batch.
    update leasehold_internal.batch b set dead = b.dead where b.id = any (batches)
$$;

-- Looks at the batches of which jobs ended since the last look: counts the ends, and closes those whose
-- last ends did not see each other. Continues cancels, and ends members whose job is gone. All
-- housekeepers share the looks, one per `every`. An end that finds its batch locked by a look leaves it to
-- the next one, so a call takes about `budget`: repeat it while `more` is true. Returns how many batches it
-- closed.
create or replace function leasehold_internal.look_at_batches(
    every interval default interval '1 second', budget interval default interval '20 milliseconds',
    out closed int, out more boolean
)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    started_at bigint;
    reached bigint;
    one bigint;
    latest timestamptz := clock_timestamp() + budget;
begin
    closed := 0;
    more := false;
    select d.after_id into started_at from leasehold_internal.duty d
     where d.name = 'look_at_batches'
       -- A look that has begun continues.
       and (d.after_id > 0 or d.ran_at + d.cooldown <= statement_timestamp() - every
            -- The clock was set back.
            or d.ran_at > statement_timestamp() + interval '1 minute')
       for update skip locked;
    if not found then
        return;
    end if;
    reached := started_at;
    loop
        one := (select e.batch_id from leasehold_internal.batch_end e
                 where e.batch_id > reached order by e.batch_id limit 1);
        exit when one is null;
        reached := one;
        -- One block per batch: one whose follow-up is refused must not stop the others.
        begin
            closed := closed + leasehold_internal.close_batch(one)::int;
            -- Ends of a batch that is gone or was closed before.
            delete from leasehold_internal.batch_end e
             where e.batch_id = one
               and not exists (select from leasehold_internal.batch b where b.id = one and b.closed_at is null);
        exception when others then
            -- Its ends stay, and the next look finds them.
            raise warning 'batch % could not be closed: %', one, sqlerrm;
        end;
        more := clock_timestamp() > latest;
        exit when more;
    end loop;
    if not more then
        reached := 0;
        for one in
            select b.id from leasehold_internal.batch b
             where b.cancelled_at is not null and b.closed_at is null order by b.id limit 100
        loop
            exit when clock_timestamp() > latest;
            perform leasehold_internal.cancel_members(one, 1000);
        end loop;
    end if;
    -- Ten times as long without a look as it took, all calls of it together.
    update leasehold_internal.duty d
       set after_id = reached, ran_at = clock_timestamp(),
           cooldown = least(case when started_at > 0 then d.cooldown else interval '0' end
                            + 10 * (clock_timestamp() - statement_timestamp()), interval '30 seconds')
     where d.name = 'look_at_batches';
    if not more then
        -- After that, so that it does not count for the cooldown.
        perform leasehold_internal.end_strays();
    end if;
end $$;

-- Ends members whose job is gone, in the next piece of all members. No transition leaves such a row, but a
-- bare DELETE does, and its batch would never be closed.
create or replace function leasehold_internal.end_strays(up_to int default 5000)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
declare
    began timestamptz := clock_timestamp();
    next_from bigint;
    seen int;
    last bigint;
    strays leasehold_internal.ended_job[];
begin
    select d.after_id into next_from from leasehold_internal.duty d
     where d.name = 'walk_members'
       and (d.ran_at + d.cooldown <= statement_timestamp() - interval '10 seconds'
            or d.ran_at > statement_timestamp() + interval '1 minute')
       for update skip locked;
    if not found then
        return 0;
    end if;
    -- Whole batches, because `next_from` is the id of a batch.
    select count(*), max(w.batch_id),
           coalesce(array_agg(row(w.job_id, null, null, w.batch_id, 'deleted')::leasehold_internal.ended_job)
                    filter (where not exists (select from leasehold.job j where j.id = w.job_id)), '{}')
      into seen, last, strays
      from (select m.batch_id, m.job_id from leasehold_internal.batch_member m
             where m.batch_id > next_from order by m.batch_id
             fetch first (up_to) rows with ties) w;
    perform leasehold_internal.end_members(strays);
    update leasehold_internal.duty d
       set after_id = case when seen < up_to then 0 else last end, ran_at = clock_timestamp(),
           cooldown = least(50 * (clock_timestamp() - began), interval '30 minutes')
     where d.name = 'walk_members';
    return cardinality(strays);
end $$;
