-- The state of sweeps, mirrors and the database at the end of a minute.

-- Returns the last value of a metric before a minute, within the hour; null: unknown.
create or replace function leasehold_internal.last_value(kind text, subject text, metric text, minute timestamptz)
returns double precision
language sql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    select m.value from leasehold_internal.measure m
     where m.at < minute and m.at >= minute - interval '1 hour' and m.kind = last_value.kind
       and m.subject = last_value.subject and m.metric = last_value.metric
     order by m.at desc limit 1
$$;

-- Measures what each sweep did since the last sample, what it has claimed, and what is stuck: rows that
-- the watchdog should have reset. Reads what the watchdogs recorded, never a swept table.
--
-- A watchdog that is silent for as long as a claim may last is gone, and with it every worker of the
-- sweep. Then the rows that were claimed and had not failed at its last count are stuck. In between,
-- and before the first count, the value is missing and not zero.
create or replace function leasehold_internal.measure_sweeps(minute timestamptz)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
    insert into leasehold_internal.measure as m (at, kind, subject, metric, flow, value)
    select minute, 'sweep', s.name, v.metric, v.flow, v.value
      from (select w.*,
                   w.claims_counted_at > statement_timestamp() - 3 * w.watchdog_every - interval '2 minutes'
                       as fresh,
                   w.claims_counted_at <= statement_timestamp() - w.watchdog_after
                       - 3 * w.watchdog_every - interval '1 minute' as silent
              from leasehold_internal.sweep w order by w.name limit 500) s
     cross join lateral (values
        ('claimed', false, case when s.fresh then s.claimed_now end),
        ('stuck', false, case when s.fresh then s.stuck_now when s.silent then s.unfailed_now end),
        -- Counted by its watchdog; the count of one that is gone proves nothing about now.
        ('due', false, case when s.due_counted_at > statement_timestamp()
                                 - 3 * s.watchdog_every - interval '2 minutes' then s.rows_due end),
        ('dead', false, (select count(*) from (
            select from leasehold_internal.sweep_failure f
             where f.sweep = s.name and f.dead_at is not null limit 10000) d)),
        ('failing', false, (select count(*) from (
            select from leasehold_internal.sweep_failure f
             where f.sweep = s.name and f.retry_at is not null limit 10000) d)),
        ('finished_total', false, s.rows_finished), ('failed_total', false, s.rows_failed),
        ('lost_total', false, s.rows_lost), ('reset_total', false, s.rows_reset),
        ('finished', true, greatest(s.rows_finished
            - leasehold_internal.last_value('sweep', s.name, 'finished_total', minute), 0)),
        ('reset', true, greatest(s.rows_reset
            - leasehold_internal.last_value('sweep', s.name, 'reset_total', minute), 0))
      ) as v (metric, flow, value)
     where v.value is not null
    on conflict (at, kind, subject, metric) do update set value = excluded.value
$$;

-- Returns the figures of each mirror. Differences are counted from their table: what the last round of
-- the check published may have been repaired since. The ages are in seconds; null: it has not been
-- compared yet, or nothing differs.
create or replace function leasehold_internal.mirror_numbers()
returns table (name text, phase text, rows_compared bigint, repaired bigint, differences bigint,
               oldest_difference_age double precision, equal_as_of timestamptz)
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select m.name, m.phase, m.rows_compared, m.repaired_total,
           (select count(*) from (select from leasehold_internal.mirror_difference d
                                   where d.mirror = m.name limit 10000) kept),
           (select extract(epoch from statement_timestamp() - min(d.first_seen))
              from leasehold_internal.mirror_difference d where d.mirror = m.name)::double precision,
           m.equal_as_of
      from leasehold_internal.mirror m order by m.name limit 500
$$;

create or replace function leasehold_internal.measure_mirrors(minute timestamptz)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold_internal.measure as m (at, kind, subject, metric, flow, value)
    select minute, 'mirror', n.name, v.metric, false, v.value
      from leasehold_internal.mirror_numbers() n
     cross join lateral (values
        ('rows_compared', n.rows_compared), ('repaired', n.repaired), ('differences', n.differences),
        ('oldest_difference_age', coalesce(n.oldest_difference_age, 0)),
        ('equal_age', extract(epoch from statement_timestamp() - n.equal_as_of))
     ) as v (metric, value)
     where v.value is not null
    on conflict (at, kind, subject, metric) do update set value = excluded.value
$$;

-- Measures how long vacuum has been held back, and how many transaction ids were assigned. Separate from
-- everything that reads tables: a delayed vacuum makes those slow, and this part must still report it.
create or replace function leasehold_internal.measure_vacuum(minute timestamptz)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold_internal.measure as m (at, kind, subject, metric, flow, value)
    select minute, 'database', '', 'oldest_xact_age', false,
           coalesce((select max(h.age) from leasehold_internal.vacuum_holders() h), 0)
    union all
    select minute, 'database', '', 'next_xid', false,
           pg_snapshot_xmax(pg_current_snapshot())::text::double precision
    on conflict (at, kind, subject, metric) do update set value = excluded.value
$$;

-- Measures the size of the tables, and their dead rows.
create or replace function leasehold_internal.measure_tables(minute timestamptz)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold_internal.measure as m (at, kind, subject, metric, flow, value)
    select minute, 'database', s.relname, v.metric, false, v.value
      from pg_stat_all_tables s
     cross join lateral (values ('dead_tuples', s.n_dead_tup),
                                ('bytes', pg_total_relation_size(s.relid))) as v (metric, value)
     where s.schemaname in ('leasehold', 'leasehold_internal')
       and s.relname in ('job', 'lease', 'dead_job', 'idempotency_key', 'measure', 'tally')
    union all
    select minute, 'database', 'history', 'bytes', false,
           coalesce(sum(pg_total_relation_size(i.inhrelid)), 0)
      from pg_inherits i where i.inhparent = 'leasehold_internal.history'::regclass
    on conflict (at, kind, subject, metric) do update set value = excluded.value
$$;
