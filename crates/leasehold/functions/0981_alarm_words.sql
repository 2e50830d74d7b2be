-- The word of an alarm: jobs for whoever carries it to people.

-- Enqueues the word to everyone who is there to carry it. Answers how many that are.
-- Only for the functions here.
create or replace function leasehold.tell_alarm(entry leasehold.alarm, event text)
returns int
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    with told as (
        insert into leasehold.job (name, queue, tag, kwargs, max_attempts, expires_at)
        select r.job_name, 'leasehold.alarms', 'leasehold.alarm', jsonb_strip_nulls(jsonb_build_object(
                   'event', event, 'alarm', entry.id, 'rule', entry.rule, 'subject', entry.subject,
                   'value', entry.value, 'threshold', entry.threshold, 'summary', entry.summary,
                   'raised_at', entry.raised_at, 'cleared_at', entry.cleared_at)),
               -- The week ends it: the longest wait between two attempts is about an hour.
               1000, statement_timestamp() + interval '7 days'
          from leasehold.alarm_receiver r
         where r.seen_at > statement_timestamp() - interval '7 days'
        returning 1)
    select count(*)::int from told
$$;

-- Whether an alarm is over, or was removed. Whoever carries the word of its raise asks first.
create or replace function leasehold.alarm_is_over(of_id bigint)
returns boolean
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select not exists (select from leasehold.alarm a where a.id = of_id and a.cleared_at is null)
$$;

-- A process says that it carries the word in jobs of this name.
create or replace function leasehold.declare_alarm_receiver(of_job_name text)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold.alarm_receiver as r (job_name) values (of_job_name)
    on conflict (job_name) do update set seen_at = statement_timestamp()
$$;

-- Sends a word that says that it is only a test. Answers how many carry it; 0: nobody would be told.
create or replace function leasehold.test_alarm(actor text)
returns int
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    entry leasehold.alarm;
begin
    entry.id := 0;
    entry.rule := 'test';
    entry.subject := actor;
    entry.value := 0;
    entry.threshold := 0;
    entry.summary := 'this is a test by ' || actor || '; nothing is wrong';
    entry.raised_at := statement_timestamp();
    insert into leasehold.audit (actor, action, subject) values (actor, 'test', 'alarms');
    return leasehold.tell_alarm(entry, 'test');
end $$;
