-- What the engine measures of itself, and the alarms that follow from it.
--
-- Why: a queue that no operator watches fails in silence. Once per minute one worker of the fleet records
-- a sample (`measure`), compares it with the thresholds of the operators (`watch`), and records what is
-- wrong (`alarm`).
-- Locks: none that matter; every object here is new.
-- An older program sees: nothing of this; it refuses a schema newer than it knows.

-- One value per minute, metric and subject; minutes are kept for a day.
create table leasehold_internal.measure (
    -- The minute, by its beginning.
    at timestamptz not null,
    kind text collate "C" not null constraint measure_kind check (kind in (
        'queue', 'tag', 'sweep', 'mirror', 'mirror_tag', 'database')),
    -- A queue, `queue/tag`, a sweep, a mirror, `mirror/tag`, a table, or empty: the database as a whole.
    subject text collate "C" not null,
    metric text collate "C" not null,
    -- True: a count over this minute. False: the value at its end.
    flow boolean not null,
    value double precision not null,
    primary key (at, kind, subject, metric)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05);

-- For a chart: one metric over a day, without the others of each minute.
create index measure_series_idx on leasehold_internal.measure (kind, metric, at);

-- The same per hour: flows are sums, the others means. Hours are kept for ninety days.
create table leasehold_internal.measure_hour (
    at timestamptz not null,
    kind text collate "C" not null,
    subject text collate "C" not null,
    metric text collate "C" not null,
    flow boolean not null,
    value double precision not null,
    highest double precision not null,
    -- How many minutes the row summarises.
    minutes int not null,
    primary key (at, kind, subject, metric)
);

create index measure_hour_series_idx on leasehold_internal.measure_hour (kind, metric, at);

-- Events that leave no other trace: retries, losses, burials, what a mirror did. The statement that does it
-- appends a row, the sampler reads it once, and it is deleted after two hours.
create table leasehold_internal.tally (
    at timestamptz not null default statement_timestamp(),
    queue text not null default '',
    tag text not null default '',
    what text not null,
    n bigint not null,
    -- The name of the mirror, when the event concerns no queue.
    subject text not null default ''
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
create index tally_at_idx on leasehold_internal.tally (at);

-- The thresholds of a queue.
create table leasehold_internal.watch (
    queue text collate "C" primary key
        constraint watch_queue_form check (queue <> '' and octet_length(queue) <= 64),
    -- Fewer jobs completed than this within `over`: an alarm. 0: off.
    min_completed bigint not null default 1
        constraint watch_min_completed_counted check (min_completed >= 0),
    over interval not null default interval '10 minutes'
        constraint watch_over_sane check (over between interval '2 minutes' and interval '23 hours'),
    -- More jobs than this wait or run: an alarm. Null: off.
    max_length bigint constraint watch_max_length_counted check (max_length >= 0),
    -- Jobs of these tags do not count into the length: work that is long on purpose. `reindex_*` is
    -- every tag that begins so.
    bulk_tags text[] not null default '{reindex_*}',
    -- The oldest job that could run has waited longer than this: an alarm. Null: off.
    max_age interval default interval '1 hour' constraint watch_max_age_positive check (max_age > interval '0'),
    -- This number of jobs died, or lost their worker, within 15 minutes: an alarm. 0: off.
    max_dead bigint not null default 10 constraint watch_max_dead_counted check (max_dead >= 0),
    max_lost bigint not null default 10 constraint watch_max_lost_counted check (max_lost >= 0),
    -- An operator turned the watch of this queue off: services that declare a watch leave it off.
    off boolean not null default false,
    -- `min_completed` is compared only after the queue has been watched for `over`.
    since timestamptz not null default statement_timestamp(),
    changed_by text not null
);

-- Alarms, open and cleared. One open row per rule and subject.
create table leasehold_internal.alarm (
    id bigint generated always as identity primary key,
    rule text collate "C" not null,
    subject text collate "C" not null,
    raised_at timestamptz not null default statement_timestamp(),
    -- Null: it is still raised.
    cleared_at timestamptz,
    -- When a sample last kept it raised; `value` is of that sample.
    seen_at timestamptz not null default statement_timestamp(),
    value double precision not null,
    threshold double precision not null,
    summary text not null,
    acknowledged_at timestamptz,
    acknowledged_by text,
    acknowledged_why text,
    -- No notification is sent before then.
    silenced_until timestamptz,
    silenced_by text,
    silenced_why text,
    -- When its notifications were enqueued. Null: none was, so none is sent when it clears.
    notified_at timestamptz,
    -- When a receiver first delivered one, and the job name of that receiver. `notified_at` alone does not
    -- show an operator that a notification arrived.
    delivered_at timestamptz,
    delivered_by text,
    constraint alarm_acknowledgement_is_signed
        check ((acknowledged_at is null) = (acknowledged_by is null)
               and (acknowledged_at is null) = (acknowledged_why is null)),
    constraint alarm_silence_is_signed
        check (silenced_until is null or (silenced_by is not null and silenced_why is not null))
);
create unique index alarm_open_idx on leasehold_internal.alarm (rule, subject) where cleared_at is null;
create index alarm_raised_idx on leasehold_internal.alarm (raised_at);

-- The receivers of notifications: the names of the jobs that deliver them. A process that can deliver them
-- registers itself again from time to time.
create table leasehold_internal.alarm_receiver (
    job_name text collate "C" primary key
        constraint alarm_receiver_form check (job_name ~ '^leasehold\.alarm\.[a-z0-9_.-]{1,64}$'),
    seen_at timestamptz not null default statement_timestamp()
);

insert into leasehold_internal.duty (name) values ('measure');
