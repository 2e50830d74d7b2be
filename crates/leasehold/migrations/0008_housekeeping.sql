-- Housekeeping that no single row can stop and that keeps up with producers.
--
-- Why: a schedule with kwargs that no job can have stopped every other duty; every pruning read the
-- keys of waiting jobs again; a walk that was timed by a clock that was set back waited for it; a
-- producer could enqueue an order to a mirror or a forged alarm.
-- Locks: `schedule` and `duty` are small. `idempotency_key` gets a column without a value and one index
-- in place of another: enqueues with a key wait while it is built, about a second per million keys. The
-- functions that follow create a trigger on `job` and lock it for that moment.
-- An old binary sees: its statements run as before. It refuses a schema newer than it knows.

-- A unit struct becomes null in JSON, and the jobs of such a schedule could never be inserted.
update leasehold.schedule set kwargs = '{}' where kwargs = 'null';

-- The constraints of the table of jobs. Not valid: a row that violates them already must not stop the
-- migration; it fails when it fires, alone, and the worker's log names it.
alter table leasehold.schedule
    add constraint schedule_queue_form check (queue <> '' and octet_length(queue) <= 64) not valid,
    add constraint schedule_job_name_form
        check (job_name <> '' and octet_length(job_name) <= 200) not valid,
    add constraint schedule_tag_form check (octet_length(tag) <= 200) not valid,
    add constraint schedule_kwargs_object check (jsonb_typeof(kwargs) = 'object') not valid,
    add constraint schedule_kwargs_size check (pg_column_size(kwargs) <= 65536) not valid,
    -- The name of the worker whose code declares it. Null: an operator added it.
    add column declared_by text
        constraint schedule_declared_by_form check (octet_length(declared_by) between 1 and 200),
    -- Workers that declare it repeat that every hour.
    add column last_declared_at timestamptz,
    -- When `next_slot` was last moved. Later than now: the clock was set back.
    add column moved_at timestamptz;

-- `ran_at` is when a duty ran; it runs again `cooldown` later. A time in the future then always means
-- that the clock was set back.
alter table leasehold.duty add column cooldown interval not null default interval '0';

-- An expired key stays while its job waits. Pruning looks at it again at this time, and not before.
-- `holds_until` cannot express that: it decides whether an enqueue creates a job.
alter table leasehold.idempotency_key add column look_again_at timestamptz;
create index idempotency_key_prune_idx
    on leasehold.idempotency_key (greatest(holds_until, look_again_at));
drop index leasehold.idempotency_key_age_idx;

-- Replaced by functions of other names or with more parameters.
drop function if exists leasehold.expired_queues();
drop function if exists leasehold.measure_database(timestamptz);
drop function if exists leasehold.apply_alarms(timestamptz, jsonb);
