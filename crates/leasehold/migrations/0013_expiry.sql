-- The expiry of jobs that a plain INSERT stores for later.
--
-- Why: the column's default counts from the insert, so a job that was due in 29 days had one day to
-- start. The functions that follow create the trigger again, with a condition that finds such jobs.
-- Locks: SHARE ROW EXCLUSIVE on `job` until the transaction ends.
-- An old binary sees: nothing.

drop trigger if exists default_expiry on leasehold.job;
