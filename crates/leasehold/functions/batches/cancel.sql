-- Cancels a batch as a whole, in bounded steps.

-- Cancels up to `up_to` members: waiting ones at once, running ones get a cancel request. Skips members
-- that another transaction has locked. Returns how many it found of each kind.
create or replace function leasehold_internal.cancel_members(
    batch bigint, up_to int, out cancelled int, out requested int
)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
declare
    mine leasehold_internal.batch;
    waiting bigint[];
    running bigint[];
begin
    select * into mine from leasehold_internal.batch b where b.id = batch;
    select coalesce(array_agg(f.id) filter (where not f.held), '{}'),
           coalesce(array_agg(f.id) filter (where f.held), '{}')
      into waiting, running
      from (select j.id, j.held
              from leasehold_internal.batch_member m join leasehold.job j on j.id = m.job_id
             where m.batch_id = batch and not j.cancel_requested
             order by m.batch_id, m.job_id limit up_to
               for update of j skip locked) f;
    update leasehold.job j set cancel_requested = true where j.id = any (running) and j.held;
    requested := cardinality(running);
    cancelled := leasehold_internal.cancel_rows(
        waiting, false, null,
        'batch ' || batch || ' was cancelled by ' || mine.cancelled_by || coalesce(': ' || mine.cancelled_why, ''));
end $$;

-- Cancels a batch: seals it, cancels waiting members and asks running ones to stop, up to `up_to` members
-- per call. Repeat the call until `more` is false; otherwise housekeeping continues. Its follow-up for
-- success is not enqueued any more. Waits for transactions that add to it or close it.
create or replace function leasehold.cancel_batch(
    batch_id bigint, actor text, why text default null, up_to int default 1000
)
returns table (cancelled int, requested int, more boolean)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    known leasehold_internal.batch;
begin
    if actor is null then
        raise exception 'a cancel has an actor; this one has none'
            using errcode = 'LH002', constraint = 'LH002', hint = 'Pass actor => the name of the operator.';
    end if;
    if up_to is null or up_to not between 1 and 10000 then
        raise exception 'up_to is %; it must be between 1 and 10,000', coalesce(up_to::text, 'null')
            using errcode = 'LH002', constraint = 'LH002', hint = 'Leave it out for 1,000.';
    end if;
    -- This lock waits for adds; that of the update alone would not.
    perform from leasehold_internal.batch b where b.id = cancel_batch.batch_id for update;
    update leasehold_internal.batch b
       set cancelled_at = statement_timestamp(), cancelled_by = left(actor, 200), cancelled_why = left(why, 1000),
           sealed_at = coalesce(b.sealed_at, statement_timestamp())
     where b.id = cancel_batch.batch_id and b.cancelled_at is null and b.closed_at is null
    returning b.* into known;
    if found then
        insert into leasehold.audit (actor, action, subject, detail)
        values (cancel_batch.actor, 'cancel', 'batch ' || batch_id, why);
        -- An empty batch has no other end.
        insert into leasehold_internal.batch_end (batch_id, outcome, n)
        values (cancel_batch.batch_id, 'cancelled', 0);
    else
        select * into known from leasehold_internal.batch b where b.id = batch_id;
        if not found then
            raise exception 'there is no batch %', coalesce(batch_id::text, 'null')
                using errcode = 'LH006', constraint = 'LH006', hint = 'See leasehold.batches.';
        end if;
    end if;
    if known.closed_at is not null then
        cancelled := 0;
        requested := 0;
        more := false;
        return next;
        return;
    end if;
    select c.cancelled, c.requested into cancelled, requested
      from leasehold_internal.cancel_members(batch_id, up_to) c;
    perform leasehold_internal.close_if_last(batch_id);
    more := exists (select from leasehold_internal.batch_member m join leasehold.job j on j.id = m.job_id
                     where m.batch_id = cancel_batch.batch_id and not j.cancel_requested);
    return next;
end $$;
