-- Every change of jobs and leases, in order, with the op that made it and its fence.
-- A transaction that is rolled back leaves nothing here, as it should.
-- Writers of one row wait for each other, so the order of the entries of one job is the order in
-- which their transactions committed.
create table public.trail (
    seq bigint generated always as identity primary key,
    tx bigint not null default pg_current_xact_id()::text::bigint,
    actor text not null default coalesce(current_setting('il.actor', true), ''),
    fence bigint default nullif(current_setting('il.fence', true), '')::bigint,
    place text not null,
    action text not null,
    before jsonb,
    after jsonb,
    -- Of a job that was held: whether its lease had run out in that moment.
    overdue boolean,
    -- Of a job that was waiting: whether it was due and not past its time.
    due boolean
);

create function public.note_trail() returns trigger language plpgsql security definer as $$
declare
    overdue boolean;
    due boolean;
begin
    if tg_argv[0] = 'job' and tg_op <> 'INSERT' then
        if old.held then
            select l.lease_expires_at < statement_timestamp() into overdue
              from leasehold_internal.lease l where l.lease_generation = old.lease_generation;
        else
            due := old.scheduled_at <= statement_timestamp() and old.expires_at > statement_timestamp();
        end if;
    end if;
    insert into public.trail (place, action, before, after, overdue, due)
    values (tg_argv[0], lower(tg_op), to_jsonb(old), to_jsonb(new), overdue, due);
    return null;
end $$;

create trigger trail after insert or update or delete on leasehold.job
    for each row execute function public.note_trail('job');
create trigger trail after insert or update or delete on leasehold_internal.dead_job
    for each row execute function public.note_trail('dead_job');
create trigger trail after insert or update or delete on leasehold_internal.lease
    for each row execute function public.note_trail('lease');
create trigger trail after insert on leasehold_internal.history
    for each row execute function public.note_trail('history');

-- The world of every run: job 1 runs under lease 1000, which has run out; job 2 waits, is due and
-- has lost `losses` workers; job 3 died nine days ago. The windows of the keys of 1 and 3 are over:
-- the jobs own them only as long as they live.
create function public.build_world(last_attempt boolean, cancel_asked boolean, losses smallint)
returns void language plpgsql set session_replication_role = replica as $$
begin
    delete from leasehold.job;
    delete from leasehold_internal.lease;
    delete from leasehold_internal.dead_job;
    delete from leasehold_internal.history;
    delete from leasehold_internal.idempotency_key;
    insert into leasehold_internal.queue (name) values ('default') on conflict do nothing;
    insert into leasehold.job (id, name, kwargs, held, lease_generation, attempts, max_attempts,
                               cancel_requested, idempotency_key, lost_count)
    overriding system value values
        (1, 'note', '{"n": 1}', true, 1000, 1, case when last_attempt then 1 end, cancel_asked, 'k', 0),
        (2, 'note', '{"n": 2}', false, 0, 0, null, false, null, losses);
    insert into leasehold_internal.lease (lease_generation, lease_expires_at, lease, keep_history, queue,
                                 claimed_by, job_ids)
    values (1000, now() - interval '1 second', interval '1 day', true, 'default', 'first', '{1}');
    insert into leasehold_internal.dead_job (id, enqueued_at, scheduled_at, expires_at, died_at,
        lease_generation, priority, attempts, lost_count, cause, queue, name, tag, kwargs, idempotency_key)
    values (3, now() - interval '9 days', now(), now() + interval '1 day', now() - interval '9 days',
        500, 0, 25, 0, 'exhausted', 'default', 'note', '', '{"n": 3}', 'd');
    insert into leasehold_internal.idempotency_key (queue, key, job_id, request_hash, holds_until) values
        ('default', 'k', 1, leasehold_internal.request_hash('note', '{"n": 1}'), now() - interval '1 second'),
        ('default', 'd', 3, leasehold_internal.request_hash('note', '{"n": 3}'), now() - interval '1 second');
    delete from public.trail;
end $$;

-- What must never be true when all transactions have committed.
create function public.wrong_at_rest() returns setof text language sql as $$
    select format('J1 J7: job %s is in %s places: %s', id, count(*), string_agg(state, ', '))
      from leasehold.jobs group by id having count(*) > 1
    union all
    select format('J3: %s living jobs have the key %s', count(*), idempotency_key)
      from leasehold.job where idempotency_key is not null group by queue, idempotency_key having count(*) > 1
    union all
    select format('J3: the key of living job %s belongs to %s', j.id, coalesce(k.job_id::text, 'no job'))
      from leasehold.job j left join leasehold_internal.idempotency_key k
        on k.queue = j.queue and k.key = j.idempotency_key
     where j.idempotency_key is not null and k.job_id is distinct from j.id
    union all
    select format('L1: job %s is held and no lease holds it', j.id) from leasehold.job j
     where j.held and not exists (select from leasehold_internal.lease l
        where l.lease_generation = j.lease_generation and l.ended_at is null and j.id = any (l.job_ids))
    union all
    select format('job %s was asked to stop and waits to run again', id) from leasehold.job
     where cancel_requested and not held
    union all
    select format('J10: job %s has %s attempts and %s losses', id, attempts, lost_count)
      from leasehold.job where attempts < 0 or attempts > coalesce(max_attempts, 25) or lost_count > 3
$$;

-- Nothing may be stuck: when every lease runs out, nothing is held and every lease has ended.
create function public.wrong_after_expiry() returns setof text language plpgsql as $$
begin
    update leasehold_internal.lease set lease_expires_at = now() - interval '1 second' where ended_at is null;
    perform leasehold_internal.reclaim_leases();
    return query select format('L1: job %s is still held', id) from leasehold.job where held
        union all select format('L1: lease %s never ends', lease_generation) from leasehold_internal.lease
                   where ended_at is null;
end $$;
