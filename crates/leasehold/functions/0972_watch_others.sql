-- How sweeps, mirrors and the database stand when a minute ends.

-- The sweeps to measure. Each is measured by a statement of its own: their tables are other people's, and
-- one of them must not keep the others, or the sample, waiting.
create or replace function leasehold.measured_sweeps()
returns setof text
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select s.name from leasehold.sweep s order by s.name limit 500
$$;

-- What a metric was before a minute, within the hour; null: nobody knows.
create or replace function leasehold.last_value(of_kind text, of_subject text, of_metric text, minute timestamptz)
returns double precision
language sql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    select m.value from leasehold.measure m
     where m.at < minute and m.at >= minute - interval '1 hour' and m.kind = of_kind
       and m.subject = of_subject and m.metric = of_metric
     order by m.at desc limit 1
$$;

-- What a sweep did since the last sample, what it has in hand, and what should not be there: rows that the
-- watchdog should have brought back. `look` false: without its table. False: the table was not read; what
-- it would have said is then missing in this minute, and no zero.
create or replace function leasehold.measure_sweep(of_name text, minute timestamptz, look boolean default true)
returns boolean
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set jit = off as $$
declare
    entry leasehold.sweep;
    in_hand bigint;
    stuck bigint;
begin
    select * into entry from leasehold.sweep s where s.name = of_name;
    if not found then
        return false;
    end if;
    if look then
        begin
            execute format(
                'select count(*), count(*) filter (where late) from ('
                'select t.%1$I < statement_timestamp() - $1 and not exists ('
                'select from leasehold.sweep_failure f where f.sweep = $2 and f.key = t.%2$I::text'
                ' and f.claim = t.%3$I) as late from %4$s t where t.%5$I = %6$L'
                ' order by t.%1$I limit 10000) c',
                entry.claimed_at_column, entry.key_column, entry.claim_column,
                leasehold.quoted_table(entry.table_name), entry.status_column, entry.claimed)
              using entry.watchdog_after + 3 * entry.watchdog_every + interval '1 minute', entry.name
              into in_hand, stuck;
        exception
            -- Gone, locked, not ours to read, of other columns or words: its owner hears of it from the
            -- worker. Only running out of time ends this function; the caller comes again without the table.
            when others then
                in_hand := null;
                stuck := null;
        end;
    end if;
    insert into leasehold.measure as m (at, kind, subject, metric, flow, value)
    select minute, 'sweep', entry.name, v.metric, v.flow, v.value
      from (values
        ('claimed', false, in_hand), ('stuck', false, stuck),
        -- Counted by its watchdog; of one that is gone it says nothing about now.
        ('due', false, case when entry.due_counted_at > statement_timestamp()
                                 - 3 * entry.watchdog_every - interval '2 minutes' then entry.rows_due end),
        ('dead', false, (select count(*) from (
            select from leasehold.sweep_failure f
             where f.sweep = entry.name and f.dead_at is not null limit 10000) d)),
        ('failing', false, (select count(*) from (
            select from leasehold.sweep_failure f
             where f.sweep = entry.name and f.retry_at is not null limit 10000) d)),
        ('finished_total', false, entry.rows_finished), ('failed_total', false, entry.rows_failed),
        ('lost_total', false, entry.rows_lost), ('reset_total', false, entry.rows_reset),
        ('finished', true, greatest(entry.rows_finished
            - leasehold.last_value('sweep', entry.name, 'finished_total', minute), 0)),
        ('reset', true, greatest(entry.rows_reset
            - leasehold.last_value('sweep', entry.name, 'reset_total', minute), 0))
      ) as v (metric, flow, value)
     where v.value is not null
    on conflict (at, kind, subject, metric) do update set value = excluded.value;
    return in_hand is not null;
end $$;

-- A table's name as SQL wants it, with or without its schema.
create or replace function leasehold.quoted_table(name text)
returns text
language sql immutable set search_path = leasehold, pg_temp as $$
    select case when position('.' in name) > 0
                then quote_ident(split_part(name, '.', 1)) || '.'
                     || quote_ident(substr(name, position('.' in name) + 1))
                else 'public.' || quote_ident(name) end
$$;

-- What each mirror says of itself. What differs is read from the differences themselves: what the last
-- round of the check published may have been mended since. The ages are in seconds; null: it has not
-- been compared yet, or nothing differs.
create or replace function leasehold.mirror_numbers()
returns table (name text, phase text, rows_checked bigint, repaired bigint, differences bigint,
               oldest_difference_age double precision, equal_as_of timestamptz)
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select m.name, m.phase, m.rows_checked, m.repaired_total,
           (select count(*) from (select from leasehold.mirror_difference d
                                   where d.mirror = m.name limit 10000) kept),
           (select extract(epoch from statement_timestamp() - min(d.first_seen))
              from leasehold.mirror_difference d where d.mirror = m.name)::double precision,
           m.equal_as_of
      from leasehold.mirror m order by m.name limit 500
$$;

create or replace function leasehold.measure_mirrors(minute timestamptz)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold.measure as m (at, kind, subject, metric, flow, value)
    select minute, 'mirror', n.name, v.metric, false, v.value
      from leasehold.mirror_numbers() n
     cross join lateral (values
        ('rows_checked', n.rows_checked), ('repaired', n.repaired), ('differences', n.differences),
        ('oldest_difference_age', coalesce(n.oldest_difference_age, 0)),
        ('equal_age', extract(epoch from statement_timestamp() - n.equal_as_of))
     ) as v (metric, value)
     where v.value is not null
    on conflict (at, kind, subject, metric) do update set value = excluded.value
$$;

-- How long vacuum has been held back, how many ids were given out, and how much there is to clean.
create or replace function leasehold.measure_database(minute timestamptz)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold.measure as m (at, kind, subject, metric, flow, value)
    select minute, 'database', '', 'oldest_xact_age', false,
           coalesce((select max(h.age) from leasehold.vacuum_holders() h), 0)
    union all
    select minute, 'database', '', 'next_xid', false,
           pg_snapshot_xmax(pg_current_snapshot())::text::double precision
    union all
    select minute, 'database', s.relname, v.metric, false, v.value
      from pg_stat_all_tables s
     cross join lateral (values ('dead_tuples', s.n_dead_tup),
                                ('bytes', pg_total_relation_size(s.relid))) as v (metric, value)
     where s.schemaname = 'leasehold'
       and s.relname in ('job', 'lease', 'dead_job', 'idempotency_key', 'measure', 'tally')
    union all
    select minute, 'database', 'history', 'bytes', false,
           coalesce(sum(pg_total_relation_size(i.inhrelid)), 0)
      from pg_inherits i where i.inhparent = 'leasehold.history'::regclass
    on conflict (at, kind, subject, metric) do update set value = excluded.value
$$;
