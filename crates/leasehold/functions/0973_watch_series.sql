-- What becomes of the minutes: hours, the end, and whoever reads them.

-- Rolls up the hours that have ended since the last sample.
create or replace function leasehold.measure_hours(last_ran timestamptz, now_is timestamptz)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold.measure_hour as h (at, kind, subject, metric, flow, value, highest, minutes)
    select date_trunc('hour', m.at, 'UTC'), m.kind, m.subject, m.metric, bool_or(m.flow),
           case when bool_or(m.flow) then sum(m.value) else avg(m.value) end, max(m.value),
           count(*)
      from leasehold.measure m
     where m.at >= date_trunc('hour', greatest(last_ran - interval '1 minute',
                                               now_is - interval '23 hours'), 'UTC')
       and m.at < date_trunc('hour', now_is, 'UTC')
       and date_trunc('hour', last_ran, 'UTC') < date_trunc('hour', now_is, 'UTC')
     group by 1, 2, 3, 4
    on conflict (at, kind, subject, metric) do update
        set value = excluded.value, highest = excluded.highest, minutes = excluded.minutes
$$;

-- Throws old measures away, and alarms that ended long ago: piece by piece until none is left, or until five
-- seconds are over. The rest, after a long stop, is for the next minute.
create or replace function leasehold.prune_measures(up_to int default 50000)
returns bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    give_up timestamptz := clock_timestamp() + interval '5 seconds';
    removed bigint;
    largest bigint;
    total bigint := 0;
begin
    loop
        delete from leasehold.measure where ctid = any (array(
            select m.ctid from leasehold.measure m
             where m.at < statement_timestamp() - interval '24 hours' limit up_to));
        get diagnostics removed = row_count;
        total := total + removed;
        largest := removed;
        delete from leasehold.measure_hour where ctid = any (array(
            select m.ctid from leasehold.measure_hour m
             where m.at < statement_timestamp() - interval '90 days' limit up_to));
        get diagnostics removed = row_count;
        total := total + removed;
        largest := greatest(largest, removed);
        delete from leasehold.tally where ctid = any (array(
            select t.ctid from leasehold.tally t
             where t.at < statement_timestamp() - interval '2 hours' limit up_to));
        get diagnostics removed = row_count;
        total := total + removed;
        largest := greatest(largest, removed);
        delete from leasehold.alarm where ctid = any (array(
            select a.ctid from leasehold.alarm a
             where a.raised_at < statement_timestamp() - interval '90 days'
               and a.cleared_at < statement_timestamp() - interval '90 days' limit up_to));
        get diagnostics removed = row_count;
        total := total + removed;
        largest := greatest(largest, removed);
        exit when largest < up_to or clock_timestamp() > give_up;
    end loop;
    return total;
end $$;

-- When somebody last measured, null: never; and whether that still says how things are now. After three
-- minutes without a sample nobody knows, whatever the last one said.
create or replace function leasehold.measured()
returns table (at timestamptz, fresh boolean)
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select case when isfinite(d.ran_at) then d.ran_at end,
           d.ran_at between statement_timestamp() - interval '180 seconds'
                        -- Beyond that the clock went back.
                        and statement_timestamp() + interval '1 minute'
      from leasehold.duty d where d.name = 'measure'
$$;

-- The last sample, as long as it is not older than a quarter of an hour. Whether it still holds is said by
-- `measured`.
create or replace function leasehold.latest()
returns table (at timestamptz, kind text, subject text, metric text, flow boolean, value double precision)
language sql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    select m.at, m.kind, m.subject, m.metric, m.flow, m.value
      from leasehold.measure m
     where m.at = (select max(s.at) from leasehold.measure s
                    where s.at >= statement_timestamp() - interval '15 minutes'
                      and s.kind = 'database' and s.metric = 'sampled')
$$;

-- A series for a chart: one row a step, the oldest first. Flows are added up, other values are the
-- mean of the step. Null: nobody measured. `minutes` says how many minutes of the step were measured, so
-- that a step that has just begun can be shown by the minute. `of_subject` null: all of them together.
-- More than a day back it is made of hours, and of the minutes since the last of them.
create or replace function leasehold.series(
    of_kind text, of_metrics text[], of_subject text default null,
    back interval default interval '30 minutes', step interval default interval '1 minute'
)
returns table (at timestamptz, value double precision, minutes bigint)
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    origin timestamptz := timestamptz '2000-01-01Z';
    this_minute timestamptz := date_trunc('minute', statement_timestamp());
    last timestamptz := date_bin(step, this_minute, origin);
    first timestamptz := last - back;
    by_hours boolean := back > interval '24 hours';
    -- From here on there are only minutes. Of any hour: what happened while nobody measured is added to its
    -- minutes and its hour later, and that hour has no sample.
    rolled timestamptz := greatest(first, case when by_hours then (
        select h.at + interval '59 minutes' from leasehold.measure_hour h
         order by h.at desc limit 1) end);
begin
    return query
    with looked as (
        select m.at, 1 as minutes from leasehold.measure m
         where m.kind = 'database' and m.metric = 'sampled' and m.subject = ''
           and m.at > rolled and m.at < this_minute
        union all
        select h.at, h.minutes from leasehold.measure_hour h
         where by_hours and h.kind = 'database' and h.metric = 'sampled' and h.subject = ''
           and h.at > first
    ), piece as (
        select m.at, sum(m.value) as value, bool_or(m.flow) as flow, 1 as weight
          from leasehold.measure m
         where m.kind = of_kind and m.metric = any (of_metrics)
           and (of_subject is null or m.subject = of_subject)
           and m.at > rolled and m.at < this_minute
         group by m.at
        union all
        select h.at, sum(h.value), bool_or(h.flow), max(h.minutes)
          from leasehold.measure_hour h
         where by_hours and h.kind = of_kind and h.metric = any (of_metrics)
           and (of_subject is null or h.subject = of_subject) and h.at > first
         group by h.at
    ), seen as (
        select date_bin(step, l.at, origin) as at, sum(l.minutes) as minutes from looked l group by 1
    ), binned as (
        select date_bin(step, p.at, origin) as at,
               case when bool_or(p.flow) then sum(p.value)
                    else sum(p.value * p.weight) / sum(p.weight) end as value
          from piece p group by 1
    )
    select s.at, coalesce(b.value, case when n.minutes > 0 then 0 end), coalesce(n.minutes, 0)
      from generate_series(first + step, last, step) as s (at)
      left join binned b on b.at = s.at
      left join seen n on n.at = s.at
     where s.at < this_minute
     order by s.at;
end $$;
