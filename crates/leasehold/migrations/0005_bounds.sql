-- A bound for the trace context of a job.
--
-- Why: every other text of a job has one. A trace context without a bound lets a producer fill the table.
-- Locks: ACCESS EXCLUSIVE on `job` for two reads over it, and one over the dead jobs.
-- An older program sees: nothing. A W3C trace context has at most 55 bytes, its state 512.

-- A row that broke the constraint could not be claimed, failed or reclaimed: each of them updates it.
-- Without the lock, such a row could be stored between the update and the constraint.
lock table leasehold.job in access exclusive mode;
update leasehold.job set trace_context = null where octet_length(trace_context) > 1024;
update leasehold_internal.dead_job set trace_context = null where octet_length(trace_context) > 1024;

alter table leasehold.job
    add constraint job_trace_context_length check (octet_length(trace_context) <= 1024);
