-- One view of all jobs, `leasehold.jobs`, in the words of the glossary.
--
-- Why: the same job was `pending` in the view `inbox`, waiting in the documents and ready in the console.
-- `inbox` is now an example (examples/inbox) over `jobs`. The cause `refused` is now `rejected`.
-- Locks: `dead_job` is read once under ACCESS EXCLUSIVE for its new constraint: burying waits, about a
-- second per million dead jobs. `schedule` is locked for the moment that a column without a value takes.
-- An old binary sees: no view `inbox`, which no program of the engine reads. Its calls of `bury` with the
-- cause `refused` are stored as `rejected`.

drop view if exists leasehold.inbox;

-- `refused` stays allowed: rows that died before this migration keep it, and the functions of the former
-- release write it until they are replaced. The view `jobs` shows `rejected` for it.
alter table leasehold.dead_job
    drop constraint dead_job_cause,
    add constraint dead_job_cause check (cause in (
        'exhausted',   -- every attempt failed, or the last one lost its worker
        'lost',        -- too many workers died in a row while they ran it
        'rejected',    -- the handler reported that another attempt is useless
        'refused',     -- the former word for `rejected`
        'undecodable', -- the kwargs do not fit what the handler expects
        'expired'      -- not started before `expires_at`
    ));

-- Why an operator paused a schedule. A queue and a sweep have this column already.
alter table leasehold.schedule add column paused_why text;

-- Replaced by functions that also take a reason, and whose parameters have no prefix. `bury` has another
-- default.
drop function if exists leasehold.promote(bigint[], text);
drop function if exists leasehold.redrive(bigint[], text);
drop function if exists leasehold.pause(text, text, text);
drop function if exists leasehold.resume(text, text);
