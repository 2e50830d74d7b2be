-- Notifications of alarms: jobs for the processes that deliver them.

-- Enqueues a notification for every receiver seen within the last seven days. Returns their number.
-- Internal.
create or replace function leasehold_internal.notify_alarm(entry leasehold_internal.alarm, event text)
returns int
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    with notified as (
        insert into leasehold.job (name, queue, tag, kwargs, max_attempts, expires_at)
        select r.job_name, 'leasehold.alarms', 'leasehold.alarm', jsonb_strip_nulls(jsonb_build_object(
                   'event', event, 'alarm', entry.id, 'rule', entry.rule, 'subject', entry.subject,
                   'value', entry.value, 'threshold', entry.threshold, 'summary', entry.summary,
                   'raised_at', entry.raised_at, 'cleared_at', entry.cleared_at)),
               -- The expiry ends the retries: the longest wait between two attempts is about an hour.
               1000, statement_timestamp() + interval '7 days'
          from leasehold_internal.alarm_receiver r
         where r.seen_at > statement_timestamp() - interval '7 days'
        returning 1)
    select count(*)::int from notified
$$;

-- Returns whether an alarm has cleared, or was removed. A receiver checks it before it delivers
-- 'raised'.
create or replace function leasehold_internal.alarm_has_cleared(id bigint)
returns boolean
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select not exists (select from leasehold_internal.alarm a where a.id = alarm_has_cleared.id and a.cleared_at is null)
$$;

-- Records that a receiver delivered the notification that an alarm was raised. The first one counts.
create or replace function leasehold_internal.note_alarm_delivery(alarm bigint, receiver text)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold_internal.alarm a set delivered_at = statement_timestamp(), delivered_by = receiver
     where a.id = alarm and a.delivered_at is null
$$;

-- Registers a process that delivers notifications in jobs of this name.
create or replace function leasehold_internal.declare_alarm_receiver(job_name text)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold_internal.alarm_receiver as r (job_name) values (declare_alarm_receiver.job_name)
    on conflict (job_name) do update set seen_at = statement_timestamp()
$$;

-- Sends a test notification to the receivers of `notify_alarm` and returns their number; 0 means that no
-- alarm would be delivered.
create or replace function leasehold_internal.test_alarm(actor text)
returns int
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    entry leasehold_internal.alarm;
begin
    entry.id := 0;
    entry.rule := 'test';
    entry.subject := actor;
    entry.value := 0;
    entry.threshold := 0;
    entry.summary := 'this is a test by ' || actor || '; nothing is wrong';
    entry.raised_at := statement_timestamp();
    insert into leasehold.audit (actor, action, subject) values (actor, 'test', 'alarms');
    return leasehold_internal.notify_alarm(entry, 'test');
end $$;
