-- What operators do with alarms, and what they expect of queues.

-- Refuses a call without an actor or a reason: an operator who finds an alarm silenced needs both.
-- Internal.
create or replace function leasehold_internal.check_signed(actor text, why text)
returns void
language plpgsql immutable set search_path = leasehold, pg_temp as $$
begin
    if coalesce(btrim(actor), '') = '' then
        raise exception 'actor is empty; give your name'
            using errcode = 'LH002', constraint = 'LH002', hint = 'The audit log shows it.';
    end if;
    if coalesce(btrim(why), '') = '' then
        raise exception 'why is empty; give a reason'
            using errcode = 'LH002', constraint = 'LH002', hint = 'The audit log shows it.';
    end if;
end $$;

-- Records that an operator acknowledges an alarm. Returns false if there is no open alarm with that id.
create or replace function leasehold.acknowledge_alarm(id bigint, actor text, why text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    perform leasehold_internal.check_signed(actor, why);
    update leasehold_internal.alarm a
       set acknowledged_at = statement_timestamp(), acknowledged_by = actor, acknowledged_why = why
     where a.id = acknowledge_alarm.id and a.cleared_at is null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'acknowledge', 'alarm ' || acknowledge_alarm.id, why);
    return true;
end $$;

-- Sends no notification of this alarm for a while, even when it clears and is raised again; zero ends a
-- silence. Returns false if there is no alarm with that id.
create or replace function leasehold.silence_alarm(id bigint, duration interval, actor text, why text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    perform leasehold_internal.check_signed(actor, why);
    if coalesce(duration < interval '0', true) then
        raise exception 'duration is %; it must be a time, or zero to end the silence', coalesce(duration::text, 'null')
            using errcode = 'LH002', constraint = 'LH002', hint = 'Give a time such as interval ''2 hours''.';
    end if;
    update leasehold_internal.alarm a
       set silenced_until = case when duration > interval '0' then statement_timestamp() + duration end,
           silenced_by = case when duration > interval '0' then actor end,
           silenced_why = case when duration > interval '0' then why end
      from leasehold_internal.alarm named
     where named.id = silence_alarm.id and a.rule = named.rule and a.subject = named.subject
       and (a.id = silence_alarm.id or a.silenced_until > statement_timestamp());
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, case when duration > interval '0' then 'silence' else 'end silence' end,
            'alarm ' || silence_alarm.id, concat_ws(': ', duration::text, why));
    return true;
end $$;

-- Sets the thresholds of a queue; null leaves one as it is, a length of -1 and an age of 0 turn theirs
-- off. A declaration by a service does not change an existing watch, nor one that was turned off.
-- Returns true if something was set.
create or replace function leasehold_internal.watch_queue(
    queue text, actor text, by_service boolean default false,
    min_completed bigint default null, over interval default null,
    max_length bigint default null, bulk_tags text[] default null,
    max_age interval default null, max_dead bigint default null, max_lost bigint default null,
    why text default null
)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    perform leasehold_internal.check_actor(actor);
    perform leasehold_internal.check_new_queue(watch_queue.queue);
    insert into leasehold_internal.watch as w
        (queue, changed_by, min_completed, over, max_length, bulk_tags, max_age, max_dead, max_lost)
    values (watch_queue.queue, actor,
            -- A service sends canaries, so its queue is never quiet. Elsewhere a queue may be: only a caller
            -- that sets the number or its window wants the alarm.
            coalesce(watch_queue.min_completed,
                     case when by_service or watch_queue.over is not null then 1 else 0 end), coalesce(watch_queue.over, interval '10 minutes'),
            nullif(greatest(watch_queue.max_length, -1), -1), coalesce(watch_queue.bulk_tags, '{reindex_*}'),
            -- The threshold for queues without a watch applies here, too, unless the caller sets one.
            nullif(greatest(coalesce(watch_queue.max_age, interval '1 hour'), interval '0'), interval '0'),
            coalesce(watch_queue.max_dead, 10), coalesce(watch_queue.max_lost, 10))
    on conflict (queue) do update
        set min_completed = coalesce(watch_queue.min_completed, w.min_completed),
            over = coalesce(watch_queue.over, w.over),
            max_length = nullif(greatest(coalesce(watch_queue.max_length, w.max_length), -1), -1),
            bulk_tags = coalesce(watch_queue.bulk_tags, w.bulk_tags),
            max_age = nullif(greatest(coalesce(watch_queue.max_age, w.max_age), interval '0'), interval '0'),
            max_dead = coalesce(watch_queue.max_dead, w.max_dead),
            max_lost = coalesce(watch_queue.max_lost, w.max_lost),
            off = false, changed_by = actor,
            since = case when w.off then statement_timestamp() else w.since end
      where not by_service;
    if not found then
        return false;
    end if;
    if not by_service then
        insert into leasehold.audit (actor, action, subject, detail)
        values (actor, 'watch', 'queue ' || watch_queue.queue,
                concat_ws(', ', 'min_completed ' || min_completed, 'over ' || over, 'max_length ' || max_length,
                          'bulk_tags ' || bulk_tags::text, 'max_age ' || max_age, 'max_dead ' || max_dead,
                          'max_lost ' || max_lost, why));
    end if;
    return true;
end $$;

-- Turns the watch of a queue off. Returns false if there was none, or it was off already.
create or replace function leasehold_internal.unwatch_queue(queue text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    -- The row stays: a service that declares its watch at every start must not undo this.
    update leasehold_internal.watch w set off = true, changed_by = actor where w.queue = unwatch_queue.queue and not w.off;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'unwatch', 'queue ' || unwatch_queue.queue, why);
    return true;
end $$;

-- Alarms with their state by name.
create or replace view leasehold.alarms as
select a.id, a.rule, a.subject,
       case when a.cleared_at is not null then 'cleared'
            when a.silenced_until > statement_timestamp() then 'silenced'
            when a.acknowledged_at is not null then 'acknowledged'
            else 'open' end as state,
       a.raised_at, a.cleared_at, a.seen_at, a.value, a.threshold, a.summary, a.acknowledged_at,
       a.acknowledged_by, a.acknowledged_why, a.silenced_until, a.silenced_by, a.silenced_why,
       a.notified_at, a.delivered_at, a.delivered_by
  from leasehold_internal.alarm a;
