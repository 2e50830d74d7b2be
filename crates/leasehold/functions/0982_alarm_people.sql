-- What people say about alarms and expect of queues.

-- Refuses what nobody signed, or what has no reason: whoever finds an alarm quieted wants to know both.
-- Only for the functions here.
create or replace function leasehold.check_signed(actor text, why text)
returns void
language plpgsql immutable set search_path = leasehold, pg_temp as $$
begin
    if coalesce(btrim(actor), '') = '' then
        raise exception 'say who does this' using errcode = 'invalid_parameter_value';
    end if;
    if coalesce(btrim(why), '') = '' then
        raise exception 'say why' using errcode = 'invalid_parameter_value';
    end if;
end $$;

-- Somebody has seen an alarm and looks after it. False: there is no open alarm of that number.
create or replace function leasehold.acknowledge_alarm(of_id bigint, actor text, why text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    perform leasehold.check_signed(actor, why);
    update leasehold.alarm a
       set acknowledged_at = statement_timestamp(), acknowledged_by = actor, acknowledged_why = why
     where a.id = of_id and a.cleared_at is null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'acknowledge', 'alarm ' || of_id, why);
    return true;
end $$;

-- Nobody is told of this alarm for a while, even when it goes away and comes back; zero ends a
-- silence. False: there is no alarm of that number.
create or replace function leasehold.silence_alarm(of_id bigint, how_long interval, actor text, why text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    perform leasehold.check_signed(actor, why);
    update leasehold.alarm a
       set silenced_until = case when how_long > interval '0' then statement_timestamp() + how_long end,
           silenced_by = case when how_long > interval '0' then actor end,
           silenced_why = case when how_long > interval '0' then why end
      from leasehold.alarm named
     where named.id = of_id and a.rule = named.rule and a.subject = named.subject
       and (a.id = of_id or a.silenced_until > statement_timestamp());
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, case when how_long > interval '0' then 'silence' else 'end silence' end,
            'alarm ' || of_id, concat_ws(': ', how_long::text, why));
    return true;
end $$;

-- Sets what is expected of a queue; null leaves a setting as it is, a length of -1 and an age of 0 turn
-- theirs off. What a service declares gives way to
-- what a person has said before. True: something was set.
create or replace function leasehold.watch_queue(
    of_queue text, actor text, by_service boolean default false,
    of_min_completed bigint default null, of_over interval default null,
    of_max_length bigint default null, of_bulk_tags text[] default null,
    of_max_age interval default null, of_max_dead bigint default null, of_max_lost bigint default null
)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    insert into leasehold.watch as w
        (queue, changed_by, min_completed, over, max_length, bulk_tags, max_age, max_dead, max_lost)
    values (of_queue, actor, coalesce(of_min_completed, 1), coalesce(of_over, interval '10 minutes'),
            nullif(greatest(of_max_length, -1), -1), coalesce(of_bulk_tags, '{reindex_*}'),
            -- What holds where nobody watches holds here, too, until somebody says otherwise.
            nullif(greatest(coalesce(of_max_age, interval '1 hour'), interval '0'), interval '0'),
            coalesce(of_max_dead, 10), coalesce(of_max_lost, 10))
    on conflict (queue) do update
        set min_completed = coalesce(of_min_completed, w.min_completed),
            over = coalesce(of_over, w.over),
            max_length = nullif(greatest(coalesce(of_max_length, w.max_length), -1), -1),
            bulk_tags = coalesce(of_bulk_tags, w.bulk_tags),
            max_age = nullif(greatest(coalesce(of_max_age, w.max_age), interval '0'), interval '0'),
            max_dead = coalesce(of_max_dead, w.max_dead),
            max_lost = coalesce(of_max_lost, w.max_lost),
            off = false, changed_by = actor,
            since = case when w.off then statement_timestamp() else w.since end
      where not by_service;
    if not found then
        return false;
    end if;
    if not by_service then
        insert into leasehold.audit (actor, action, subject) values (actor, 'watch', 'queue ' || of_queue);
    end if;
    return true;
end $$;

-- Expects nothing of a queue any more. False: nothing was.
create or replace function leasehold.unwatch_queue(of_queue text, actor text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    -- The row stays: a service that declares its watch at every start must not undo this.
    update leasehold.watch w set off = true, changed_by = actor where w.queue = of_queue and not w.off;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject) values (actor, 'unwatch', 'queue ' || of_queue);
    return true;
end $$;

-- Alarms with their state in words.
create or replace view leasehold.alarm_state as
select a.id, a.rule, a.subject,
       case when a.cleared_at is not null then 'cleared'
            when a.silenced_until > statement_timestamp() then 'silenced'
            when a.acknowledged_at is not null then 'acknowledged'
            else 'open' end as state,
       a.raised_at, a.cleared_at, a.seen_at, a.value, a.threshold, a.summary, a.acknowledged_at,
       a.acknowledged_by, a.acknowledged_why, a.silenced_until, a.silenced_by, a.silenced_why,
       a.notified_at
  from leasehold.alarm a;
