-- Creates the history partitions of the coming days. Returns the number created.
--
-- ATTACH takes a lock that does not block finishes, except on the default partition. It waits one
-- second at most, and leaves the work for next time: every finish queues behind it.
create or replace function leasehold_internal.extend_history(days int default 7)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
declare
    day date;
    part text;
    made int := 0;
begin
    for day in select d::date from generate_series(
            (statement_timestamp() at time zone 'UTC')::date + 1,
            (statement_timestamp() at time zone 'UTC')::date + days, interval '1 day') d loop
        part := 'history_' || to_char(day, 'YYYYMMDD');
        continue when to_regclass('leasehold_internal.' || part) is not null;
        begin
            execute format('create table leasehold_internal.%I (like leasehold_internal.history including all)', part);
            execute format(
                'alter table leasehold_internal.history attach partition leasehold_internal.%I for values from (%L) to (%L)',
                part, day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
            made := made + 1;
        exception
            -- The clock was ahead once and rows of that day are in the default partition, which keeps
            -- taking them.
            when check_violation then null;
            when duplicate_table or unique_violation then null; -- made by another housekeeper meanwhile
            when lock_not_available then return made;
        end;
    end loop;
    return made;
end $$;

-- Refuses a negative time. By dates: an interval of months and days with different signs has no length
-- of its own.
create or replace function leasehold_internal.check_time(what text, given interval)
returns void
language plpgsql stable set search_path = leasehold, pg_temp as $$
begin
    if statement_timestamp() - given > statement_timestamp() then
        raise exception '% is %, which is negative', what, given
            using errcode = 'LH002', constraint = 'LH002', hint = 'Give a time such as interval ''7 days''.';
    end if;
end $$;

-- Drops history partitions whose last day is older than `keep`. Returns the number dropped. Every
-- finish queues behind a drop, so it waits one second at most: see `extend_history`.
create or replace function leasehold_internal.drop_history(keep interval)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
declare
    part record;
    dropped int := 0;
begin
    perform leasehold_internal.check_time('keep', keep);
    -- The default partition takes what no other does. Its rows must not keep the partitions from being
    -- dropped.
    begin
        delete from leasehold_internal.history_rest where ctid = any (array(
            select h.ctid from leasehold_internal.history_rest h
             where h.finished_at < statement_timestamp() - keep limit 20000));
    exception when lock_not_available then null;
    end;
    for part in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
         where i.inhparent = 'leasehold_internal.history'::regclass and c.relname ~ '^history_\d{8}$'
           and (to_date(substr(c.relname, 9), 'YYYYMMDD') + 1)::timestamp at time zone 'UTC'
               < statement_timestamp() - keep
         order by c.relname
    loop
        begin
            execute format('drop table if exists leasehold_internal.%I', part.relname);
            dropped := dropped + 1;
        exception when lock_not_available then return dropped;
        end;
    end loop;
    return dropped;
end $$;
