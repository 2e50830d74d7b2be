-- What the engine stores about a sweep besides the rows of its table. The library generates the
-- statements on those rows for each table; these functions keep the run, the failures and the counts.

-- Returns the number of a claim. Workers have the right to draw one here, but no other access to
-- generations.
create or replace function leasehold_internal.next_claim()
returns bigint
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select leasehold_internal.next_generation()
$$;

-- Returns the role that calls a function that runs with the owner's rights.
create or replace function leasehold_internal.calling_role()
returns text
language sql stable set search_path = leasehold, pg_temp as $$
    select case current_setting('role') when 'none' then session_user else current_setting('role') end
$$;

-- Returns the table that `name` names as schema.table, without quotes. Null: there is none.
create or replace function leasehold_internal.sweep_table(name text)
returns oid
language sql stable set search_path = leasehold, pg_temp as $$
    select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = split_part(name, '.', 1) and c.relname = substr(name, strpos(name, '.') + 1)
$$;

-- Declares a sweep. Repeating the same declaration changes nothing of its run: a deploy neither repeats
-- nor drops a night. A sweep that is due stays due, whatever its new schedule is.
--
-- Refuses a table without its schema, which would be another table to a session with another
-- `search_path`; a sweep of another role with a change of its table, columns or states; and a second
-- sweep whose claims the first one's watchdog would take for its own.
create or replace function leasehold_internal.declare_sweep(
    name text, table_name text, key_column text, key_type text, order_column text, status_column text,
    waiting text, claimed text, done text, claimed_at_column text, claim_column text,
    claim_size int, max_attempts int, after interval, check_every interval, most bigint,
    cron text, zone text, every interval, first_run timestamptz
)
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
declare
    caller text := leasehold_internal.calling_role();
    owner text;
    other text;
begin
    if position('.' in declare_sweep.table_name) = 0 then
        raise exception 'the table of sweep %, %, has no schema', declare_sweep.name, quote_literal(declare_sweep.table_name)
            using errcode = 'LH002', constraint = 'LH002', hint = 'Write it as schema.table.';
    end if;
    -- Otherwise a role without rights on the table could keep its owner from declaring a sweep of it.
    if not has_any_column_privilege(caller, leasehold_internal.sweep_table(declare_sweep.table_name), 'update') then
        raise exception 'role % may not update table % of sweep %', caller, declare_sweep.table_name, declare_sweep.name
            using errcode = 'insufficient_privilege',
                  hint = format('grant select, update on %s to %I', declare_sweep.table_name, caller);
    end if;
    perform from leasehold_internal.sweep s
      where s.name = declare_sweep.name and s.declared_by is not null
        and (s.table_name, s.key_column, s.order_column, s.status_column, s.waiting, s.claimed, s.done,
             s.claimed_at_column, s.claim_column)
            is not distinct from
            (declare_sweep.table_name, declare_sweep.key_column, declare_sweep.order_column, declare_sweep.status_column, declare_sweep.waiting, declare_sweep.claimed, declare_sweep.done,
             declare_sweep.claimed_at_column, declare_sweep.claim_column);
    if not found then
        -- Two concurrent declarations must see each other.
        lock table leasehold_internal.sweep in share row exclusive mode;
        -- A role that was dropped owns nothing; a role that the caller is a member of counts as the
        -- caller.
        select s.declared_by into owner from leasehold_internal.sweep s
          join pg_roles r on r.rolname = s.declared_by
         where s.name = declare_sweep.name and not pg_has_role(caller, r.oid, 'member');
        if found then
            raise exception 'sweep % belongs to role %; role % cannot change its table, columns or states',
                declare_sweep.name, owner, caller
                using errcode = 'LH002', constraint = 'LH002', hint = format(
                    'Choose another name for the sweep, or grant %I to %I.', owner, caller);
        end if;
        select s.name into other from leasehold_internal.sweep s
         where s.name <> declare_sweep.name and s.table_name = declare_sweep.table_name
           -- One that was declared before the table was there, by a role without a right on it, does not
           -- count.
           and coalesce((select has_any_column_privilege(r.oid, leasehold_internal.sweep_table(declare_sweep.table_name), 'update')
                           from pg_roles r where r.rolname = s.declared_by), true)
           and ((s.status_column = declare_sweep.status_column and s.claimed = declare_sweep.claimed)
                or (s.status_column <> declare_sweep.status_column
                    and (s.claim_column = declare_sweep.claim_column or s.claimed_at_column = declare_sweep.claimed_at_column)))
         order by s.name limit 1;
        if found then
            raise exception 'sweeps % and % of table % cannot tell their claims apart',
                declare_sweep.name, other, declare_sweep.table_name
                using errcode = 'LH002', constraint = 'LH002', hint = format(
                    'Give each its own claimed state, or its own claim and claimed_at columns. If no '
                    'worker has sweep %s any more, remove it: leasehold sweeps forget %s', other, other);
        end if;
    end if;
    insert into leasehold_internal.sweep as s
        (name, table_name, key_column, key_type, order_column, status_column, waiting, claimed, done,
         claimed_at_column, claim_column, claim_size, max_attempts, watchdog_after, watchdog_every,
         watchdog_most, cron, zone, every, next_run_at, declared_by)
    values (declare_sweep.name, declare_sweep.table_name, declare_sweep.key_column, declare_sweep.key_type, declare_sweep.order_column, declare_sweep.status_column, declare_sweep.waiting, declare_sweep.claimed,
            declare_sweep.done, declare_sweep.claimed_at_column, declare_sweep.claim_column, declare_sweep.claim_size, declare_sweep.max_attempts, after, check_every, most,
            declare_sweep.cron, declare_sweep.zone, declare_sweep.every, coalesce(first_run, statement_timestamp()), caller)
    on conflict (name) do update
        set table_name = excluded.table_name, key_column = excluded.key_column,
            key_type = excluded.key_type, order_column = excluded.order_column,
            status_column = excluded.status_column, waiting = excluded.waiting,
            claimed = excluded.claimed, done = excluded.done,
            claimed_at_column = excluded.claimed_at_column, claim_column = excluded.claim_column,
            claim_size = excluded.claim_size, max_attempts = excluded.max_attempts,
            watchdog_after = excluded.watchdog_after, watchdog_every = excluded.watchdog_every,
            watchdog_most = excluded.watchdog_most,
            next_run_at = case
                when s.next_run_at <= statement_timestamp() then s.next_run_at
                when (s.cron, s.zone, s.every) is not distinct from
                     (excluded.cron, excluded.zone, excluded.every) then s.next_run_at
                else excluded.next_run_at end,
            cron = excluded.cron, zone = excluded.zone, every = excluded.every,
            -- Keeps the first role as owner: workers under several roles declare the same sweep, and none may take
            -- it over.
            declared_by = case when exists (select from pg_roles r where r.rolname = s.declared_by)
                               then s.declared_by else excluded.declared_by end;
end $$;

-- Returns whether a sweep is due, and for which slot. The first worker that asks opens the run; later
-- ones join it. Writes nothing while there is nothing to do.
create or replace function leasehold_internal.begin_sweep(name text)
returns table (due boolean, slot timestamptz)
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
declare
    entry leasehold_internal.sweep;
begin
    select * into entry from leasehold_internal.sweep s where s.name = begin_sweep.name;
    due := found and entry.paused_at is null
           and (entry.next_run_at <= statement_timestamp()
                -- The clock was set back: the last run ended in what is now the future, and so its next
                -- time may be far away.
                or coalesce(entry.run_ended_at > statement_timestamp() + interval '1 minute', false));
    slot := entry.next_run_at;
    if due and (entry.run_started_at is null or entry.run_ended_at is not null) then
        update leasehold_internal.sweep s set run_started_at = statement_timestamp(), run_ended_at = null
         where s.name = begin_sweep.name and s.next_run_at = entry.next_run_at
           and (s.run_started_at is null or s.run_ended_at is not null);
    end if;
    return next;
end $$;

-- Ends the run that was due at `slot`; the next one is at `following`, or after a pause. Returns false
-- if it was ended already, another run was requested meanwhile, or the sweep is paused; look again.
create or replace function leasehold_internal.close_sweep(
    name text, slot timestamptz, following timestamptz, pause interval default null
)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    update leasehold_internal.sweep s
       set run_ended_at = statement_timestamp(),
           next_run_at = coalesce(following, statement_timestamp() + pause)
     where s.name = close_sweep.name and s.next_run_at = slot and s.paused_at is null;
    return found;
end $$;

-- Adds to the counts of a sweep. Returns whether its loops may continue: false while it is paused.
create or replace function leasehold_internal.count_sweep(
    name text, claimed bigint, finished bigint, failed bigint, lost bigint
)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
declare
    may_continue boolean;
begin
    if count_sweep.claimed = 0 and count_sweep.finished = 0 and count_sweep.failed = 0 and count_sweep.lost = 0 then
        return exists (select from leasehold_internal.sweep s where s.name = count_sweep.name and s.paused_at is null);
    end if;
    update leasehold_internal.sweep s
       set rows_claimed = s.rows_claimed + count_sweep.claimed,
           rows_finished = s.rows_finished + count_sweep.finished,
           rows_failed = s.rows_failed + count_sweep.failed, rows_lost = s.rows_lost + count_sweep.lost
     where s.name = count_sweep.name
    returning s.paused_at is null into may_continue;
    return coalesce(may_continue, false);
end $$;

-- Takes the next turn of a sweep's watchdog. Returns false if another worker took it less than an
-- interval ago. No lock is held: if the worker dies, another one takes the next turn.
create or replace function leasehold_internal.begin_watchdog(name text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    update leasehold_internal.sweep s set watchdog_ran_at = statement_timestamp()
     where s.name = begin_watchdog.name
       and (s.watchdog_ran_at is null
            or s.watchdog_ran_at <= statement_timestamp() - s.watchdog_every
            -- The clock was set back.
            or s.watchdog_ran_at > statement_timestamp() + s.watchdog_every);
    return found;
end $$;

-- Records how many rows the watchdog reset, and makes the sweep due: reset rows must not wait for the
-- next night.
create or replace function leasehold_internal.note_watchdog(name text, reset bigint)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold_internal.sweep s
       set rows_reset = s.rows_reset + note_watchdog.reset, watchdog_ran_at = statement_timestamp(),
           next_run_at = case when note_watchdog.reset > 0 then statement_timestamp() else s.next_run_at end
     where s.name = note_watchdog.name
$$;

-- Records how many rows are due, as a worker counted them with its own rights.
create or replace function leasehold_internal.note_due(name text, due bigint)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold_internal.sweep s set rows_due = due, due_counted_at = statement_timestamp()
     where s.name = note_due.name
$$;

-- Records how many rows are claimed, how many of them have no failure and how many should have been
-- reset, as a worker counted them with its own rights. Functions that run as the owner never read a
-- swept table: it may be a view, or have a policy, whose code would run as the owner too.
create or replace function leasehold_internal.note_claimed(
    sweep text, claimed bigint, unfailed bigint, stuck bigint, oldest timestamptz
)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold_internal.sweep s
       set claimed_now = note_claimed.claimed, unfailed_now = note_claimed.unfailed,
           stuck_now = note_claimed.stuck, oldest_claim_at = note_claimed.oldest,
           claims_counted_at = statement_timestamp()
     where s.name = note_claimed.sweep
$$;

-- Records that rows failed under a claim. The caller has made sure that the claim still holds them. A
-- row is dead if it has no attempt left, or if its handler reported a final failure. Returns for each
-- row how often it failed and whether it is dead.
create or replace function leasehold_internal.fail_swept(
    sweep text, keys text[], reasons text[], permanent boolean[], claim bigint, max_attempts int,
    base interval, cap interval
)
returns table (key text, attempts int, dead boolean)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
begin
    return query
    insert into leasehold_internal.sweep_failure as f
        (sweep, key, claim, attempts, last_error, retry_at, dead_at)
    select fail_swept.sweep, g.key, fail_swept.claim, 1, g.why,
           case when not g.final and max_attempts > 1
                then statement_timestamp() + leasehold_internal.backoff(1, base, cap) end,
           case when g.final or max_attempts <= 1 then statement_timestamp() end
      from unnest(keys, reasons, permanent) as g (key, why, final)
     order by g.key
    on conflict on constraint sweep_failure_pkey do update
        set attempts = f.attempts + 1, claim = excluded.claim, last_error = excluded.last_error,
            failed_at = statement_timestamp(),
            retry_at = case when excluded.dead_at is null and f.attempts + 1 < max_attempts
                            then statement_timestamp()
                                 + leasehold_internal.backoff(f.attempts + 1, base, cap) end,
            dead_at = case when excluded.dead_at is not null or f.attempts + 1 >= max_attempts
                           then statement_timestamp() end
      -- A failure that is reported twice counts once.
      where f.claim <> excluded.claim
    returning f.key, f.attempts, f.dead_at is not null;
end $$;

-- Makes a sweep due now. Returns false if there is no such sweep.
create or replace function leasehold.run_sweep(name text, actor text default null, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    -- Also when it is due already: a run that is about to end must notice, and look again.
    update leasehold_internal.sweep s set next_run_at = statement_timestamp() where s.name = run_sweep.name;
    if found and actor is not null then
        insert into leasehold.audit (actor, action, subject, detail)
        values (actor, 'run', 'sweep ' || run_sweep.name, why);
        return true;
    end if;
    return found;
end $$;

-- Stops a sweep's claims; loops finish their current batches. Returns false if it is paused already, or
-- there is no such sweep.
create or replace function leasehold.pause_sweep(name text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    update leasehold_internal.sweep s set paused_at = statement_timestamp(), paused_by = actor, paused_why = why
     where s.name = pause_sweep.name and s.paused_at is null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'pause', 'sweep ' || pause_sweep.name, why);
    return true;
end $$;

-- Resumes a sweep. Returns false if it was not paused.
create or replace function leasehold.resume_sweep(name text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    update leasehold_internal.sweep s set paused_at = null, paused_by = null, paused_why = null
     where s.name = resume_sweep.name and s.paused_at is not null;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (actor, 'resume', 'sweep ' || resume_sweep.name, why);
    return true;
end $$;

-- Makes the workers of a sweep run its watchdog now, with their own rights. Returns false if there is
-- no such sweep.
create or replace function leasehold_internal.run_watchdog(name text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    update leasehold_internal.sweep s set watchdog_ran_at = null where s.name = run_watchdog.name;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (run_watchdog.actor, 'run watchdog', 'sweep ' || run_watchdog.name, why);
    return true;
end $$;

-- Removes a sweep that no worker has any more, with the failures of its rows. Its table is left alone.
-- A worker that still has the sweep continues and counts nothing; its next start declares it anew.
-- Returns false if there is no such sweep.
create or replace function leasehold_internal.forget_sweep(name text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp set enable_seqscan = off as $$
begin
    delete from leasehold_internal.sweep s where s.name = forget_sweep.name;
    if not found then
        return false;
    end if;
    delete from leasehold_internal.sweep_failure f where f.sweep = forget_sweep.name;
    insert into leasehold.audit (actor, action, subject, detail)
    values (forget_sweep.actor, 'forget', 'sweep ' || forget_sweep.name, why);
    return true;
end $$;

-- Redrives dead rows: the watchdog, which alone may do that, resets them at its next turn, which is
-- now. Their failures are counted from the start. Null keys: all dead rows of the sweep. Returns the
-- keys.
create or replace function leasehold_internal.redrive_sweep(
    name text, keys text[], actor text, up_to int default 10000, why text default null
)
returns setof text
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
declare
    moved text[];
begin
    with picked as materialized (
        select f.key from leasehold_internal.sweep_failure f
         where f.sweep = redrive_sweep.name and f.dead_at is not null and (keys is null or f.key = any (keys))
         order by f.key limit up_to for update skip locked
    ), back as (
        update leasehold_internal.sweep_failure f
           set dead_at = null, attempts = 0, retry_at = statement_timestamp()
         where f.sweep = redrive_sweep.name and f.key = any (array(select p.key from picked p))
           and f.dead_at is not null
        returning f.key)
    select coalesce(array_agg(b.key order by b.key), '{}') into moved from back b;
    if moved <> '{}' then
        update leasehold_internal.sweep s set watchdog_ran_at = null where s.name = redrive_sweep.name;
        insert into leasehold.audit (actor, action, subject, detail)
        values (actor, 'redrive', cardinality(moved) || ' rows of sweep ' || redrive_sweep.name,
                concat_ws(': ', why, left(moved::text, 1000)));
    end if;
    return query select unnest(moved);
end $$;

-- Sweeps with their state by name and the rows that failed, each count up to ten thousand.
create or replace view leasehold.sweeps as
select s.name, s.table_name,
       case when s.paused_at is not null then 'paused'
            when s.run_started_at is not null and s.run_ended_at is null then 'running'
            when s.next_run_at <= statement_timestamp() then 'due'
            else 'idle' end as state,
       s.cron, s.zone, s.every, s.next_run_at, s.run_started_at, s.run_ended_at, s.watchdog_ran_at,
       s.paused_at, s.paused_by, s.paused_why, s.rows_claimed, s.rows_finished, s.rows_failed,
       s.rows_lost, s.rows_reset, 
       (select count(*) from (select from leasehold_internal.sweep_failure f
         where f.sweep = s.name and f.retry_at is not null limit 10000) c) as failing,
       (select count(*) from (select from leasehold_internal.sweep_failure f
         where f.sweep = s.name and f.dead_at is not null limit 10000) c) as dead
  from leasehold_internal.sweep s;
