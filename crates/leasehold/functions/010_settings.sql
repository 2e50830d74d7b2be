-- Functions that read jobs or leases turn off the plans that read a whole table. A session keeps the
-- plan that it made when the table was empty, and would go on reading all of it, for each job that
-- fails, until somebody counts the rows again. The hot ones also keep one plan for all arguments:
-- planning anew for each call costs more than the call. And none is compiled: over a large table the
-- estimate is high, but a claim reads a few rows.

-- The settings of a queue. The first worker that asks makes the row.
create or replace function leasehold.queue_settings(of_queue text)
returns leasehold.queue
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    settings leasehold.queue;
begin
    select * into settings from leasehold.queue where name = of_queue;
    if not found then
        insert into leasehold.queue (name) values (of_queue) on conflict (name) do nothing;
        select * into settings from leasehold.queue where name = of_queue;
    end if;
    return settings;
exception when check_violation then
    raise exception 'queue name % is not allowed', quote_literal(of_queue)
        using errcode = 'LH001',
              hint = 'A queue name has 1 to 64 bytes.';
end $$;

-- A generation no claim ever had. The sequence makes it grow; the random low bits keep a
-- generation from being issued twice when a failover or a restore sets the sequence back.
create or replace function leasehold.next_generation()
returns bigint
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    return (nextval('leasehold.generation') << 20) | floor(random() * 1048576)::bigint;
end $$;

-- How long a job waits after its nth attempt failed: doubling, capped, with a fifth of jitter
-- either way so that what failed together does not come back together.
create or replace function leasehold.backoff(attempts int, base interval, cap interval)
returns interval
language sql volatile set search_path = leasehold, pg_temp as $$
    select least(base * power(2, least(greatest(attempts, 1) - 1, 30)), cap)
           * (0.8 + 0.4 * random())
$$;

-- The number of the SQL contract. Functions of one contract keep their names, arguments and
-- results; an incompatible change gets a new name beside the old one.
create or replace function leasehold.contract()
returns int
language sql immutable as 'select 1';
