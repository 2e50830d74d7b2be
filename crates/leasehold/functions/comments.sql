-- What `\df+ leasehold.*` and `\d+ leasehold.jobs` show. docs/sql.md is made from these texts, and a test
-- compares. The tables `job` and `audit` have their texts in the migration that creates them: a comment on
-- a table waits for its vacuum.

comment on schema leasehold is
    'Durable jobs: what callers may use. Functions, views, and the tables job (INSERT, COPY) and audit.';
comment on schema leasehold_internal is
    'Internals of Leasehold. Names and meanings change without notice; use the schema leasehold.';

comment on type leasehold.claimed_job is
    'A job that a claim returns, with the generation that finishes it and the limits of its queue.';

-- Producers.
comment on function leasehold.enqueue is
    'Enqueues a job in the caller''s transaction. With a key, a repeat within key_ttl returns the first job''s id and inserted = false.';
comment on function leasehold.enqueue_many is
    'Enqueues one job per element of names and kwargs in one statement. Returns one row per job, in the same order.';
comment on function leasehold.open_batch is
    'Opens a batch and returns its id. Add jobs with enqueue(..., batch => id), then seal it. When all of them have ended, one follow-up is enqueued: on_success if every job completed, on_death if one is dead, on_end otherwise and in place of a missing one. Each is a JSON object: name, and optionally kwargs, queue, priority, tag, max_attempts, limit_key, trace_context, scheduled_at, run_after and expire_after (seconds), on_success, on_end, on_death.';
comment on function leasehold.seal_batch is
    'Seals a batch: no more jobs are added, and it closes when all of them have ended. Waits for transactions that add to it. Returns false if it was sealed before.';
comment on function leasehold_internal.wake is
    'Wakes idle workers of a queue. An insert does this by itself at its commit.';
comment on function leasehold.complete_waiting is
    'Completes jobs that wait, because their work was done elsewhere. Running jobs are left alone. Returns the number.';
comment on function leasehold.contract is
    'Returns the version of this interface, now 1. Within one version, functions keep their names, parameters and results. A program checks it when it starts.';

-- Workers.
comment on function leasehold.claim is
    'Claims up to claim_size ready jobs, and at most the claim_size of the queue, under a new lease, in order of priority and due time, deferred jobs last. Reclaims expired leases first. names null: every name. A claim_size of 0 returns no job.';
comment on function leasehold.recover_claim is
    'Returns the jobs that a claim without a reply took: the caller passed this claim_id to claim. No rows: it took none, its lease has ended, or it has not committed yet; so ask again for a few seconds after a lost connection. Without this call the jobs wait until their lease runs out.';
comment on function leasehold.renew is
    'Renews leases: each ends its own length from now. Returns one state per generation: ''renewed'', ''busy'' (locked; ask again), ''ended'' or ''lost''.';
comment on function leasehold.check_lease is
    'Raises an error unless the caller still holds the job under this generation. Call it in a transaction that must commit only while the lease holds.';
comment on function leasehold.complete is
    'Completes a job and keeps its result, if one is given: at most 64 KiB. Returns false if the lease was lost; then nothing changes.';
comment on function leasehold.extend_batch is
    'Lets the rest of the transaction add jobs to the batch of a running job, sealed or not, and returns the batch. Raises an error unless the caller holds the job under this generation.';
comment on function leasehold.followed_batch is
    'Returns the batch whose follow-up a job is, or null.';
comment on function leasehold.batch_results is
    'Returns the results that jobs of a batch kept, in the order of their ids, those after the id in after, 1,000 at most.';
comment on function leasehold.result is
    'Returns the result that a completed job kept, or null.';
comment on function leasehold.complete_many is
    'Completes jobs of one lease. Returns the ids that it completed; the others were lost.';
comment on function leasehold.fail is
    'Ends an attempt that failed. The job waits for its next attempt after a backoff (or after), or is dead. Returns ''retry'', ''buried'', ''cancelled'' (after a cancel request) or ''lost''.';
comment on function leasehold.snooze is
    'Puts a job back until wait has passed. The attempt is not counted. Returns false if the lease was lost.';
comment on function leasehold.defer is
    'Puts a job back until wait has passed, behind all jobs of its queue that are not deferred. The attempt is not counted. Returns false if the lease was lost.';
comment on function leasehold.bury is
    'Moves a job to the dead jobs at once, with an error and a cause: exhausted, lost, rejected, undecodable or expired. Returns false if the lease was lost.';
comment on function leasehold.release is
    'Puts back jobs that were claimed and not run. The attempt is not counted and the due time stays. Returns the ids.';
comment on function leasehold.finish_cancelled is
    'Ends a running job as cancelled, after a cancel request or by its own decision. Returns false if the lease was lost.';
comment on function leasehold.once_start is
    'Begins a step that must not repeat. It records the job and the generation, and checks neither: check_lease does. Returns ''started'', ''unfinished'' (an earlier attempt began it) or ''finished'' with its result.';
comment on function leasehold.once_finish is
    'Finishes a step with its result. The first result stays. Returns false if it was finished before.';
comment on function leasehold.once_forget is
    'Forgets a step that was started and whose effect is known not to have taken place. Returns false if there is none.';
comment on function leasehold.housekeep is
    'Runs every duty of housekeeping once, for installations without a Leasehold worker. Call it every minute, or more often where jobs of a dead worker must return sooner. Returns one row per duty.';

-- Operators. Each call is recorded in leasehold.audit.
comment on function leasehold.cancel_batch is
    'Cancels a batch: cancels waiting jobs and asks running ones to stop, up_to of them per call. Repeat it until more is false, or leave the rest to housekeeping. Its follow-up is on_death if a job is dead, else on_end.';
comment on function leasehold.cancel is
    'Cancels a waiting job, or asks a running one to stop. Returns ''cancelled'', ''cancel_requested'' or ''gone''. The reason becomes the note of the finished job.';
comment on function leasehold.promote is 'Makes waiting jobs due now. Returns the ids.';
comment on function leasehold.redrive is
    'Brings dead jobs back to their queue, with no attempts counted. Returns the ids.';
comment on function leasehold.delete_jobs is
    'Deletes waiting and dead jobs without running them and without history. Returns the ids.';
comment on function leasehold.update_job is
    'Changes a waiting job. Null leaves a value as it is. Returns false if the job does not wait.';
comment on function leasehold.pause is
    'Pauses a queue: no claim takes its jobs, running jobs continue. A queue that does not exist yet is created, paused. Returns false if it is paused already.';
comment on function leasehold.resume is 'Resumes a paused queue. Returns false if it is not paused.';
comment on function leasehold.set_queue is
    'Changes settings of a queue. Null leaves a setting as it is. Workers apply them at their next claim, a new claim size after a restart. Creates the settings of a queue that has none. Returns whether a setting changed.';
comment on function leasehold.set_limit is
    'Sets the limit of a key, or of all keys with this text before their first '':'', as a whole; key null: of the queue. At most max_running of its jobs run and max_waiting wait, rate of them start per time after burst at once, and it gets weight jobs for one of a key with weight 1; null: any number. ordered: one job at a time, in order. debounce: an enqueue replaces the job that waits. throttle: an enqueue this soon after another one stores nothing. by_name: the key is a name, whose jobs get it. It comes before what code declares.';
comment on function leasehold.remove_limit is
    'Removes a limit that an operator set; the one that code declares applies again. Returns false if no operator set one.';
comment on function leasehold.retire_limit is
    'Removes a limit that code declared and no longer does. Returns false if there is none.';
comment on function leasehold.pause_limit is
    'Pauses a limit key: its jobs wait, running ones continue. Returns false if it is paused already.';
comment on function leasehold.resume_limit is 'Resumes a paused limit key. Returns false if it is not paused.';
comment on function leasehold.why_waiting is
    'Returns why a job does not run, in one sentence, such as "it waits for limit tenant:7, 3 of 3 running, 41 before it". Null: no job with this id waits or runs.';
comment on function leasehold.add_schedule is
    'Adds a schedule whose first slot is next_slot. A worker parses the pattern: add schedules by the library or by leasehold schedules add, which check every field and compute next_slot. Returns false if the name is taken, unless replace is true.';
comment on function leasehold.pause_schedule is
    'Pauses a schedule: its slots pass without a job. Returns false if it is paused already, or there is none.';
comment on function leasehold.resume_schedule is 'Resumes a paused schedule. Returns false if it is not paused.';
comment on function leasehold.remove_schedule is
    'Removes a schedule. Code that declares it adds it again at the next start. Returns false if there is none.';
comment on function leasehold.run_schedule is
    'Enqueues the job of a schedule now; its slots stay. Returns the id of the job, or null if there is no such schedule.';
comment on function leasehold.run_sweep is 'Makes a sweep due now. Returns false if there is none of this name.';
comment on function leasehold.pause_sweep is
    'Pauses a sweep: workers finish their batches and claim no more rows. Returns false if it is paused already.';
comment on function leasehold.resume_sweep is 'Resumes a paused sweep. Returns false if it is not paused.';
comment on function leasehold_internal.run_watchdog is
    'Makes the workers of a sweep run its watchdog now. Returns false if there is none of this name.';
comment on function leasehold_internal.forget_sweep is
    'Removes the record of a sweep that no worker has any more. Its table stays as it is. Returns false if there is none.';
comment on function leasehold_internal.redrive_sweep is
    'Brings dead rows of a sweep back. Null keys: all of them, up to up_to. Returns the keys.';
comment on function leasehold_internal.order_mirror is
    'Asks a worker of a mirror to check, rebuild, roll back or drop; what is one of these words: check, rebuild, rollback, drop. Returns the id of the job, or null if there is no such mirror.';
comment on function leasehold_internal.reindex_mirror is
    'Enqueues one job per key, which compares the row with its document; with force it writes the document in any case. Returns the number.';
comment on function leasehold_internal.forget_mirror is
    'Removes the record of a mirror that no worker has any more. Its table and its store stay as they are. Returns false if there is none.';
comment on function leasehold_internal.reset_mirror_equality is
    'Forgets since when the store of a mirror is equal to its table, because the store was replaced. Returns false if there is none.';
comment on function leasehold.acknowledge_alarm is
    'Records that an operator takes care of an alarm. Returns false if no open alarm has this id.';
comment on function leasehold.silence_alarm is
    'Sends no notification of an alarm for a while, even if it clears and is raised again. Zero ends a silence.';
comment on function leasehold_internal.test_alarm is
    'Sends a test notification to every registered receiver. Returns their number; 0: alarms reach no one.';
comment on function leasehold_internal.watch_queue is
    'Sets the alarm thresholds of a queue. Null leaves one as it is; a max_length of -1 and a max_age of 0 turn theirs off. Without min_completed and over, a new watch raises no alarm about few completed jobs, unless by_service is true.';
comment on function leasehold_internal.unwatch_queue is
    'Turns the alarms of a queue off. Returns false if there was no watch, or it was off already.';

-- Views.
comment on view leasehold.jobs is
    'Every job: waiting, running, finished and dead. Read-only.';
comment on view leasehold.batches is
    'Batches with their state and their counts. Read-only.';
comment on view leasehold.queues is
    'Every queue with a row or a job: its settings, and how many jobs are in which state.';
comment on view leasehold.workers is 'Worker processes of the last days.';
comment on view leasehold.limits is 'The limit in force of each key or prefix that has one, and where it comes from.';
comment on view leasehold.schedules is 'Schedules: which job the clock enqueues, and when.';
comment on view leasehold.sweeps is 'Sweeps: when each runs, and what it did.';
comment on view leasehold.mirrors is 'Mirrors: whether each is equal to its table, and since when.';
comment on view leasehold.alarms is 'Alarms, open and cleared.';

do $$
declare
    each record;
begin
    for each in
        select * from (values
    ('claimed_job', 'id', 'The job. With lease_generation it is the fence.'),
    ('claimed_job', 'name', 'Which handler runs it.'),
    ('claimed_job', 'kwargs', 'Its arguments, a JSON object.'),
    ('claimed_job', 'priority', 'Lower runs first.'),
    ('claimed_job', 'scheduled_at', 'When it was due.'),
    ('claimed_job', 'attempts', 'How often it was claimed, this claim included.'),
    ('claimed_job', 'max_attempts', 'How often it may be claimed before it is dead.'),
    ('claimed_job', 'lost_count', 'How many workers died in a row while they ran it.'),
    ('claimed_job', 'lease_generation', 'The generation of this claim: pass it to complete, fail, renew and the others.'),
    ('claimed_job', 'tag', 'Where the job came from.'),
    ('claimed_job', 'enqueued_at', 'When it was enqueued.'),
    ('claimed_job', 'idempotency_key', 'The key it was enqueued with, or null.'),
    ('claimed_job', 'trace_context', 'W3C traceparent of the producer, or null.'),
    ('claimed_job', 'run_limit', 'How long a handler may run.'),
    ('claimed_job', 'lease', 'How long the claim lasts without renewal.'),
    ('claimed_job', 'max_lost', 'How many workers may die in a row before it is dead.'),
    ('claimed_job', 'deferred', 'Whether its last attempt deferred it.'),
    ('jobs', 'id', 'The job.'),
    ('jobs', 'queue', 'Its queue.'),
    ('jobs', 'name', 'Which handler runs it.'),
    ('jobs', 'state', 'scheduled, ready, running, retrying, completed, cancelled or dead.'),
    ('jobs', 'cause', 'Why a dead job died: exhausted, lost, rejected, undecodable or expired.'),
    ('jobs', 'kwargs', 'Its arguments, a JSON object of at most 64 KiB.'),
    ('jobs', 'priority', 'Lower runs first.'),
    ('jobs', 'tag', 'Where the job came from.'),
    ('jobs', 'idempotency_key', 'The key it was enqueued with, or null.'),
    ('jobs', 'enqueued_at', 'When it was enqueued.'),
    ('jobs', 'scheduled_at', 'When it is due.'),
    ('jobs', 'expires_at', 'A job that has not started by then is dead. Null for finished jobs.'),
    ('jobs', 'claimed_at', 'When the current or last attempt began. Null while it waits.'),
    ('jobs', 'finished_at', 'When it was completed, cancelled or buried.'),
    ('jobs', 'attempts', 'How often it was claimed.'),
    ('jobs', 'max_attempts', 'How often it may be claimed before it is dead.'),
    ('jobs', 'lost_count', 'How many workers died in a row while they ran it.'),
    ('jobs', 'worker', 'Which worker runs it, or ran it last.'),
    ('jobs', 'lease_generation', 'The generation of its last claim; 0: never claimed.'),
    ('jobs', 'lease_expires_at', 'Until when its worker holds it. Null unless it runs.'),
    ('jobs', 'cancel_requested', 'True if an operator asked its worker to stop it.'),
    ('jobs', 'last_error', 'The error of its last failed attempt.'),
    ('jobs', 'errors', 'Its last ten failures, oldest first: at, attempt, worker, ms, error.'),
    ('jobs', 'note', 'Why a cancelled job was cancelled.'),
    ('jobs', 'trace_context', 'W3C traceparent of the producer. Null for finished jobs.'),
    ('jobs', 'stored_in', 'job, dead_job or history. A query with a condition on it reads only that table.'),
    ('jobs', 'deferred', 'Whether it waits behind all jobs of its queue that are not deferred.'),
    ('jobs', 'limit_key', 'Which limit holds it back, such as tenant:7. Null: none. Null for finished jobs.'),
    ('jobs', 'batch_id', 'The batch it belongs to, or null. Null for finished jobs.'),
    ('batches', 'id', 'The batch.'),
    ('batches', 'description', 'What it is for.'),
    ('batches', 'state', 'open (jobs may be added), sealed, closed (all jobs have ended), or cancelled.'),
    ('batches', 'total', 'Its jobs, ended or not.'),
    ('batches', 'waiting', 'Jobs that wait.'),
    ('batches', 'running', 'Jobs that a worker holds.'),
    ('batches', 'completed', 'Jobs that completed.'),
    ('batches', 'cancelled', 'Jobs that were cancelled.'),
    ('batches', 'dead', 'Jobs that are dead, expired ones too. A redrive before the batch is closed takes a job out of this number.'),
    ('batches', 'deleted', 'Jobs that were deleted.'),
    ('batches', 'created_at', 'When it was opened.'),
    ('batches', 'sealed_at', 'When it was sealed. Null: jobs may be added.'),
    ('batches', 'closed_at', 'When its last job had ended and its follow-up was enqueued.'),
    ('batches', 'cancelled_at', 'When it was cancelled.'),
    ('batches', 'cancelled_by', 'Who cancelled it.'),
    ('batches', 'cancelled_why', 'Why it was cancelled.'),
    ('batches', 'on_success', 'The name of the follow-up if every job completes.'),
    ('batches', 'on_end', 'The name of the follow-up in every other case.'),
    ('batches', 'on_death', 'The name of the follow-up if a job is dead.'),
    ('batches', 'follow_up_job_id', 'The follow-up that was enqueued.'),
    ('queues', 'queue', 'Its name.'),
    ('queues', 'paused_at', 'Since when it is paused. Null: it is not.'),
    ('queues', 'paused_by', 'Who paused it.'),
    ('queues', 'paused_why', 'Why.'),
    ('queues', 'ready', 'Jobs that are due.'),
    ('queues', 'running', 'Jobs that a worker holds.'),
    ('queues', 'scheduled', 'Jobs that are due later and have not failed.'),
    ('queues', 'retrying', 'Jobs that failed and are due later.'),
    ('queues', 'dead', 'Dead jobs, without the expired ones.'),
    ('queues', 'dead_expired', 'Dead jobs with the cause expired: they were not started in time.'),
    ('queues', 'oldest_ready_at', 'Since when the oldest ready job has been due.'),
    ('queues', 'workers', 'Live workers that work it.'),
    ('queues', 'lease', 'How long a claim lasts without renewal. Null, as in the columns below: the queue has no settings yet.'),
    ('queues', 'max_attempts', 'How often a job may be claimed before it is dead.'),
    ('queues', 'max_lost', 'How many workers may die in a row while they run a job before it is dead.'),
    ('queues', 'claim_size', 'The most jobs that one claim takes.'),
    ('queues', 'run_limit', 'How long a handler may run.'),
    ('queues', 'backoff_base', 'The wait after the first failure; it doubles each time.'),
    ('queues', 'backoff_cap', 'The longest wait after a failure.'),
    ('queues', 'keep_history', 'Whether finished jobs are kept in the history.'),
    ('queues', 'display_name', 'Its title on dashboards.'),
    ('queues', 'owner', 'The team that owns it.'),
    ('limits', 'queue', 'The queue of the jobs.'),
    ('limits', 'key', 'A limit key, or the text before the first '':'' of many. Empty: the whole queue.'),
    ('limits', 'max_running', 'The most jobs of one key that run at the same time. Null: any number.'),
    ('limits', 'weight', 'How many jobs a key gets for one job of a key with weight 1.'),
    ('limits', 'source', 'operator, or code: a worker declares it.'),
    ('limits', 'set_by', 'The operator that set it, or the worker that declared it.'),
    ('limits', 'set_at', 'When it was set or declared with these values.'),
    ('limits', 'declared_max_running', 'What code declares instead, if an operator set this limit.'),
    ('limits', 'declared_weight', 'The same for the weight. Null: no code declares a limit of this key.'),
    ('limits', 'rate', 'How many jobs of one key start per time. Null: any number.'),
    ('limits', 'per', 'The time of the rate.'),
    ('limits', 'burst', 'How many jobs start at once before the rate holds them back.'),
    ('limits', 'ordered', 'Whether one job of a key runs at a time, in order.'),
    ('limits', 'on_failure', 'block or pass: whether a job that waits for its next attempt blocks those behind it, if ordered.'),
    ('limits', 'on_death', 'continue or stop: whether a dead job stops its key, if ordered.'),
    ('limits', 'max_waiting', 'The most jobs of one key that wait; an enqueue of one more is refused. Null: any number.'),
    ('limits', 'debounce', 'A job is due after this time without another enqueue of its key.'),
    ('limits', 'debounce_max', 'A debounced job is due at the latest this long after its first enqueue.'),
    ('limits', 'throttle', 'An enqueue this soon after another one of its key stores nothing.'),
    ('limits', 'by_name', 'Whether the key is a name of jobs; those without a limit key get it.'),
    ('workers', 'id', 'The process.'),
    ('workers', 'name', 'The name from its configuration.'),
    ('workers', 'host', 'Its machine.'),
    ('workers', 'pid', 'Its process id there.'),
    ('workers', 'version', 'Its release.'),
    ('workers', 'queues', 'The queues that it works.'),
    ('workers', 'names', 'The job names that it has handlers for.'),
    ('workers', 'slots', 'How many jobs it can run at the same time.'),
    ('workers', 'busy', 'How many it ran when it was last seen.'),
    ('workers', 'started_at', 'When it started.'),
    ('workers', 'last_seen_at', 'When it last reported.'),
    ('workers', 'state', 'alive, draining, stopped, or dead: not seen for 30 s.'),
    ('workers', 'claimed_ahead', 'How many jobs it had claimed, and no slot for, when it was last seen.'),
    ('schedules', 'name', 'Its name.'),
    ('schedules', 'cron', 'The pattern of its slots.'),
    ('schedules', 'zone', 'The time zone of the pattern.'),
    ('schedules', 'queue', 'The queue of its jobs.'),
    ('schedules', 'job_name', 'The name of its jobs.'),
    ('schedules', 'kwargs', 'The arguments of its jobs.'),
    ('schedules', 'tag', 'The tag of its jobs.'),
    ('schedules', 'priority', 'The priority of its jobs.'),
    ('schedules', 'missed', 'What happens to slots that passed while no worker ran: skip, once or all.'),
    ('schedules', 'state', 'active or paused.'),
    ('schedules', 'next_slot', 'When it fires next.'),
    ('schedules', 'last_slot', 'The slot that it fired last.'),
    ('schedules', 'last_job_id', 'The job of that slot.'),
    ('schedules', 'missed_slots', 'How many slots passed without a job.'),
    ('schedules', 'paused_at', 'Since when it is paused. Null: it is not.'),
    ('schedules', 'paused_by', 'Who paused it.'),
    ('schedules', 'paused_why', 'Why.'),
    ('schedules', 'declared_by', 'The worker whose code declares it. Null: an operator added it.'),
    ('schedules', 'last_declared_at', 'When a worker last declared it.'),
    ('schedules', 'created_at', 'When it was created.'),
    ('sweeps', 'name', 'Its name.'),
    ('sweeps', 'table_name', 'The table that it sweeps.'),
    ('sweeps', 'state', 'paused, running, due or idle.'),
    ('sweeps', 'cron', 'The pattern of its runs, or null.'),
    ('sweeps', 'zone', 'The time zone of the pattern.'),
    ('sweeps', 'every', 'The pause between two runs, or null.'),
    ('sweeps', 'next_run_at', 'When it is due next.'),
    ('sweeps', 'run_started_at', 'When the last run began.'),
    ('sweeps', 'run_ended_at', 'When it ended. Null: it has not.'),
    ('sweeps', 'watchdog_ran_at', 'When its watchdog last ran.'),
    ('sweeps', 'paused_at', 'Since when it is paused. Null: it is not.'),
    ('sweeps', 'paused_by', 'Who paused it.'),
    ('sweeps', 'paused_why', 'Why.'),
    ('sweeps', 'rows_claimed', 'Rows that all runs claimed.'),
    ('sweeps', 'rows_finished', 'Rows that all runs finished.'),
    ('sweeps', 'rows_failed', 'Failures of rows, over all runs.'),
    ('sweeps', 'rows_lost', 'Rows that were finished after the watchdog had reset them.'),
    ('sweeps', 'rows_reset', 'Rows that the watchdog reset.'),
    ('sweeps', 'failing', 'Rows that failed and wait for their next attempt, up to 10,000.'),
    ('sweeps', 'dead', 'Rows that failed too often, up to 10,000.'),
    ('mirrors', 'name', 'Its name.'),
    ('mirrors', 'table_name', 'The table that it mirrors.'),
    ('mirrors', 'queue', 'The queue of its jobs.'),
    ('mirrors', 'job_name', 'The name of its jobs.'),
    ('mirrors', 'phase', 'none, building, verifying or swapped: what happens to its second set.'),
    ('mirrors', 'serving', 'The set of documents that is searched. Null: the store has only one.'),
    ('mirrors', 'second', 'A second set that is written too.'),
    ('mirrors', 'rebuild_rows', 'Rows that the rebuild has written.'),
    ('mirrors', 'rebuild_started_at', 'When the last rebuild began.'),
    ('mirrors', 'rebuild_ended_at', 'When it ended.'),
    ('mirrors', 'round_started_at', 'When the current round of the check began.'),
    ('mirrors', 'round_rows', 'Rows that this round has compared.'),
    ('mirrors', 'compared_at', 'When the last whole round ended.'),
    ('mirrors', 'rows_compared', 'Rows that it compared.'),
    ('mirrors', 'repaired', 'Rows that it found different and repaired.'),
    ('mirrors', 'repaired_total', 'The same over all rounds.'),
    ('mirrors', 'rounds', 'Whole rounds so far.'),
    ('mirrors', 'equal_as_of', 'Every change committed before this is in the store.'),
    ('mirrors', 'differences', 'Rows that were found different and not yet equal.'),
    ('mirrors', 'oldest_difference', 'Since when the oldest of them has been known.'),
    ('mirrors', 'tombstones', 'How many deletions are remembered, so that a late write does not bring the document back.'),
    ('alarms', 'id', 'The alarm.'),
    ('alarms', 'rule', 'Which rule is violated.'),
    ('alarms', 'subject', 'The queue, sweep or mirror that it concerns.'),
    ('alarms', 'state', 'open, acknowledged, silenced or cleared.'),
    ('alarms', 'raised_at', 'When it was raised.'),
    ('alarms', 'cleared_at', 'When it cleared. Null: it has not.'),
    ('alarms', 'seen_at', 'When a sample last found the rule violated.'),
    ('alarms', 'value', 'The value of that sample.'),
    ('alarms', 'threshold', 'The threshold that it violates.'),
    ('alarms', 'summary', 'What is wrong, in one sentence.'),
    ('alarms', 'acknowledged_at', 'When an operator acknowledged it.'),
    ('alarms', 'acknowledged_by', 'Who.'),
    ('alarms', 'acknowledged_why', 'With which note.'),
    ('alarms', 'silenced_until', 'Until when no notification is sent.'),
    ('alarms', 'silenced_by', 'Who silenced it.'),
    ('alarms', 'silenced_why', 'Why.'),
    ('alarms', 'notified_at', 'When its notifications were enqueued. Null: none was.'),
    ('alarms', 'delivered_at', 'When a receiver first delivered one.'),
    ('alarms', 'delivered_by', 'Which receiver.')
        ) as c (relation, name, text)
    loop
        execute format('comment on column leasehold.%I.%I is %L', each.relation, each.name, each.text);
    end loop;
end $$;
