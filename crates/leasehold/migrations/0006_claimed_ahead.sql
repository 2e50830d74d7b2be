-- How many jobs a worker has claimed and not started.
--
-- Why: operators see which worker holds jobs that wait for its slots.
-- Locks: ACCESS EXCLUSIVE on `worker` for a moment; the table is not rewritten.
-- An older program sees: nothing. Its workers claim nothing ahead, and have 0.

alter table leasehold_internal.worker add column claimed_ahead int not null default 0;
