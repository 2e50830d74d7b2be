-- Alarms: what is known is read here, what is wrong is decided by the library (`alarm/rules.rs`), and
-- what came of it is written here.

-- What the rules look at, as of the last sample: one statement, one snapshot. Null: there is no sample
-- that is recent enough to judge by.
create or replace function leasehold.alarm_snapshot(of_sample timestamptz)
returns jsonb
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    quarter interval := interval '15 minutes';
    -- As far back as anybody looks.
    far interval := greatest(quarter, (select max(w.over) from leasehold.watch w where not w.off));
    -- A stop that was longer than a hand-over ends with this minute: before it nobody looked. The first
    -- minute that is left is one too, when there is no other.
    looked_since timestamptz := (
        select max(s.at) filter (where s.before is null or s.at - s.before > interval '3 minutes')
          from (select m.at, lag(m.at) over (order by m.at) as before
                  from leasehold.measure m
                 where m.kind = 'database' and m.subject = '' and m.metric = 'sampled'
                   and m.at > of_sample - far - interval '5 minutes' and m.at <= of_sample) s);
begin
    return (
    with latest as materialized (
        select m.kind, m.subject, m.metric, m.value
          from leasehold.measure m where m.at = of_sample and not m.flow
    ), gauge as materialized (
        select l.subject as queue, jsonb_object_agg(l.metric, l.value) as v
          from latest l where l.kind = 'queue' group by l.subject
    ), recent as materialized (
        select m.at, m.subject as queue, m.metric, m.value
          from leasehold.measure m
         where m.at > of_sample - far and m.at <= of_sample and m.kind = 'queue'
           and m.metric in ('completed', 'buried', 'lost', 'ready', 'workers', 'paused')
    ), sums as (
        select r.queue,
               sum(r.value) filter (where r.metric = 'completed'
                   and r.at > of_sample - coalesce(w.over, quarter)) as completed,
               sum(r.value) filter (where r.metric = 'buried' and r.at > of_sample - quarter) as died,
               sum(r.value) filter (where r.metric = 'lost' and r.at > of_sample - quarter) as lost,
               max(r.at) filter (where r.metric = 'paused' and r.value > 0) as paused
          from recent r left join leasehold.watch w on w.queue = r.queue and not w.off
         group by r.queue
    ), starved as (
        -- For how many of the last five minutes jobs could have run and nobody was there.
        select a.queue, count(*) as minutes
          from recent a join recent b on b.queue = a.queue and b.at = a.at
         where a.metric = 'ready' and a.value > 0 and b.metric = 'workers' and b.value = 0
           and a.at > of_sample - interval '5 minutes'
         group by a.queue
    )
    select jsonb_build_object(
        'sample', of_sample,
        'queues', coalesce((select jsonb_agg(jsonb_build_object(
            'queue', g.queue,
            'paused', (g.v ->> 'paused')::float8 > 0,
            'length', (g.v ->> 'watched_length')::float8,
            'oldest_ready_age', (g.v ->> 'oldest_ready_age')::float8,
            'expired_kept', (g.v ->> 'expired_kept')::float8,
            'completed', coalesce(s.completed, 0),
            'died', coalesce(s.died, 0),
            'lost', coalesce(s.lost, 0),
            'starved_minutes', coalesce(t.minutes, 0),
            'watch', case when w.queue is not null then jsonb_build_object(
                'off', w.off,
                'min_completed', w.min_completed,
                'over', extract(epoch from w.over),
                'max_length', w.max_length,
                'max_age', extract(epoch from w.max_age),
                'max_dead', w.max_dead,
                'max_lost', w.max_lost,
                -- Time in which nobody looked, or in which it was to stand still, says nothing.
                'watched_for', extract(epoch from of_sample + interval '1 minute'
                    - greatest(w.since, looked_since, s.paused + interval '1 minute'))) end
            ) order by g.queue)
            from gauge g
            left join sums s on s.queue = g.queue
            left join starved t on t.queue = g.queue
            left join leasehold.watch w on w.queue = g.queue), '[]'),
        'sweeps', coalesce((select jsonb_agg(jsonb_build_object(
            'sweep', l.subject, 'dead', coalesce(l.dead, 0),
            -- A table that could not be read for a moment is as it was.
            'stuck', coalesce((select m.value from leasehold.measure m
                where m.at <= of_sample and m.at > of_sample - quarter and m.kind = 'sweep'
                  and m.subject = l.subject and m.metric = 'stuck' order by m.at desc limit 1), 0)
            ) order by l.subject)
            from (select subject, max(value) filter (where metric = 'dead') as dead
                    from latest where kind = 'sweep' group by subject) l), '[]'),
        'mirrors', coalesce((select jsonb_agg(jsonb_build_object(
            'mirror', l.subject, 'differences', coalesce(l.differences, 0),
            'oldest_difference_age', coalesce(l.age, 0),
            -- Two rounds of its check are no reason to worry, however long they take. A mirror that
            -- was never equal may have no store at all.
            'unproven_age', coalesce(greatest(l.equal_age
                - 2 * (m.rows_checked / m.range_rows + 1) * extract(epoch from m.check_every), 0), 0)
            ) order by l.subject)
            from (select subject, max(value) filter (where metric = 'differences') as differences,
                         max(value) filter (where metric = 'oldest_difference_age') as age,
                         max(value) filter (where metric = 'equal_age') as equal_age
                    from latest where kind = 'mirror' group by subject) l
            left join leasehold.mirror m on m.name = l.subject), '[]'),
        'oldest_xact_age', coalesce((select value from latest
            where kind = 'database' and metric = 'oldest_xact_age'), 0),
        -- Those that alone would be reason enough to look, as of now.
        'vacuum_held_by', coalesce((select jsonb_agg(jsonb_build_object(
            'who', h.who, 'remedy', h.remedy, 'age', h.age) order by h.place)
            from (select v.*, row_number() over (order by v.xids desc nulls last, v.age desc) as place,
                         max(v.age) over () as oldest
                    from leasehold.vacuum_holders() v) h
           where h.place <= 3 and h.age >= h.oldest / 2), '[]'),
        'open', coalesce((select jsonb_agg(jsonb_build_object('rule', a.rule, 'subject', a.subject))
            from leasehold.alarm a where a.cleared_at is null), '[]'))
     where exists (select from latest));
end $$;

-- Writes down what the rules found: raises what is new, clears what is over, and tells whoever wants
-- to know, all or nothing. `up` is a list of {rule, subject, value, threshold, summary}.
-- Answers what changed. Nothing does when a later sample has been taken: the judge slept.
create or replace function leasehold.apply_alarms(of_sample timestamptz, up jsonb)
returns table (change text, rule text, subject text, summary text)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set jit = off as $$
#variable_conflict use_column
declare
    entry leasehold.alarm;
    found_now record;
begin
    -- One judge at a time, and the last sample's.
    perform from leasehold.duty d
      where d.name = 'measure' and d.ran_at = of_sample + interval '1 minute' for update;
    if not found then
        return;
    end if;
    -- Nothing wrong leaves no other trace; this one says that somebody looked.
    insert into leasehold.duty as d (name, ran_at) values ('judge', of_sample + interval '1 minute')
    on conflict (name) do update set ran_at = excluded.ran_at;
    for found_now in
        select u.rule, u.subject, u.value, u.threshold, u.summary
          from jsonb_to_recordset(up) as u (rule text, subject text, value float8, threshold float8, summary text)
         order by u.rule, u.subject
    loop
        update leasehold.alarm a
           set value = found_now.value, threshold = found_now.threshold, summary = found_now.summary,
               seen_at = statement_timestamp()
         where a.rule = found_now.rule and a.subject = found_now.subject and a.cleared_at is null
        returning * into entry;
        if not found then
            -- Somebody may have asked for quiet about this before it went away and came back.
            insert into leasehold.alarm as a
                (rule, subject, value, threshold, summary, silenced_until, silenced_by, silenced_why)
            select found_now.rule, found_now.subject, found_now.value, found_now.threshold,
                   found_now.summary, s.silenced_until, s.silenced_by, s.silenced_why
              from (select) one left join lateral (
                select o.silenced_until, o.silenced_by, o.silenced_why from leasehold.alarm o
                 where o.rule = found_now.rule and o.subject = found_now.subject
                   and o.silenced_until > statement_timestamp()
                 order by o.silenced_until desc limit 1) s on true
            returning * into entry;
            change := 'raised';
            rule := entry.rule; subject := entry.subject; summary := entry.summary;
            return next;
        end if;
        -- Also when a silence has ended and it still holds.
        if entry.notified_at is null and entry.acknowledged_at is null
           and coalesce(entry.silenced_until <= statement_timestamp(), true) then
            update leasehold.alarm a set notified_at = statement_timestamp() where a.id = entry.id;
            perform leasehold.tell_alarm(entry, 'raised');
        end if;
    end loop;
    for entry in
        update leasehold.alarm a set cleared_at = statement_timestamp()
         where a.cleared_at is null
           and not exists (select from jsonb_to_recordset(up) as u (rule text, subject text)
                            where u.rule = a.rule and u.subject = a.subject)
        returning *
    loop
        change := 'cleared';
        rule := entry.rule; subject := entry.subject; summary := entry.summary;
        return next;
        if entry.notified_at is not null then
            perform leasehold.tell_alarm(entry, 'cleared');
        end if;
    end loop;
end $$;
