-- What the engine measures of itself, and the alarms that follow from it.
--
-- Why: a queue that nobody looks at fails in silence. Once a minute one worker of the fleet writes
-- down what it sees (`measure`), compares it with what people expect (`watch`), and keeps what is
-- wrong (`alarm`).
-- Locks: the tables are new. `dead_job` and `history` get an index each, and finishing waits while
-- they are built: one read over the rows that are kept, without their arguments.
-- An old binary sees: nothing of this; it refuses a schema newer than it knows.

-- One value a minute, metric and subject; minutes are kept for a day.
create table leasehold.measure (
    -- The minute, by its beginning.
    at timestamptz not null,
    kind text collate "C" not null constraint measure_kind check (kind in (
        'queue', 'tag', 'sweep', 'mirror', 'mirror_tag', 'database')),
    -- A queue, `queue/tag`, a sweep, a mirror, `mirror/tag`, a table, or empty: the database as a whole.
    subject text collate "C" not null,
    metric text collate "C" not null,
    -- True: so many in this minute. False: as it stood at the end of it.
    flow boolean not null,
    value double precision not null,
    primary key (at, kind, subject, metric)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05);

-- For a chart: one metric over a day, without the others of each minute.
create index measure_series_idx on leasehold.measure (kind, metric, at);

-- The same an hour: flows are sums, the others the mean. Hours are kept for ninety days.
create table leasehold.measure_hour (
    at timestamptz not null,
    kind text collate "C" not null,
    subject text collate "C" not null,
    metric text collate "C" not null,
    flow boolean not null,
    value double precision not null,
    highest double precision not null,
    -- Of how many minutes.
    minutes int not null,
    primary key (at, kind, subject, metric)
);

create index measure_hour_series_idx on leasehold.measure_hour (kind, metric, at);

-- What happened and left no other trace: retries, losses, burials, what a mirror did. Appended by the
-- statement that did it, read once by the sampler, thrown away after two hours.
create table leasehold.tally (
    at timestamptz not null default statement_timestamp(),
    queue text not null default '',
    tag text not null default '',
    what text not null,
    n bigint not null,
    -- Whom it concerns when that is no queue: the name of a mirror.
    subject text not null default ''
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
create index tally_at_idx on leasehold.tally (at);

-- A minute's reading must not read a day. Rows come in the order of their time, so that a few bytes
-- for each range of pages are enough, and filing a batch costs nothing more.
create index history_finished_idx on leasehold.history using brin (finished_at)
    with (pages_per_range = 32, autosummarize = on);
-- Expired jobs are few, and each of them is an alarm.
create index dead_job_expired_idx on leasehold.dead_job (queue) where cause = 'expired';

-- What people expect of a queue.
create table leasehold.watch (
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
    -- So many jobs died, or lost their worker, within a quarter of an hour: an alarm. 0: off.
    max_dead bigint not null default 10 constraint watch_max_dead_counted check (max_dead >= 0),
    max_lost bigint not null default 10 constraint watch_max_lost_counted check (max_lost >= 0),
    -- Somebody said that this queue is not to be watched: services that declare a watch leave it so.
    off boolean not null default false,
    -- Nothing is too little before it has been looked at for `over`.
    since timestamptz not null default statement_timestamp(),
    changed_by text not null
);

-- What is wrong, and what was. One open row for a rule and what it is about.
create table leasehold.alarm (
    id bigint generated always as identity primary key,
    rule text collate "C" not null,
    subject text collate "C" not null,
    raised_at timestamptz not null default statement_timestamp(),
    -- Null: it still holds.
    cleared_at timestamptz,
    -- As of the last look.
    seen_at timestamptz not null default statement_timestamp(),
    value double precision not null,
    threshold double precision not null,
    summary text not null,
    acknowledged_at timestamptz,
    acknowledged_by text,
    acknowledged_why text,
    -- Nobody is told before then.
    silenced_until timestamptz,
    silenced_by text,
    silenced_why text,
    -- When the word went out. Null: nobody was told, so nobody needs to hear that it is over.
    notified_at timestamptz,
    constraint alarm_acknowledged_by_someone
        check ((acknowledged_at is null) = (acknowledged_by is null)
               and (acknowledged_at is null) = (acknowledged_why is null)),
    constraint alarm_silence_is_signed
        check (silenced_until is null or (silenced_by is not null and silenced_why is not null))
);
create unique index alarm_open_idx on leasehold.alarm (rule, subject) where cleared_at is null;
create index alarm_raised_idx on leasehold.alarm (raised_at);

-- Who is told: the names of the jobs that carry the word. Whoever can carry it says so now and then.
create table leasehold.alarm_receiver (
    job_name text collate "C" primary key
        constraint alarm_receiver_form check (job_name ~ '^leasehold\.alarm\.[a-z0-9_.-]{1,64}$'),
    seen_at timestamptz not null default statement_timestamp()
);

insert into leasehold.duty (name) values ('measure');
