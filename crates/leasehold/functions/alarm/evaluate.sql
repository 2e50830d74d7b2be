-- Alarms: these functions read what is known, the library (`alarm/rules.rs`) decides what is wrong, and
-- these functions record the result.

-- Returns what the rules evaluate, as of the last sample: one statement, one snapshot. Null: there is
-- no sample that is recent enough. `measured` lists the parts of the sample that succeeded, null: all;
-- the others are unknown, and alarms that depend on them are neither raised nor cleared.
create or replace function leasehold_internal.alarm_snapshot(sample timestamptz)
returns jsonb
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    quarter interval := interval '15 minutes';
    -- The longest window of any rule.
    far interval := greatest(quarter, (select max(w.over) from leasehold_internal.watch w where not w.off));
    -- Start of the current uninterrupted run of samples, or the first sample within `far`. A gap of up
    -- to 3 minutes is no interruption: another process may be taking over the sampling.
    looked_since timestamptz := (
        select max(s.at) filter (where s.before is null or s.at - s.before > interval '3 minutes')
          from (select m.at, lag(m.at) over (order by m.at) as before
                  from leasehold_internal.measure m
                 where m.kind = 'database' and m.subject = '' and m.metric = 'sampled'
                   and m.at > alarm_snapshot.sample - far - interval '5 minutes' and m.at <= alarm_snapshot.sample) s);
begin
    return (
    with latest as materialized (
        select m.kind, m.subject, m.metric, m.value
          from leasehold_internal.measure m where m.at = alarm_snapshot.sample and not m.flow
    ), gauge as materialized (
        select l.subject as queue, jsonb_object_agg(l.metric, l.value) as v
          from latest l where l.kind = 'queue' group by l.subject
    ), recent as materialized (
        select m.at, m.subject as queue, m.metric, m.value
          from leasehold_internal.measure m
         where m.at > alarm_snapshot.sample - far and m.at <= alarm_snapshot.sample and m.kind = 'queue'
           and m.metric in ('completed', 'buried', 'lost', 'ready', 'workers', 'paused')
    ), judged as (
        -- For any other queue everything is zero.
        select g.queue from gauge g
        union select r.queue from recent r
        union select w.queue from leasehold_internal.watch w
    ), sums as (
        select r.queue,
               sum(r.value) filter (where r.metric = 'completed'
                   and r.at > alarm_snapshot.sample - coalesce(w.over, quarter)) as completed,
               sum(r.value) filter (where r.metric = 'buried' and r.at > alarm_snapshot.sample - quarter) as died,
               sum(r.value) filter (where r.metric = 'lost' and r.at > alarm_snapshot.sample - quarter) as lost,
               max(r.at) filter (where r.metric = 'paused' and r.value > 0) as paused
          from recent r left join leasehold_internal.watch w on w.queue = r.queue and not w.off
         group by r.queue
    ), starved as (
        -- In how many of the last five minutes jobs were ready and no worker was alive.
        select a.queue, count(*) as minutes
          from recent a
         where a.metric = 'ready' and a.value > 0 and a.at > alarm_snapshot.sample - interval '5 minutes'
           and not exists (select from recent b where b.queue = a.queue and b.at = a.at
                                                  and b.metric = 'workers' and b.value > 0)
         group by a.queue
    )
    select jsonb_build_object(
        'sample', alarm_snapshot.sample,
        'measured', (select jsonb_agg(replace(l.metric, '_sampled', '')) from latest l
            where l.kind = 'database' and l.subject = '' and l.metric like '%\_sampled'),
        'queues', coalesce((select jsonb_agg(jsonb_build_object(
            'queue', k.queue,
            'paused', coalesce((g.v ->> 'paused')::float8 > 0, false),
            'length', coalesce((g.v ->> 'watched_length')::float8, 0),
            'oldest_ready_age', coalesce((g.v ->> 'oldest_ready_age')::float8, 0),
            'dead_expired', coalesce((g.v ->> 'dead_expired')::float8, 0),
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
                -- Time without samples, or in which the queue was paused, does not count.
                'watched_for', extract(epoch from alarm_snapshot.sample + interval '1 minute'
                    - greatest(w.since, looked_since, s.paused + interval '1 minute'))) end
            ) order by k.queue)
            from judged k
            left join gauge g on g.queue = k.queue
            left join sums s on s.queue = k.queue
            left join starved t on t.queue = k.queue
            left join leasehold_internal.watch w on w.queue = k.queue), '[]'),
        'sweeps', coalesce((select jsonb_agg(jsonb_build_object(
            'sweep', l.subject, 'dead', coalesce(l.dead, 0),
            -- A table that could not be read for a moment keeps its last value.
            'stuck', coalesce((select m.value from leasehold_internal.measure m
                where m.at <= alarm_snapshot.sample and m.at > alarm_snapshot.sample - quarter and m.kind = 'sweep'
                  and m.subject = l.subject and m.metric = 'stuck' order by m.at desc limit 1), 0)
            ) order by l.subject)
            from (select subject, max(value) filter (where metric = 'dead') as dead
                    from latest where kind = 'sweep' group by subject) l), '[]'),
        'mirrors', coalesce((select jsonb_agg(jsonb_build_object(
            'mirror', l.subject, 'differences', coalesce(l.differences, 0),
            'oldest_difference_age', coalesce(l.age, 0),
            -- Two rounds of the check are no reason for an alarm, however long they take. A mirror that
            -- was never equal may have no store at all.
            'uncompared_age', coalesce(greatest(l.equal_age
                - 2 * (m.rows_compared / m.range_rows + 1) * extract(epoch from m.check_every), 0), 0)
            ) order by l.subject)
            from (select subject, max(value) filter (where metric = 'differences') as differences,
                         max(value) filter (where metric = 'oldest_difference_age') as age,
                         max(value) filter (where metric = 'equal_age') as equal_age
                    from latest where kind = 'mirror' group by subject) l
            left join leasehold_internal.mirror m on m.name = l.subject), '[]'),
        'oldest_xact_age', coalesce((select value from latest
            where kind = 'database' and metric = 'oldest_xact_age'), 0),
        -- The holders that explain the age, as of now: up to three, each at least half as old as
        -- the oldest.
        'vacuum_held_by', coalesce((select jsonb_agg(jsonb_build_object(
            'who', h.who, 'remedy', h.remedy, 'age', h.age) order by h.rank)
            from (select v.*, row_number() over (order by v.xids desc nulls last, v.age desc) as rank,
                         max(v.age) over () as oldest
                    from leasehold_internal.vacuum_holders() v) h
           where h.rank <= 3 and h.age >= h.oldest / 2), '[]'),
        'open', coalesce((select jsonb_agg(jsonb_build_object('rule', a.rule, 'subject', a.subject))
            from leasehold_internal.alarm a where a.cleared_at is null), '[]'))
     where exists (select from latest));
end $$;

-- Records what the rules found: raises new alarms, clears those that are over, and enqueues
-- notifications, all or nothing. `up` is a list of {rule, subject, value, threshold, summary}. `judged`
-- lists the rules that could be evaluated, null: all; alarms of the other rules stay as they are.
-- Returns what changed. Nothing does if a later sample has been taken: the evaluation was too late.
create or replace function leasehold_internal.apply_alarms(sample timestamptz, up jsonb, judged text[] default null)
returns table (change text, rule text, subject text, summary text)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set jit = off as $$
#variable_conflict use_column
declare
    entry leasehold_internal.alarm;
    found_now record;
begin
    -- One evaluation at a time, and only of the last sample.
    perform from leasehold_internal.duty d
      where d.name = 'measure' and d.ran_at = apply_alarms.sample + interval '1 minute' for update;
    if not found then
        return;
    end if;
    -- An evaluation without alarms leaves no other trace than this one.
    insert into leasehold_internal.duty as d (name, ran_at) values ('judge', apply_alarms.sample + interval '1 minute')
    on conflict (name) do update set ran_at = excluded.ran_at;
    for found_now in
        select u.rule, u.subject, u.value, u.threshold, u.summary
          from jsonb_to_recordset(up) as u (rule text, subject text, value float8, threshold float8, summary text)
         order by u.rule, u.subject
    loop
        update leasehold_internal.alarm a
           set value = found_now.value, threshold = found_now.threshold, summary = found_now.summary,
               seen_at = statement_timestamp()
         where a.rule = found_now.rule and a.subject = found_now.subject and a.cleared_at is null
        returning * into entry;
        if not found then
            -- A silence of an earlier alarm of this rule and subject applies to the new one.
            insert into leasehold_internal.alarm as a
                (rule, subject, value, threshold, summary, silenced_until, silenced_by, silenced_why)
            select found_now.rule, found_now.subject, found_now.value, found_now.threshold,
                   found_now.summary, s.silenced_until, s.silenced_by, s.silenced_why
              from (select) one left join lateral (
                select o.silenced_until, o.silenced_by, o.silenced_why from leasehold_internal.alarm o
                 where o.rule = found_now.rule and o.subject = found_now.subject
                   and o.silenced_until > statement_timestamp()
                 order by o.silenced_until desc limit 1) s on true
            returning * into entry;
            change := 'raised';
            rule := entry.rule; subject := entry.subject; summary := entry.summary;
            return next;
        end if;
        -- Also when a silence has ended and the alarm is still open.
        if entry.notified_at is null and entry.acknowledged_at is null
           and coalesce(entry.silenced_until <= statement_timestamp(), true) then
            -- Without a receiver the alarm stays unnotified: the first receiver that registers gets the
            -- notification.
            if leasehold_internal.notify_alarm(entry, 'raised') > 0 then
                update leasehold_internal.alarm a set notified_at = statement_timestamp() where a.id = entry.id;
            end if;
        end if;
    end loop;
    for entry in
        update leasehold_internal.alarm a set cleared_at = statement_timestamp()
         where a.cleared_at is null and (judged is null or a.rule = any (judged))
           and not exists (select from jsonb_to_recordset(up) as u (rule text, subject text)
                            where u.rule = a.rule and u.subject = a.subject)
        returning *
    loop
        change := 'cleared';
        rule := entry.rule; subject := entry.subject; summary := entry.summary;
        return next;
        if entry.notified_at is not null then
            perform leasehold_internal.notify_alarm(entry, 'cleared');
        end if;
    end loop;
end $$;
