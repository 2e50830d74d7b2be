-- Least privilege. Roles belong to the whole server and need CREATEROLE; without it the engine works as
-- before and an administrator can create them later.
do $$
declare
    wanted text;
begin
    foreach wanted in array array['leasehold_producer', 'leasehold_worker', 'leasehold_housekeeper',
                                  'leasehold_viewer', 'leasehold_operator'] loop
        begin
            if not exists (select from pg_roles where rolname = wanted) then
                execute format('create role %I nologin', wanted);
            end if;
        exception
            when insufficient_privilege then
                raise notice 'role % was not created: CREATEROLE is missing', wanted;
            when duplicate_object or unique_violation then null; -- made by another migrator meanwhile
        end;
    end loop;

    revoke all on all functions in schema leasehold from public;
    if not exists (select from pg_roles where rolname = 'leasehold_operator') then
        return;
    end if;

    grant usage on schema leasehold
        to leasehold_producer, leasehold_worker, leasehold_housekeeper, leasehold_viewer,
           leasehold_operator;
    grant execute on function leasehold.contract()
        to leasehold_producer, leasehold_worker, leasehold_housekeeper, leasehold_viewer,
           leasehold_operator;

    -- A producer adds work and sees nothing.
    grant insert (name, kwargs, queue, priority, enqueued_at, scheduled_at, expires_at, tag,
                  max_attempts, trace_context)
        on leasehold.job to leasehold_producer;
    grant execute on function
        leasehold.enqueue(text, jsonb, text, int, timestamptz, timestamptz, text, int, text, interval, text),
        leasehold.enqueue_many(text[], jsonb[], text, int, timestamptz, timestamptz, text, int, text[], interval),
        leasehold.check_enqueue(text, jsonb, text),
        leasehold.check_options(text, int, timestamptz, text), leasehold.payload_hash(text, jsonb),
        leasehold.check_expiry(timestamptz, timestamptz), leasehold.check_kwargs_size(jsonb),
        leasehold.wake(text)
        to leasehold_producer, leasehold_worker;

    -- A worker claims from any queue and finishes under the fence. `complete_waiting` completes jobs that
    -- wait: a role that works is trusted with all jobs. It cannot touch a row in any other way.
    grant execute on function
        leasehold.queue_settings(text),
        leasehold.claim_next(text, text, int, interval, uuid, text[], int, int, int, boolean,
                             int[], timestamptz[], bigint[]),
        leasehold.claim_alone(text, text, interval, uuid, text[], int),
        leasehold.claim_around(text, text, int, interval, uuid, text[], int),
        leasehold.lanes(text, text[]), leasehold.last_chance_waits(text, text[]),
        leasehold.claim_lanes(text, text, int, interval, uuid, text[], int[], timestamptz[], bigint[]),
        leasehold.claim_lost(text, text, interval, uuid, text[], boolean),
        leasehold.lost_priority(text, text[], int), leasehold.has_put_off(text),
        leasehold.claim(text, text, int, interval, text[], uuid),
        leasehold.recover_claim(text, uuid), leasehold.renew(bigint[]),
        leasehold.cancel_requests(bigint[]), leasehold.check_lease(bigint, bigint),
        leasehold.complete_many(bigint[], bigint, boolean), leasehold.complete(bigint, bigint),
        leasehold.settle(bigint, bigint[]), leasehold.complete_waiting(bigint[]),
        leasehold.fail(bigint, bigint, text, interval), leasehold.bury(bigint, bigint, text, text),
        leasehold.record_failure(bigint, bigint, text, interval, boolean),
        leasehold.ended_as(bigint, bigint),
        leasehold.snooze(bigint, bigint, interval), leasehold.release(bigint[], bigint),
        leasehold.finish_cancelled(bigint, bigint, text), leasehold.explain_finish(bigint[], bigint),
        leasehold.expire_leases(int), leasehold.rescue(int, boolean), leasehold.return_expired(bigint, int),
        leasehold.bury_expired(bigint, int), leasehold.once_start(text, text, bigint, bigint, interval),
        leasehold.once_finish(text, text, jsonb), leasehold.once_forget(text, text),
        leasehold.register_worker(text, text, text, int, text, text[], text[], int, int, boolean),
        leasehold.unregister_worker(text),
        leasehold.begin_idle(text), leasehold.end_idle(text),
        leasehold.next_due(text, text[], int[], interval)
        to leasehold_worker;

    -- Its sweeps claim rows of tables of other roles: their owners grant that right.
    grant execute on function
        leasehold.next_claim(), leasehold.begin_sweep(text),
        leasehold.close_sweep(text, timestamptz, timestamptz, interval),
        leasehold.count_sweep(text, bigint, bigint, bigint, bigint),
        leasehold.fail_swept(text, text[], text[], boolean[], bigint, int, interval, interval)
        to leasehold_worker;
    grant execute on function
        leasehold.declare_sweep(text, text, text, text, text, text, text, text, text, text, text,
                                int, int, interval, interval, bigint, text, text, interval, timestamptz),
        leasehold.take_watch(text), leasehold.note_watch(text, bigint), leasehold.note_due(text, bigint),
        leasehold.note_claimed(text, bigint, bigint, bigint, timestamptz),
        leasehold.run_sweep(text, text)
        to leasehold_worker, leasehold_housekeeper;
    grant select, update, delete on leasehold.sweep_failure to leasehold_worker, leasehold_housekeeper;

    -- A receiver of alarm notifications registers itself.
    grant execute on function leasehold.declare_alarm_receiver(text), leasehold.alarm_is_over(bigint),
        leasehold.note_alarm_delivery(bigint, text)
        to leasehold_worker;

    -- A role that changes a mirrored table enqueues jobs; a role that runs the mirror reads rows and
    -- calls the store.
    grant execute on function
        leasehold.mirror_changed(text, text[]), leasehold.mirror_removed(text, text[], bigint[]),
        leasehold.mirror_saved(text, text[], bigint[], bigint[]),
        leasehold.mirror_revived(text, text[]),
        leasehold.mirror_reindex(text, text[], text, int, boolean)
        to leasehold_producer, leasehold_worker;
    grant execute on function
        leasehold.fingerprint(text, bigint),
        leasehold.declare_mirror(text, text, text, text, text, text, text, text, interval, interval,
                                 interval, int, int),
        leasehold.mirror_entomb(text, text, bigint),
        leasehold.put_off(bigint[], bigint, float8[], text[], boolean[]),
        leasehold.mirror_recovered(text, int), leasehold.take_check(text),
        leasehold.end_check(text, bigint, text, bigint, bigint, interval),
        leasehold.publish_check(text, timestamptz, bigint, bigint),
        leasehold.mirror_differs(text, timestamptz, text[], text[], bigint[], bigint[]),
        leasehold.mirror_equal(text, text, text, text[], timestamptz),
        leasehold.mirror_seen(text, text[], timestamptz),
        leasehold.mirror_old_gone(text, int), leasehold.mirror_forgotten(text, text[], bigint[]),
        leasehold.mirror_tally(text, text, text[], text[], bigint[]),
        leasehold.mirror_prune(text, int), leasehold.mirror_serves(text, text),
        leasehold.mirror_adopts(text, text, text),
        leasehold.begin_rebuild(text, text),
        leasehold.note_rebuild(text, text, text, text, bigint), leasehold.note_swap(text, text),
        leasehold.drop_second(text)
        to leasehold_worker;
    grant select on leasehold.mirror, leasehold.mirror_gone, leasehold.mirror_difference
        to leasehold_worker;

    -- A housekeeper reclaims, prunes and fires schedules; a worker process that does both has both
    -- roles.
    grant execute on function
        leasehold.expire_leases(int), leasehold.rescue(int, boolean),
        leasehold.return_expired(bigint, int), leasehold.bury_expired(bigint, int), leasehold.clamp_leases(), leasehold.expire_jobs(bigint, int),
        leasehold.return_strays(bigint, bigint), leasehold.walk_jobs(interval, int),
        leasehold.prune(int, interval, interval), leasehold.prune_kind(text, int, interval, boolean, text),
        leasehold.prune_measures(int), leasehold.extend_history(int), leasehold.drop_history(interval),
        leasehold.housekeep(interval, interval, interval),
        leasehold.fire_schedule(text, timestamptz, timestamptz, bigint, boolean),
        leasehold.retire_schedule(text, text), leasehold.undeclared_schedules(),
        leasehold.sample_due(), leasehold.take_sample(), leasehold.begin_sample(),
        leasehold.measure_part(text, timestamptz), leasehold.end_sample(timestamptz),
        leasehold.recount_queues(timestamptz, bigint), leasehold.measured_sweeps(),
        leasehold.measure_sweep(text, timestamptz, boolean),
        leasehold.alarm_snapshot(timestamptz),
        leasehold.apply_alarms(timestamptz, jsonb, text[])
        to leasehold_housekeeper;
    grant select, insert, update, delete on leasehold.schedule to leasehold_housekeeper;
    grant select on leasehold.schema_version to leasehold_worker, leasehold_housekeeper,
        leasehold_producer, leasehold_viewer, leasehold_operator;

    -- An operator cancels, redrives, deletes and pauses; the audit log records each action.
    grant execute on function
        leasehold.cancel(bigint, text, text), leasehold.promote(bigint[], text, text),
        leasehold.redrive(bigint[], text, text), leasehold.delete_jobs(bigint[], text, text),
        leasehold.update_job(bigint, text, text, int, timestamptz, timestamptz, text, int),
        leasehold.error_fingerprint(text),
        leasehold.pause(text, text, text), leasehold.resume(text, text, text),
        leasehold.set_queue(text, text, text, interval, int, int, int, interval, interval, interval, boolean,
                            text, text),
        leasehold.add_schedule(text, text, text, text, text, jsonb, int, text, timestamptz, text, text, boolean),
        leasehold.pause_schedule(text, text, text), leasehold.resume_schedule(text, text, text),
        leasehold.remove_schedule(text, text, text), leasehold.run_schedule(text, text, text),
        leasehold.wake(text),
        leasehold.run_sweep(text, text), leasehold.pause_sweep(text, text, text),
        leasehold.resume_sweep(text, text), leasehold.redrive_sweep(text, text[], text, int),
        leasehold.take_watch(text), leasehold.note_watch(text, bigint),
        leasehold.watch_sweep(text, text), leasehold.forget_sweep(text, text),
        leasehold.acknowledge_alarm(bigint, text, text), leasehold.test_alarm(text),
        leasehold.silence_alarm(bigint, interval, text, text),
        leasehold.watch_queue(text, text, boolean, bigint, interval, bigint, text[], interval, bigint, bigint),
        leasehold.unwatch_queue(text, text),
        leasehold.order_mirror(text, text, text),
        leasehold.mirror_reindex(text, text[], text, int, boolean)
        to leasehold_operator;
    -- An operator who decides about a dead job needs its kwargs and its errors.
    grant select on leasehold.job, leasehold.dead_job, leasehold.finished_job, leasehold.jobs,
        leasehold.lease, leasehold.sweep_failure to leasehold_operator;
    if not pg_has_role('leasehold_operator', 'leasehold_viewer', 'member') then
        grant leasehold_viewer to leasehold_operator;
    end if;

    -- A viewer sees everything but kwargs, error texts, notes and trace contexts.
    grant select (id, queue, name, state, cause, priority, tag, idempotency_key, enqueued_at, scheduled_at,
                  expires_at, claimed_at, finished_at, attempts, max_attempts, lost_count, worker,
                  lease_generation, lease_expires_at, cancel_requested, stored_in)
        on leasehold.jobs to leasehold_viewer;
    grant execute on function leasehold.queue_names(), leasehold.finished_at(bigint) to leasehold_viewer;
    grant select on leasehold.queue, leasehold.queue_state, leasehold.worker_state,
        leasehold.schedule, leasehold.audit, leasehold.sweep, leasehold.sweep_state,
        leasehold.mirror, leasehold.mirror_state, leasehold.mirror_gone, leasehold.mirror_difference
        to leasehold_viewer;
    grant select on leasehold.measure, leasehold.measure_hour, leasehold.watch, leasehold.alarm,
        leasehold.alarm_state, leasehold.alarm_receiver, leasehold.duty to leasehold_viewer;
    grant execute on function leasehold.latest(), leasehold.measured(), leasehold.mirror_numbers(),
        leasehold.tag_subject(text, text),
        leasehold.vacuum_holders(), leasehold.undeclared_schedules(),
        leasehold.series(text, text[], text, interval, interval) to leasehold_viewer;
    grant select (sweep, key, claim, attempts, failed_at, retry_at, dead_at)
        on leasehold.sweep_failure to leasehold_viewer;
    grant select (id, queue, name, tag, priority, enqueued_at, scheduled_at, expires_at, attempts,
                  max_attempts, lost_count, held)
        on leasehold.job to leasehold_viewer;
end $$;
