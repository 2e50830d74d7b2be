-- Which sets of documents a mirror has, how far a rebuild is, and the orders of operators.

-- Records which set of documents is searched, if none is recorded yet. Returns the recorded one.
create or replace function leasehold_internal.mirror_serves(name text, serving text)
returns text
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    update leasehold_internal.mirror m set serving = mirror_serves.serving where m.name = mirror_serves.name and m.serving is null;
    return (select m.serving from leasehold_internal.mirror m where m.name = mirror_serves.name);
end $$;

-- Records that the store searches another set: it was lost and created anew, or an operator swapped it
-- by hand. The check fills what is missing, in a new round: ranges that were compared with the former
-- set prove nothing about this one.
create or replace function leasehold_internal.mirror_adopts(name text, former text, serving text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    update leasehold_internal.mirror m
       set serving = mirror_adopts.serving,
           second = case when m.second = mirror_adopts.serving then m.serving else m.second end,
           adopted_at = statement_timestamp(), check_token = leasehold_internal.next_generation(),
           check_after = null, check_busy_until = null, check_due_at = statement_timestamp()
     where m.name = mirror_adopts.name and m.serving = mirror_adopts.former
       and (m.phase = 'none' or (m.phase = 'swapped' and m.second = mirror_adopts.serving));
    return found;
end $$;

-- Begins a rebuild: from now on every write goes to the second set too. Returns false if there is one
-- already.
create or replace function leasehold_internal.begin_rebuild(name text, second text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    update leasehold_internal.mirror m
       set second = begin_rebuild.second, phase = 'building', rebuild_after = null, rebuild_rows = 0,
           rebuild_started_at = statement_timestamp(), rebuild_ended_at = null
     where m.name = begin_rebuild.name and m.phase = 'none';
    return found;
end $$;

-- Records that the second set has the rows up to a key; null: all. Returns false if another worker has
-- continued from there.
create or replace function leasehold_internal.note_rebuild(
    name text, second text, key text, to_key text, rows bigint
)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    update leasehold_internal.mirror m
       set rebuild_after = to_key, rebuild_rows = m.rebuild_rows + note_rebuild.rows,
           phase = case when to_key is null then 'verifying' else 'building' end
     where m.name = note_rebuild.name and m.second = note_rebuild.second and m.phase = 'building'
       and m.rebuild_after is not distinct from note_rebuild.key;
    return found;
end $$;

-- Records that searches use the second set; the former one is kept and still gets every write. A call
-- with the former set swaps back; a repeated call changes nothing and returns false.
create or replace function leasehold_internal.note_swap(name text, to_set text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    update leasehold_internal.mirror m
       set serving = m.second, second = m.serving, phase = 'swapped',
           rebuild_ended_at = coalesce(m.rebuild_ended_at, statement_timestamp())
     where m.name = note_swap.name and m.second = to_set and m.phase in ('verifying', 'swapped');
    return found;
end $$;

-- Ends writes to the second set. Returns its name; null: there was none.
create or replace function leasehold_internal.drop_second(name text)
returns text
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
declare
    dropped text;
begin
    select m.second into dropped from leasehold_internal.mirror m where m.name = drop_second.name for update;
    update leasehold_internal.mirror m
       set second = null, phase = 'none', rebuild_after = null
     where m.name = drop_second.name and m.second is not null;
    return dropped;
end $$;

-- Orders a worker that has the store to do something with it. Ordered twice, it is done once. A
-- rollback names its set: a second worker that repeats it, after the first one died, must not swap
-- again. Returns the id of the job; null: there is no such mirror.
create or replace function leasehold_internal.order_mirror(name text, what text, actor text, why text default null)
returns bigint
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
declare
    m leasehold_internal.mirror;
    made bigint;
begin
    if coalesce(what not in ('check', 'rebuild', 'rollback', 'drop'), true) then
        raise exception 'what is %; it must be check, rebuild, rollback or drop', coalesce(quote_literal(what), 'null')
            using errcode = 'LH002', constraint = 'LH002', hint = 'Use one of these four words.';
    end if;
    select * into m from leasehold_internal.mirror where name = order_mirror.name;
    if not found then
        return null;
    end if;
    select e.job_id into made from leasehold.enqueue(
        name => 'mirror.' || m.name || '.order', kwargs => jsonb_build_object('do', what)
            || case when what = 'rollback' then
                   jsonb_build_object('to', case when m.phase = 'swapped' then m.second end)
               else '{}' end,
        queue => m.queue, tag => 'mirror.order', priority => 0,
        -- No mark of a row begins like this.
        key => 'mirror-order:' || m.name || ':' || what, key_ttl => interval '0') e;
    insert into leasehold.audit (actor, action, subject, detail) values (actor, what, 'mirror ' || m.name, why);
    return made;
end $$;

-- Removes a mirror with what is known of its rows. Triggers that are still on the table enqueue nothing then.
create or replace function leasehold_internal.forget_mirror(name text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    delete from leasehold_internal.mirror m where m.name = forget_mirror.name;
    if not found then
        return false;
    end if;
    delete from leasehold_internal.mirror_gone g where g.mirror = forget_mirror.name;
    delete from leasehold_internal.mirror_difference d where d.mirror = forget_mirror.name;
    insert into leasehold.audit (actor, action, subject, detail)
    values (forget_mirror.actor, 'forget', 'mirror ' || forget_mirror.name, why);
    return true;
end $$;

-- Forgets since when the store of a mirror is equal to its table: the store was replaced, or restored from a
-- backup. It counts as equal again after the next whole round of the check.
create or replace function leasehold_internal.reset_mirror_equality(name text, actor text, why text default null)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    update leasehold_internal.mirror m set equal_as_of = null where m.name = reset_mirror_equality.name;
    if not found then
        return false;
    end if;
    insert into leasehold.audit (actor, action, subject, detail)
    values (reset_mirror_equality.actor, 'reset', 'mirror ' || reset_mirror_equality.name, why);
    return true;
end $$;

-- Mirrors with their state by name. One subquery per number: the planner leaves out those that a reader does
-- not select.
create or replace view leasehold.mirrors as
select m.name, m.table_name, m.queue, m.job_name, m.phase, m.serving, m.second, m.rebuild_rows,
       m.rebuild_started_at, m.rebuild_ended_at, m.round_started_at, m.round_rows, m.compared_at,
       m.rows_compared, m.repaired, m.repaired_total, m.rounds, m.equal_as_of,
       (select count(*) from leasehold_internal.mirror_difference d where d.mirror = m.name) as differences,
       (select min(d.first_seen) from leasehold_internal.mirror_difference d where d.mirror = m.name)
           as oldest_difference,
       (select count(*) from leasehold_internal.mirror_gone g where g.mirror = m.name) as tombstones
  from leasehold_internal.mirror m;
