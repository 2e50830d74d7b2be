-- Self-measurement. One worker of the fleet takes a sample a minute; the reading is bounded, whatever
-- the queues hold: see each function.

-- Whether a minute has passed since the last sample. Cheap: everybody asks this often.
create or replace function leasehold.sample_due()
returns boolean
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select exists (
        select from leasehold.duty d
         where d.name = 'measure'
           and (d.ran_at < date_trunc('minute', statement_timestamp())
                -- The clock went back.
                or d.ran_at > statement_timestamp() + interval '1 minute'))
$$;

-- Takes the sample of the minute that has just ended. Answers that minute; null: somebody else takes
-- it, or has taken it. A sampler that dies takes its sample along, and the next one takes the place.
create or replace function leasehold.take_sample()
returns timestamptz
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set jit = off as $$
declare
    this_minute timestamptz := date_trunc('minute', statement_timestamp());
    sampled timestamptz := this_minute - interval '1 minute';
    before timestamptz;
begin
    select d.ran_at into before from leasehold.duty d
     where d.name = 'measure'
       and (d.ran_at < this_minute or d.ran_at > statement_timestamp() + interval '1 minute')
       for update skip locked;
    if not found then
        return null;
    end if;
    -- Two minutes more than nobody has read: a transaction that was open then may have committed since.
    perform leasehold.measure_flows(
        greatest(least(before, sampled) - interval '2 minutes', this_minute - interval '1 hour'),
        this_minute);
    perform leasehold.measure_queues(sampled);
    perform leasehold.measure_sweeps(sampled);
    perform leasehold.measure_mirrors(sampled);
    perform leasehold.measure_database(sampled);
    perform leasehold.measure_hours(before, this_minute);
    perform leasehold.prune_measures(5000);
    update leasehold.duty d set ran_at = this_minute where d.name = 'measure';
    return sampled;
end $$;

-- What happened, by the minute. Reading a minute again gives the same or more, so it may be read as
-- often as one likes.
create or replace function leasehold.measure_flows(since timestamptz, before timestamptz)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
begin
    insert into leasehold.measure as m (at, kind, subject, metric, flow, value)
    with batch as materialized (
        select date_trunc('minute', h.finished_at) as at, h.queue, h.outcome, h.tags,
               -- Most batches are of one tag, and need not be taken apart.
               h.tags[1] = all (h.tags) as alike
          from leasehold.history h
         where h.finished_at >= since and h.finished_at < before
    ), flow as materialized (
        select at, queue, tag, subject, what, sum(n) as n from (
            select b.at, b.queue, b.tags[1] as tag, '' as subject, b.outcome as what,
                   cardinality(b.tags) as n
              from batch b where b.alike
            union all
            select b.at, b.queue, one.tag, '', b.outcome, count(*)
              from batch b cross join lateral unnest(b.tags) as one (tag)
             where not b.alike group by 1, 2, 3, 5
            union all
            select date_trunc('minute', t.at), t.queue, t.tag, t.subject, t.what, t.n
              from leasehold.tally t where t.at >= since and t.at < before) every
         group by at, queue, tag, subject, what
    ), ranked as (
        -- Tags are for people. Whoever makes one a job gets a single line for them all.
        select f.*, dense_rank() over (partition by f.at, f.queue, f.subject
                                       order by sums.n desc, f.tag) as place
          from flow f
          join (select at, queue, subject, tag, sum(n) as n from flow group by 1, 2, 3, 4) sums
         using (at, queue, subject, tag)
    )
    select at, 'queue', queue, what, true, sum(n) from flow where subject = '' group by 1, 3, 4
    union all
    select at, 'mirror', subject, what, true, sum(n) from flow where subject <> '' group by 1, 3, 4
    union all
    select at, 'tag', case when subject = '' then queue else subject end || '/'
               || case when place <= 30 then tag else '(others)' end, what, true, sum(n)
      from ranked group by 1, 3, 4
    on conflict (at, kind, subject, metric) do update set value = greatest(m.value, excluded.value);
end $$;

-- Whether a tag is one of these, where `reindex_*` is every tag that begins so.
create or replace function leasehold.is_bulk(tag text, patterns text[])
returns boolean
language sql immutable set search_path = leasehold, pg_temp as $$
    select exists (select from unnest(patterns) as p (pattern)
                    where tag = p.pattern
                       or (right(p.pattern, 1) = '*' and starts_with(tag, left(p.pattern, -1))))
$$;

-- How the queues stand. Counts up to a million jobs; of more it looks at a share of the pages and says
-- what that comes to, so that a long queue does not make the looking long.
create or replace function leasehold.measure_queues(minute timestamptz)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set jit = off as $$
declare
    live bigint := coalesce((select n_live_tup from pg_stat_all_tables
                              where relid = 'leasehold.job'::regclass), 0);
    share real := case when live > 1000000 then 100.0 * 1000000 / live else 100.0 end;
    scale double precision := 100.0 / share;
begin
    insert into leasehold.measure as m (at, kind, subject, metric, flow, value)
    with counted as materialized (
        select j.queue, j.tag,
               count(*) filter (where j.held) as running,
               count(*) filter (where not j.held and j.scheduled_at <= statement_timestamp()) as ready,
               count(*) filter (where not j.held and j.scheduled_at > statement_timestamp()
                                  and j.attempts = 0) as scheduled,
               count(*) filter (where not j.held and j.scheduled_at > statement_timestamp()
                                  and j.attempts > 0) as retrying,
               count(*) as length
          from leasehold.job j tablesample system (share)
         group by j.queue, j.tag
    ), known as materialized (
        select q.name as queue from leasehold.queue q
        union select w.queue from leasehold.watch w
        union (select c.queue from counted c group by c.queue order by sum(c.length) desc limit 500)
        union (select d.queue from leasehold.dead_job d where d.cause = 'expired' limit 500)
    ), queues as (
        select k.queue,
               coalesce(sum(c.running), 0) * scale as running,
               coalesce(sum(c.ready), 0) * scale as ready,
               coalesce(sum(c.scheduled), 0) * scale as scheduled,
               coalesce(sum(c.retrying), 0) * scale as retrying,
               coalesce(sum(c.length), 0) * scale as length,
               coalesce(sum(c.length) filter (where not leasehold.is_bulk(c.tag, w.bulk_tags)), 0)
                   * scale as watched_length
          from known k
          left join counted c on c.queue = k.queue
          left join (select k2.queue, coalesce(w.bulk_tags, '{}') as bulk_tags
                       from known k2 left join leasehold.watch w on w.queue = k2.queue) w
                 on w.queue = k.queue
         group by k.queue
    ), tags as (
        select t.queue || '/' || case when t.place <= 30 then t.tag else '(others)' end as subject,
               sum(t.length) * scale as length
          from (select c.*, row_number() over (partition by c.queue order by c.length desc, c.tag) as place
                  from counted c join known k on k.queue = c.queue) t
         group by 1
    ), living as (
        select q.queue, count(*) as workers
          from leasehold.worker_state w cross join lateral unnest(w.queues) as q (queue)
         where w.state = 'alive' group by q.queue
    )
    select minute, 'queue', q.queue, v.metric, false, v.value
      from queues q
      left join living l on l.queue = q.queue
      left join leasehold.queue s on s.name = q.queue
     cross join lateral (values
        ('running', q.running), ('ready', q.ready), ('scheduled', q.scheduled),
        ('retrying', q.retrying), ('length', q.length), ('watched_length', q.watched_length),
        ('oldest_ready_age', leasehold.oldest_ready_age(q.queue)),
        ('workers', coalesce(l.workers, 0)),
        ('paused', case when s.paused_at is null then 0 else 1 end),
        ('dead', (select count(*) from (
            select from leasehold.dead_job d
             where d.queue = q.queue and d.cause <> 'expired' limit 10000) kept)),
        ('expired_kept', (select count(*) from (
            select from leasehold.dead_job d
             where d.queue = q.queue and d.cause = 'expired' limit 10000) kept))
     ) as v (metric, value)
    union all
    select minute, 'tag', t.subject, 'length', false, t.length from tags t
    union all
    select minute, 'database', '', 'sampled', false, 1
    union all
    select minute, 'database', '', 'jobs_looked_at_percent', false, share
    on conflict (at, kind, subject, metric) do update set value = excluded.value;
end $$;

-- For how many seconds the oldest job that could run has waited; 0: none could. One look into the
-- index for each name and priority, past the jobs that run.
create or replace function leasehold.oldest_ready_age(of_queue text)
returns double precision
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    return coalesce((
        select greatest(extract(epoch from statement_timestamp() - min(first.scheduled_at)), 0)
          from (select l.name, l.priority from leasehold.lanes(of_queue) l
                 where l.first_at <= statement_timestamp() limit 200) lane
         cross join lateral (
            select j.scheduled_at from leasehold.job j
             where j.queue = of_queue and j.name = lane.name and j.priority = lane.priority
               and j.scheduled_at <= statement_timestamp() and j.expires_at > statement_timestamp()
               and not j.held
             order by j.scheduled_at, j.id limit 1) first), 0);
end $$;

-- What sweeps did since the last sample, what they have in hand, and what should not be there: rows
-- that the watchdog should have brought back.
create or replace function leasehold.measure_sweeps(minute timestamptz)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set jit = off as $$
declare
    entry leasehold.sweep;
    in_hand bigint;
    stuck bigint;
begin
    for entry in select * from leasehold.sweep order by name limit 500 loop
        in_hand := 0;
        stuck := 0;
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
            -- A table that is gone, or not ours to read: its owner hears of it from the worker.
            when undefined_table or undefined_column or insufficient_privilege
                 or undefined_function or datatype_mismatch then null;
        end;
        insert into leasehold.measure as m (at, kind, subject, metric, flow, value)
        select minute, 'sweep', entry.name, v.metric, v.flow, v.value
          from (values
            ('claimed', false, in_hand), ('stuck', false, stuck),
            ('dead', false, (select count(*) from (
                select from leasehold.sweep_failure f
                 where f.sweep = entry.name and f.dead_at is not null limit 10000) d)),
            ('failing', false, (select count(*) from (
                select from leasehold.sweep_failure f
                 where f.sweep = entry.name and f.retry_at is not null limit 10000) d)),
            ('finished_total', false, entry.rows_finished), ('failed_total', false, entry.rows_failed),
            ('lost_total', false, entry.rows_lost), ('reset_total', false, entry.rows_reset),
            ('finished', true, greatest(entry.rows_finished - (
                select l.value from leasehold.measure l
                 where l.at < minute and l.at >= minute - interval '1 hour' and l.kind = 'sweep'
                   and l.subject = entry.name and l.metric = 'finished_total'
                 order by l.at desc limit 1), 0))
          ) as v (metric, flow, value)
         where v.value is not null
        on conflict (at, kind, subject, metric) do update set value = excluded.value;
    end loop;
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

-- Rolls up the hours that have ended since the last sample.
create or replace function leasehold.measure_hours(last_ran timestamptz, now_is timestamptz)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold.measure_hour as h (at, kind, subject, metric, flow, value, highest)
    select date_trunc('hour', m.at, 'UTC'), m.kind, m.subject, m.metric, bool_or(m.flow),
           case when bool_or(m.flow) then sum(m.value) else avg(m.value) end, max(m.value)
      from leasehold.measure m
     where m.at >= date_trunc('hour', greatest(last_ran - interval '1 minute',
                                               now_is - interval '23 hours'), 'UTC')
       and m.at < date_trunc('hour', now_is, 'UTC')
       and date_trunc('hour', last_ran, 'UTC') < date_trunc('hour', now_is, 'UTC')
     group by 1, 2, 3, 4
    on conflict (at, kind, subject, metric) do update
        set value = excluded.value, highest = excluded.highest
$$;

-- Throws old measures away, a bounded number of rows a call, and alarms that ended long ago.
create or replace function leasehold.prune_measures(up_to int default 5000)
returns bigint
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    removed bigint;
    total bigint := 0;
begin
    delete from leasehold.measure where ctid = any (array(
        select m.ctid from leasehold.measure m
         where m.at < statement_timestamp() - interval '24 hours' limit up_to));
    get diagnostics removed = row_count;
    total := total + removed;
    delete from leasehold.measure_hour where ctid = any (array(
        select m.ctid from leasehold.measure_hour m
         where m.at < statement_timestamp() - interval '90 days' limit up_to));
    get diagnostics removed = row_count;
    total := total + removed;
    -- Every failure writes one: as many as may have come in a minute.
    delete from leasehold.tally where ctid = any (array(
        select t.ctid from leasehold.tally t
         where t.at < statement_timestamp() - interval '2 hours' limit up_to * 20));
    get diagnostics removed = row_count;
    total := total + removed;
    delete from leasehold.alarm where ctid = any (array(
        select a.ctid from leasehold.alarm a
         where a.raised_at < statement_timestamp() - interval '90 days'
           and a.cleared_at < statement_timestamp() - interval '90 days' limit up_to));
    get diagnostics removed = row_count;
    return total + removed;
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
create or replace function leasehold.series(
    of_kind text, of_metrics text[], of_subject text default null,
    back interval default interval '30 minutes', step interval default interval '1 minute'
)
returns table (at timestamptz, value double precision, minutes bigint)
language sql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
    with span as (
        select date_bin(step, date_trunc('minute', statement_timestamp()), timestamptz '2000-01-01Z') as last
    ), minute as (
        select m.at, max(case when m.kind = 'database' then 1 else 0 end) as sampled,
               sum(m.value) filter (where m.kind = of_kind and m.metric = any (of_metrics)) as value,
               bool_or(m.flow) filter (where m.kind = of_kind and m.metric = any (of_metrics)) as flow
          from leasehold.measure m, span
         where m.at > span.last - back and m.at < date_trunc('minute', statement_timestamp())
           and ((m.kind = of_kind and m.metric = any (of_metrics)
                 and (of_subject is null or m.subject = of_subject))
                or (m.kind = 'database' and m.metric = 'sampled' and m.subject = ''))
         group by m.at
    ), binned as (
        select date_bin(step, i.at, timestamptz '2000-01-01Z') as at,
               case when bool_or(i.flow) then sum(i.value) else avg(i.value) end as value,
               max(i.sampled) as sampled, count(*) as minutes
          from minute i group by 1
    )
    select s.at, coalesce(b.value, case when b.sampled = 1 then 0 end), coalesce(b.minutes, 0)
      from span cross join lateral
           generate_series(span.last - back + step, span.last, step) as s (at)
      left join binned b on b.at = s.at
     where s.at < date_trunc('minute', statement_timestamp())
     order by s.at
$$;
