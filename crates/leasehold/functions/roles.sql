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

    revoke all on all functions in schema leasehold, leasehold_internal from public;
    if not exists (select from pg_roles where rolname = 'leasehold_operator') then
        return;
    end if;

    grant usage on schema leasehold, leasehold_internal
        to leasehold_producer, leasehold_worker, leasehold_housekeeper, leasehold_viewer,
           leasehold_operator;
    grant execute on function
        leasehold.contract
        to leasehold_producer, leasehold_worker, leasehold_housekeeper, leasehold_viewer, leasehold_operator;

    -- A producer adds work and sees nothing.
    grant insert (name, kwargs, queue, priority, enqueued_at, scheduled_at, expires_at, tag,
                  max_attempts, trace_context)
        on leasehold.job to leasehold_producer;
    grant execute on function
        leasehold.enqueue, leasehold.enqueue_many, leasehold_internal.check_enqueue,
        leasehold_internal.check_options, leasehold_internal.request_hash, leasehold_internal.check_expiry,
        leasehold_internal.check_kwargs_size, leasehold.wake
        to leasehold_producer, leasehold_worker;

    -- A worker claims from any queue and finishes under the fence. `complete_waiting` completes jobs that
    -- wait: a role that works is trusted with all jobs. It cannot touch a row in any other way.
    grant execute on function
        leasehold_internal.queue_settings, leasehold_internal.claim_next, leasehold_internal.claim_alone,
        leasehold_internal.claim_around, leasehold_internal.lost_priority, leasehold_internal.has_deferred,
        leasehold.claim, leasehold_internal.recover_claim, leasehold.renew, leasehold_internal.cancel_requests,
        leasehold.check_lease, leasehold.complete_many, leasehold.complete, leasehold_internal.settle,
        leasehold.complete_waiting, leasehold.fail, leasehold.bury, leasehold_internal.record_failure,
        leasehold_internal.ended_as, leasehold.snooze, leasehold.defer, leasehold_internal.defer_many,
        leasehold.release, leasehold.finish_cancelled,
        leasehold_internal.explain_finish, leasehold_internal.reclaim_leases, leasehold_internal.reclaim,
        leasehold_internal.reclaim_waiting, leasehold_internal.reclaim_dead, leasehold.once_start,
        leasehold.once_finish, leasehold.once_forget, leasehold_internal.register_worker, leasehold_internal.announce_worker,
        leasehold_internal.unregister_worker, leasehold_internal.begin_idle, leasehold_internal.end_idle,
        leasehold_internal.next_due
        to leasehold_worker;

    -- Its sweeps claim rows of tables of other roles: their owners grant that right.
    grant execute on function
        leasehold_internal.next_claim, leasehold_internal.begin_sweep, leasehold_internal.close_sweep,
        leasehold_internal.count_sweep, leasehold_internal.fail_swept
        to leasehold_worker;
    grant execute on function
        leasehold_internal.declare_sweep, leasehold_internal.begin_watchdog, leasehold_internal.note_watchdog,
        leasehold_internal.note_due, leasehold_internal.note_claimed, leasehold.run_sweep
        to leasehold_worker, leasehold_housekeeper;
    grant select, update, delete on
        leasehold_internal.sweep_failure
        to leasehold_worker, leasehold_housekeeper;

    -- A receiver of alarm notifications registers itself.
    grant execute on function
        leasehold_internal.declare_alarm_receiver, leasehold_internal.alarm_has_cleared,
        leasehold_internal.note_alarm_delivery
        to leasehold_worker;

    -- A role that changes a mirrored table enqueues jobs; a role that runs the mirror reads rows and
    -- calls the store.
    grant execute on function
        leasehold_internal.mirror_changed, leasehold_internal.mirror_removed, leasehold_internal.mirror_saved,
        leasehold_internal.mirror_restored, leasehold.reindex_mirror
        to leasehold_producer, leasehold_worker;
    grant execute on function
        leasehold_internal.fingerprint, leasehold_internal.declare_mirror, leasehold_internal.mirror_entomb,
        leasehold_internal.mirror_recovered, leasehold_internal.claim_check,
        leasehold_internal.end_check, leasehold_internal.publish_check, leasehold_internal.mirror_differs,
        leasehold_internal.mirror_equal, leasehold_internal.mirror_seen, leasehold_internal.mirror_old_gone,
        leasehold_internal.mirror_forgotten, leasehold_internal.mirror_tally,
        leasehold_internal.mirror_serves, leasehold_internal.mirror_adopts, leasehold_internal.begin_rebuild,
        leasehold_internal.note_rebuild, leasehold_internal.note_swap, leasehold_internal.drop_second
        to leasehold_worker;
    grant select on
        leasehold_internal.mirror, leasehold_internal.mirror_gone, leasehold_internal.mirror_difference
        to leasehold_worker;

    -- A housekeeper reclaims, prunes and fires schedules; a worker process that does both has both
    -- roles.
    grant execute on function
        leasehold_internal.reclaim_leases, leasehold_internal.reclaim, leasehold_internal.reclaim_waiting,
        leasehold_internal.reclaim_dead, leasehold_internal.clamp_leases, leasehold_internal.expire_jobs,
        leasehold_internal.return_strays, leasehold_internal.walk_jobs, leasehold_internal.prune,
        leasehold_internal.prune_kind, leasehold_internal.prune_measures, leasehold_internal.extend_history,
        leasehold_internal.drop_history, leasehold.housekeep, leasehold_internal.fire_schedule,
        leasehold_internal.retire_schedule, leasehold_internal.undeclared_schedules,
        leasehold_internal.sample_due, leasehold_internal.sample, leasehold_internal.begin_sample,
        leasehold_internal.measure_part, leasehold_internal.end_sample, leasehold_internal.recount_queues,
        leasehold_internal.alarm_snapshot, leasehold_internal.apply_alarms
        to leasehold_housekeeper;
    grant select, insert, update, delete on
        leasehold_internal.schedule
        to leasehold_housekeeper;
    grant select on
        leasehold.schema_version
        to leasehold_worker, leasehold_housekeeper, leasehold_producer, leasehold_viewer, leasehold_operator;

    -- An operator cancels, redrives, deletes and pauses; the audit log records each action.
    grant execute on function
        leasehold.cancel, leasehold.promote, leasehold.redrive, leasehold.delete_jobs, leasehold.update_job,
        leasehold_internal.error_fingerprint, leasehold.pause, leasehold.resume, leasehold.set_queue,
        leasehold.add_schedule, leasehold.pause_schedule, leasehold.resume_schedule,
        leasehold.remove_schedule, leasehold.run_schedule, leasehold.wake, leasehold.run_sweep,
        leasehold.pause_sweep, leasehold.resume_sweep, leasehold.redrive_sweep,
        leasehold_internal.begin_watchdog, leasehold_internal.note_watchdog, leasehold_internal.run_watchdog,
        leasehold.forget_sweep, leasehold.acknowledge_alarm, leasehold_internal.test_alarm, leasehold.silence_alarm,
        leasehold.watch_queue, leasehold.unwatch_queue, leasehold.order_mirror, leasehold.reindex_mirror,
        leasehold_internal.forget_mirror, leasehold_internal.reset_mirror_equality
        to leasehold_operator;
    -- An operator who decides about a dead job needs its kwargs and its errors.
    grant select on
        leasehold.job, leasehold_internal.dead_job, leasehold_internal.finished_job, leasehold.jobs,
        leasehold_internal.lease, leasehold_internal.sweep_failure
        to leasehold_operator;
    if not pg_has_role('leasehold_operator', 'leasehold_viewer', 'member') then
        grant leasehold_viewer to leasehold_operator;
    end if;

    -- A viewer sees everything but kwargs, error texts, notes and trace contexts.
    grant select (id, queue, name, state, cause, priority, tag, idempotency_key, enqueued_at, scheduled_at,
                  expires_at, claimed_at, finished_at, attempts, max_attempts, lost_count, worker,
                  lease_generation, lease_expires_at, cancel_requested, stored_in, deferred)
        on leasehold.jobs to leasehold_viewer;
    grant execute on function
        leasehold_internal.queue_names, leasehold_internal.finished_at
        to leasehold_viewer;
    grant select on
        leasehold_internal.queue, leasehold.queues, leasehold.workers, leasehold.schedules,
        leasehold_internal.schedule, leasehold.audit, leasehold_internal.sweep, leasehold.sweeps,
        leasehold_internal.mirror, leasehold.mirrors, leasehold_internal.mirror_gone,
        leasehold_internal.mirror_difference
        to leasehold_viewer;
    grant select on
        leasehold_internal.measure, leasehold_internal.measure_hour, leasehold_internal.watch,
        leasehold_internal.alarm, leasehold.alarms, leasehold_internal.alarm_receiver, leasehold_internal.duty
        to leasehold_viewer;
    grant execute on function
        leasehold_internal.latest, leasehold_internal.measured, leasehold_internal.mirror_numbers,
        leasehold_internal.tag_subject, leasehold_internal.vacuum_holders,
        leasehold_internal.undeclared_schedules, leasehold_internal.series
        to leasehold_viewer;
    grant select (sweep, key, claim, attempts, failed_at, retry_at, dead_at)
        on leasehold_internal.sweep_failure to leasehold_viewer;
    grant select (id, queue, name, tag, priority, enqueued_at, scheduled_at, expires_at, attempts,
                  max_attempts, lost_count, held, deferred)
        on leasehold.job to leasehold_viewer;
end $$;
