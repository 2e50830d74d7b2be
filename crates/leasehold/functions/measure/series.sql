-- The samples of minutes: roll-up to hours, pruning, and reading.

-- Rolls up the hours that have ended since the last time. For queues and tags a missing row means zero,
-- so their mean is over all minutes of the hour that were sampled.
create or replace function leasehold_internal.measure_hours(last_ran timestamptz, now_is timestamptz)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    with piece as materialized (
        select date_trunc('hour', m.at, 'UTC') as hour, m.at, m.kind, m.subject, m.metric, m.flow, m.value
          from leasehold_internal.measure m
         where m.at >= date_trunc('hour', greatest(last_ran - interval '1 minute',
                                                   now_is - interval '23 hours'), 'UTC')
           and m.at < date_trunc('hour', now_is, 'UTC')
           and date_trunc('hour', last_ran, 'UTC') < date_trunc('hour', now_is, 'UTC')
    ), looked as (
        select p.hour, count(*) as minutes from piece p
         where p.kind = 'database' and p.subject = '' and p.metric = 'sampled' group by p.hour
    )
    insert into leasehold_internal.measure_hour as h (at, kind, subject, metric, flow, value, highest, minutes)
    select p.hour, p.kind, p.subject, p.metric, bool_or(p.flow),
           case when bool_or(p.flow) then sum(p.value) else sum(p.value) / max(m.minutes) end, max(p.value),
           max(m.minutes)
      from (select p.*, count(*) over (partition by p.hour, p.kind, p.subject, p.metric) as rows from piece p) p
      left join looked l on l.hour = p.hour
     cross join lateral (
        select case when p.kind in ('queue', 'tag') and not p.flow then greatest(l.minutes, p.rows)
                    else p.rows end as minutes) m
     group by 1, 2, 3, 4
    on conflict (at, kind, subject, metric) do update
        set value = excluded.value, highest = excluded.highest, minutes = excluded.minutes
$$;

-- Prunes old measures, and alarms that ended 90 days ago: piece by piece until none is left, or for
-- five seconds. After a long stop, the rest is left for the next minute. One housekeeper is elected,
-- for the statement: two would wait for each other's rows.
create or replace function leasehold_internal.prune_measures(up_to int default 50000)
returns bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    deadline timestamptz := clock_timestamp() + interval '5 seconds';
    removed bigint;
    largest bigint;
    total bigint := 0;
begin
    if not pg_try_advisory_xact_lock(7305, 20) then
        return 0;
    end if;
    loop
        delete from leasehold_internal.measure where ctid = any (array(
            select m.ctid from leasehold_internal.measure m
             where m.at < statement_timestamp() - interval '24 hours' limit up_to));
        get diagnostics removed = row_count;
        total := total + removed;
        largest := removed;
        delete from leasehold_internal.measure_hour where ctid = any (array(
            select m.ctid from leasehold_internal.measure_hour m
             where m.at < statement_timestamp() - interval '90 days' limit up_to));
        get diagnostics removed = row_count;
        total := total + removed;
        largest := greatest(largest, removed);
        delete from leasehold_internal.tally where ctid = any (array(
            select t.ctid from leasehold_internal.tally t
             where t.at < statement_timestamp() - interval '2 hours' limit up_to));
        get diagnostics removed = row_count;
        total := total + removed;
        largest := greatest(largest, removed);
        delete from leasehold_internal.alarm where ctid = any (array(
            select a.ctid from leasehold_internal.alarm a
             where a.raised_at < statement_timestamp() - interval '90 days'
               and a.cleared_at < statement_timestamp() - interval '90 days' limit up_to));
        get diagnostics removed = row_count;
        total := total + removed;
        largest := greatest(largest, removed);
        exit when largest < up_to or clock_timestamp() > deadline;
    end loop;
    return total;
end $$;

-- Returns when the last sample was taken, null: never; and whether it is fresh. After three minutes
-- without a sample the current state is unknown, whatever the last one showed.
create or replace function leasehold_internal.measured()
returns table (at timestamptz, fresh boolean)
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select case when isfinite(d.ran_at) then d.ran_at end,
           d.ran_at between statement_timestamp() - interval '180 seconds'
                        -- Beyond that the clock was set back.
                        and statement_timestamp() + interval '1 minute'
      from leasehold_internal.duty d where d.name = 'measure'
$$;

-- Returns the last sample, if it is not older than 15 minutes. `measured` shows whether it is fresh.
-- Zeros of queues are not stored; they are filled in here, for the queues of the sample and for those
-- with settings, a watch or a living worker, up to a thousand.
create or replace function leasehold_internal.latest()
returns table (at timestamptz, kind text, subject text, metric text, flow boolean, value double precision)
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
begin
    return query
    with present as materialized (
        select m.at, m.kind, m.subject, m.metric, m.flow, m.value
          from leasehold_internal.measure m
         where m.at = (select max(s.at) from leasehold_internal.measure s
                        where s.at >= statement_timestamp() - interval '15 minutes'
                          and s.kind = 'database' and s.metric = 'sampled')
    ), living as materialized (
        select q.queue, count(*) as workers
          from leasehold.workers w cross join lateral unnest(w.queues) as q (queue)
         where w.state = 'alive' group by q.queue
    ), known as (
        select k.queue, min(k.rank) as rank
          from (select p.subject as queue, 1 as rank from present p where p.kind = 'queue'
                union all select w.queue, 2 from leasehold_internal.watch w where not w.off
                union all select l.queue, 3 from living l
                union all select q.name, 4 from leasehold_internal.queue q) k
         group by k.queue order by 2, 1 limit 1000
    )
    select p.at, p.kind, p.subject, p.metric, p.flow, p.value from present p
    union all
    select s.at, 'queue', k.queue, g.metric, false,
           case when g.metric = 'workers' then coalesce(l.workers, 0) else 0 end
      from known k
     cross join (values ('running'), ('ready'), ('scheduled'), ('retrying'), ('length'), ('watched_length'),
                        ('oldest_ready_age'), ('workers'), ('paused'), ('dead'), ('dead_expired')) as g (metric)
     cross join (select p.at from present p where p.kind = 'database' and p.subject = '' and p.metric = 'sampled') s
      left join living l on l.queue = k.queue
     where not exists (select from present p where p.kind = 'queue' and p.subject = k.queue and p.metric = g.metric)
       -- If the age of the oldest job was not measured, it is unknown, not zero.
       and (g.metric <> 'oldest_ready_age'
            or exists (select from present p where p.kind = 'database' and p.metric = 'ages_sampled'));
end $$;

-- Returns a series for a chart: one row per step, the oldest first. Flows are added up, other values
-- are the mean of the step; for queues and tags over every minute that was sampled, because their zeros
-- are not stored. Null: nothing was measured. `minutes` is how many minutes of the step were measured,
-- so that a step that has just begun can be shown per minute. `of_subject` null: all of them together.
-- More than a day back the series consists of hours, and of the minutes since the last of them.
create or replace function leasehold_internal.series(
    kind text, metrics text[], subject text default null,
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
    -- From here on there are only minutes. The last hour of any metric: what happened while nothing was
    -- sampled is added to its minutes and its hour later, and that hour has no sample.
    rolled timestamptz := greatest(first, case when by_hours then (
        select h.at + interval '59 minutes' from leasehold_internal.measure_hour h
         order by h.at desc limit 1) end);
begin
    return query
    with looked as (
        select m.at, 1 as minutes from leasehold_internal.measure m
         where m.kind = 'database' and m.metric = 'sampled' and m.subject = ''
           and m.at > rolled and m.at < this_minute
        union all
        select h.at, h.minutes from leasehold_internal.measure_hour h
         where by_hours and h.kind = 'database' and h.metric = 'sampled' and h.subject = ''
           and h.at > first
    ), piece as (
        select m.at, sum(m.value) as value, bool_or(m.flow) as flow, 1 as weight
          from leasehold_internal.measure m
         where m.kind = series.kind and m.metric = any (series.metrics)
           and (series.subject is null or m.subject = series.subject)
           and m.at > rolled and m.at < this_minute
         group by m.at
        union all
        select h.at, sum(h.value), bool_or(h.flow), max(h.minutes)
          from leasehold_internal.measure_hour h
         where by_hours and h.kind = series.kind and h.metric = any (series.metrics)
           and (series.subject is null or h.subject = series.subject) and h.at > first
         group by h.at
    ), seen as (
        select date_bin(step, l.at, origin) as at, sum(l.minutes) as minutes from looked l group by 1
    ), binned as (
        select date_bin(step, p.at, origin) as at, bool_or(p.flow) as flow,
               sum(p.value * case when p.flow then 1 else p.weight end) as sum, sum(p.weight) as weight
          from piece p group by 1
    )
    select s.at,
           coalesce(case when b.flow then b.sum
                         when series.kind in ('queue', 'tag') then b.sum / greatest(b.weight, n.minutes)
                         else b.sum / b.weight end,
                    case when n.minutes > 0 then 0 end),
           coalesce(n.minutes, 0)
      from generate_series(first + step, last, step) as s (at)
      left join binned b on b.at = s.at
      left join seen n on n.at = s.at
     where s.at < this_minute
     order by s.at;
end $$;
