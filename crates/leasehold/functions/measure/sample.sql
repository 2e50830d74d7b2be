-- Self-measurement. One process of the fleet takes one sample per minute; its cost is bounded, however
-- many jobs the queues hold: see each function.

-- Returns whether a minute has passed since the last sample. Cheap, because every process asks often.
create or replace function leasehold_internal.sample_due()
returns boolean
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select exists (
        select from leasehold_internal.duty d
         where d.name = 'measure'
           and (d.ran_at < date_trunc('minute', statement_timestamp())
                -- The clock was set back.
                or d.ran_at > statement_timestamp() + interval '1 minute'))
$$;

-- Begins the sample of the minute that has just ended and returns that minute; null: another process
-- takes it, or has taken it. The caller owns the minute until its transaction ends: a sampler that dies
-- leaves no partial sample, and another process takes the minute.
create or replace function leasehold_internal.begin_sample()
returns timestamptz
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    this_minute timestamptz := date_trunc('minute', statement_timestamp());
begin
    perform from leasehold_internal.duty d
     where d.name = 'measure'
       and (d.ran_at < this_minute or d.ran_at > statement_timestamp() + interval '1 minute')
       for update skip locked;
    return case when found then this_minute - interval '1 minute' end;
end $$;

-- Measures one part of a sample. The caller gives each part its own savepoint and timeout: a part that
-- fails is missing in this minute, and no other part is. A success is recorded, because then a missing
-- row means zero, and otherwise it means unknown. `end_sample` ends the whole minute.
create or replace function leasehold_internal.measure_part(part text, minute timestamptz)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set jit = off as $$
declare
    following timestamptz := minute + interval '1 minute';
    -- When this part was last measured. The duty's own time is that of the last sample.
    before timestamptz := coalesce(
        (select max(m.at) + interval '1 minute' from leasehold_internal.measure m
          where m.kind = 'database' and m.metric = part || '_sampled' and m.at < minute),
        (select d.ran_at from leasehold_internal.duty d where d.name = 'measure'));
begin
    case part
        when 'vacuum' then perform leasehold_internal.measure_vacuum(minute);
        when 'mirrors' then perform leasehold_internal.measure_mirrors(minute);
        when 'flows' then
            -- Two minutes more than were read: a transaction that was open then may have committed
            -- since.
            perform leasehold_internal.measure_flows(
                greatest(least(before, minute) - interval '2 minutes', following - interval '1 hour'),
                following);
        when 'queues' then perform leasehold_internal.measure_queues(minute);
        when 'ages' then perform leasehold_internal.measure_ages(minute);
        when 'sweeps' then perform leasehold_internal.measure_sweeps(minute);
        when 'tables' then perform leasehold_internal.measure_tables(minute);
        when 'hours' then perform leasehold_internal.measure_hours(before, following);
        else
            raise exception 'a sample has no part %', quote_literal(part)
                using errcode = 'LH002', constraint = 'LH002',
                      hint = 'Use vacuum, mirrors, flows, queues, ages, sweeps, tables or hours.';
    end case;
    insert into leasehold_internal.measure (at, kind, subject, metric, flow, value)
    values (minute, 'database', '', part || '_sampled', false, 1)
    on conflict (at, kind, subject, metric) do nothing;
end $$;

-- Ends the sample of a minute.
create or replace function leasehold_internal.end_sample(minute timestamptz)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold_internal.duty d set ran_at = minute + interval '1 minute' where d.name = 'measure'
$$;

-- Takes the whole sample in one statement, all or nothing, for callers of plain SQL. Returns the
-- minute; null: another process takes it, or has taken it.
create or replace function leasehold_internal.sample()
returns timestamptz
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set jit = off as $$
declare
    minute timestamptz := leasehold_internal.begin_sample();
    part text;
begin
    if minute is null then
        return null;
    end if;
    foreach part in array array['vacuum', 'mirrors', 'flows', 'queues', 'ages', 'sweeps', 'tables', 'hours'] loop
        perform leasehold_internal.measure_part(part, minute);
    end loop;
    perform leasehold_internal.end_sample(minute);
    return minute;
end $$;

-- Returns a tag with its queue or mirror, in one text: `mail/api`. The part before the first slash is
-- the queue or the mirror: a slash in its name becomes %2F.
create or replace function leasehold_internal.tag_subject(whose text, tag text)
returns text
language sql immutable as $$
    select replace(replace(whose, '%', '%25'), '/', '%2F') || '/' || tag
$$;

-- Counts what happened in each minute. Reading a minute again gives the same or more, so it may be read
-- any number of times.
create or replace function leasehold_internal.measure_flows(since timestamptz, before timestamptz)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
begin
    insert into leasehold_internal.measure as m (at, kind, subject, metric, flow, value)
    with batch as materialized (
        select date_trunc('minute', h.finished_at) as at, h.queue, h.outcome, h.tags,
               -- Most batches have one tag, and need not be unnested.
               h.tags[1] = all (h.tags) as alike
          from leasehold_internal.history h
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
              from leasehold_internal.tally t where t.at >= since and t.at < before) every
         group by at, queue, tag, subject, what
    ), ranked as (
        -- Only the 30 busiest tags are kept; the rest are summed under '(others)', so that one tag per
        -- job cannot blow up the series.
        select f.*, dense_rank() over (partition by f.at, f.queue, f.subject
                                       order by sums.n desc, f.tag) as rank
          from flow f
          join (select at, queue, subject, tag, sum(n) as n from flow group by 1, 2, 3, 4) sums
         using (at, queue, subject, tag)
    )
    select at, 'queue', queue, what, true, sum(n) from flow where subject = '' group by 1, 3, 4
    union all
    select at, 'mirror', subject, what, true, sum(n) from flow where subject <> '' group by 1, 3, 4
    union all
    select at, case when subject = '' then 'tag' else 'mirror_tag' end,
           leasehold_internal.tag_subject(case when subject = '' then queue else subject end,
                                 case when rank <= 30 then tag else '(others)' end),
           what, true, sum(n)
      from ranked group by 1, 2, 3, 4
    on conflict (at, kind, subject, metric) do update set value = greatest(m.value, excluded.value);
end $$;
