-- When a receiver took the notification of an alarm.
--
-- Why: `notified_at` says that notifications were enqueued; operators need to know that one arrived.
-- Locks: ACCESS EXCLUSIVE on `alarm` for a moment; the columns have no default, no row is rewritten.
-- An old binary sees: two columns that it does not read.

alter table leasehold.alarm
    add column delivered_at timestamptz,
    -- The job name of the receiver that delivered it first.
    add column delivered_by text;
