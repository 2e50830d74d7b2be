-- The error of every attempt, what a finished job was, and expiry that follows the due time.
--
-- Why: one text (`last_error`) does not show how a job failed the other times, and a job that completed
-- in the end kept nothing of its failures. A job whose due time was after `expires_at` was accepted and
-- never ran.
-- Locks: `job` is read once for jobs that could never run, while finishes and claims continue. Then
-- `job`, `dead_job` and `history` are locked for the moment that columns without a value take.
-- An old binary sees: columns that it does not name. It refuses to start on a newer schema.

-- These could never start: they expired before they were due.
update leasehold.job set expires_at = scheduled_at + interval '30 days'
 where expires_at <= scheduled_at and not held;

-- The last ten failures, oldest first: {"at", "attempt", "worker", "ms", "error"}. Null: none.
alter table leasehold.job add column errors jsonb;
alter table leasehold.dead_job add column errors jsonb;

alter table leasehold.history
    -- When the last attempt was claimed, by the one lease that all jobs of the row had.
    add column claimed_at timestamptz,
    -- One entry per job, as `job_ids`. Null as a whole where no job of the row differs from the default:
    -- priority 0, no key, the queue's attempts, due within a second of the enqueue, no failure.
    add column priorities int[],
    add column keys text[],
    add column max_attempts int[],
    add column scheduled_at timestamptz[],
    add column errors jsonb[];

-- Null means: 30 days after the due time. The trigger `default_expiry` of functions/020_enqueue.sql
-- sets that, so no reader meets a null.
alter table leasehold.job alter column expires_at drop not null;
