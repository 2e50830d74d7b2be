-- The trigger that wakes idle workers.
--
-- Why: a job starts an idle worker at once however it was stored: by `enqueue` in a transaction of the
-- caller, by INSERT, by COPY. The event is deferred to the commit, so that the check for an idle worker
-- runs as late as possible; a worker that becomes idle after that check looks again for a while.
-- Locks: SHARE ROW EXCLUSIVE on `job` for a moment; writers wait, readers do not.
-- An old worker: listens, but does not announce that it is idle. Until it is replaced it finds jobs of
-- new producers by polling.

-- Replaced by the text in functions/025_wake.sql; a trigger cannot be created without its function.
create function leasehold.wake_idle() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$ begin return null; end $$;

-- One event per transaction and queue, not one per row: a deferred event per row would double the cost
-- of COPY and keep 100,000 of them in memory. The setting is local to the transaction, and the rollback
-- of a savepoint undoes both the event and the setting. Idle workers look again within a second; a
-- wake-up is needed only for jobs that are due before.
create constraint trigger job_wakes_idle after insert on leasehold.job
    deferrable initially deferred for each row
    when (new.scheduled_at <= clock_timestamp() + interval '1 second'
          and case when current_setting('leasehold.woken_queue', true) = new.queue then false
                   else set_config('leasehold.woken_queue', new.queue, true) is not null end)
    execute function leasehold.wake_idle();
