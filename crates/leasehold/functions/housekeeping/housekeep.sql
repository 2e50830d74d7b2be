-- Runs one bounded round of housekeeping in plain SQL, for consumers in other languages that run no
-- worker of the library. Call it every minute, from cron or pg_cron, as a member of
-- leasehold_housekeeper; several callers at once share the work.
--
-- Returns one row per duty: how much it did, and the error if it failed. A duty that fails stops no
-- other. `budget`: no duty begins another piece after that time. Schedules, samples and alarms need a
-- worker of the library or `leasehold console`: cron patterns and alarm rules are not SQL.
create or replace function leasehold.housekeep(
    budget interval default interval '5 seconds',
    keep_history interval default interval '7 days',
    keep_dead interval default null
)
returns table (duty text, done bigint, error text)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_variable
declare
    began timestamptz := clock_timestamp();
    deadline timestamptz := began + budget;
    piece bigint;
    more boolean;
    next_from text;
begin
    perform leasehold_internal.check_time('budget', budget), leasehold_internal.check_time('keep_history', keep_history),
            leasehold_internal.check_time('keep_dead', keep_dead);
    foreach duty in array array['reclaim', 'clamp_leases', 'walk_jobs', 'prune_leases', 'prune_keys',
                                'prune_marks', 'prune_workers', 'prune_dead', 'prune_queues', 'prune_limits',
                                'prune_batches', 'prune_results', 'prune_measures', 'extend_history', 'drop_history',
                                -- Last: it locks batches until this transaction ends.
                                'look_at_batches'] loop
        done := 0;
        error := null;
        next_from := null;
        begin
            loop
                more := false;
                case
                    when duty = 'reclaim' then
                        select e.returned + e.buried, e.returned + e.buried > 0 into piece, more
                          from leasehold_internal.reclaim_leases(200) e;
                    when duty = 'clamp_leases' then
                        piece := leasehold_internal.clamp_leases();
                    when duty = 'walk_jobs' then
                        -- Walk the next piece at once, whenever the last one was: here the budget
                        -- limits the pace.
                        select w.expired + w.strays into piece
                          from leasehold_internal.walk_jobs(interval '-1 day') w;
                        more := clock_timestamp() < began + budget / 4
                                and (select d.after_id > 0 from leasehold_internal.duty d where d.name = 'walk_jobs');
                    when duty = 'look_at_batches' then
                        select l.closed, l.more into piece, more
                          from leasehold_internal.look_at_batches(interval '-1 day', budget / 4) l;
                    when duty = 'prune_measures' then
                        piece := leasehold_internal.prune_measures();
                    when duty = 'extend_history' then
                        piece := leasehold_internal.extend_history();
                    when duty = 'drop_history' then
                        piece := leasehold_internal.drop_history(keep_history);
                    else
                        select p.removed, p.more, p.reached into piece, more, next_from
                          from leasehold_internal.prune_kind(
                            substr(duty, 7), keep => case when duty = 'prune_dead' then keep_dead
                                              when duty in ('prune_batches', 'prune_results') then keep_history end,
                            after => next_from) p;
                end case;
                done := done + piece;
                exit when not more or clock_timestamp() > deadline;
            end loop;
        exception when others then
            error := sqlerrm;
        end;
        return next;
    end loop;
end $$;
