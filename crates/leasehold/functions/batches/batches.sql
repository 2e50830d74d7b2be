-- Batches: open, add, seal. Adding is a parameter of `leasehold.enqueue`.

-- Opens a batch in the caller's transaction and returns its id. The follow-ups are jobs as JSON objects:
-- `on_success` is enqueued when every job completed, `on_death` when at least one is dead, `on_end` in
-- every other case, and in those two when they have no follow-up of their own.
create or replace function leasehold.open_batch(
    description text default null, on_success jsonb default null, on_end jsonb default null,
    on_death jsonb default null
)
returns bigint
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_variable
declare
    made bigint;
begin
    if octet_length(description) > 1000 then
        raise exception 'this description has % bytes', octet_length(description)
            using errcode = 'LH002', constraint = 'LH002', hint = 'A description has at most 1,000 bytes.';
    end if;
    perform leasehold_internal.check_follow_up(on_success, 'on_success');
    perform leasehold_internal.check_follow_up(on_end, 'on_end');
    perform leasehold_internal.check_follow_up(on_death, 'on_death');
    insert into leasehold_internal.batch as b (description, on_success, on_end, on_death)
    values (description, on_success, on_end, on_death)
    returning b.id into made;
    return made;
end $$;

-- Opens a sealed batch for one job, which the caller stores and passes to `add_only_member`. Internal: a
-- sealed batch that gets no member would not be closed.
create or replace function leasehold_internal.open_batch_of_one(on_success jsonb, on_end jsonb, on_death jsonb)
returns bigint
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_variable
declare
    made bigint;
begin
    perform leasehold_internal.check_follow_up(on_success, 'on_success');
    perform leasehold_internal.check_follow_up(on_end, 'on_end');
    perform leasehold_internal.check_follow_up(on_death, 'on_death');
    insert into leasehold_internal.batch as b (sealed_at, on_success, on_end, on_death)
    values (statement_timestamp(), on_success, on_end, on_death)
    returning b.id into made;
    return made;
end $$;

-- Makes a job the member of its batch of one.
create or replace function leasehold_internal.add_only_member(batch bigint, job_id bigint)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold_internal.batch_member (batch_id, job_id) values (batch, job_id)
$$;

-- Seals a batch: no more jobs are added, and it closes when all of them have ended; at once if they have.
-- Waits for transactions that add to it. Returns false if it was sealed before.
create or replace function leasehold.seal_batch(batch_id bigint)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
begin
    -- This lock waits for adds; that of the update alone would not.
    perform from leasehold_internal.batch b where b.id = batch_id for update;
    update leasehold_internal.batch b set sealed_at = statement_timestamp()
     where b.id = batch_id and b.sealed_at is null;
    if not found then
        if not exists (select from leasehold_internal.batch b where b.id = batch_id) then
            raise exception 'there is no batch %', coalesce(batch_id::text, 'null')
                using errcode = 'LH006', constraint = 'LH006', hint = 'Open one with leasehold.open_batch.';
        end if;
        return false;
    end if;
    if not leasehold_internal.close_if_last(batch_id) then
        -- The last end may have been recorded while the batch was open, and counted since.
        insert into leasehold_internal.batch_end (batch_id, outcome, n) values (seal_batch.batch_id, 'completed', 0);
    end if;
    return true;
end $$;

-- Lets the rest of the transaction add jobs to the batch of a running job, sealed or not, and returns the
-- batch. Fails unless the caller holds the job under this generation.
create or replace function leasehold.extend_batch(job_id bigint, generation bigint)
returns bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    mine bigint;
begin
    perform leasehold.check_lease(job_id, generation);
    select j.batch_id into mine from leasehold.job j where j.id = job_id;
    if mine is null then
        raise exception 'job % belongs to no batch', job_id
            using errcode = 'LH006', constraint = 'LH006', hint = 'Enqueue it with batch => the id of one.';
    end if;
    -- Names the fence that `add_members` checks, and proves nothing.
    perform set_config('leasehold.extends', job_id || ':' || generation, true);
    return mine;
end $$;

-- Returns the batch whose follow-up a job is, or null.
create or replace function leasehold.followed_batch(job_id bigint)
returns bigint
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
begin
    return (select b.id from leasehold_internal.batch b where b.follow_up_job_id = job_id);
end $$;
