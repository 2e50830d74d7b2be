-- Which sets of documents a mirror has, how far a rebuild is, and the orders of operators.

-- Records which set of documents is searched, if none is recorded yet. Returns the recorded one.
create or replace function leasehold.mirror_serves(of_name text, of_serving text)
returns text
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    update leasehold.mirror m set serving = of_serving where m.name = of_name and m.serving is null;
    return (select m.serving from leasehold.mirror m where m.name = of_name);
end $$;

-- Records that the store searches another set: it was lost and created anew, or an operator swapped it
-- by hand. The check fills what is missing, in a new round: ranges that were compared with the former
-- set prove nothing about this one.
create or replace function leasehold.mirror_adopts(of_name text, of_former text, of_serving text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    update leasehold.mirror m
       set serving = of_serving,
           second = case when m.second = of_serving then m.serving else m.second end,
           adopted_at = statement_timestamp(), check_token = leasehold.next_generation(),
           check_after = null, check_busy_until = null, check_due_at = statement_timestamp()
     where m.name = of_name and m.serving = of_former
       and (m.phase = 'none' or (m.phase = 'swapped' and m.second = of_serving));
    return found;
end $$;

-- Begins a rebuild: from now on every write goes to the second set too. Returns false if there is one
-- already.
create or replace function leasehold.begin_rebuild(of_name text, of_second text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    update leasehold.mirror m
       set second = of_second, phase = 'building', rebuild_after = null, rebuild_rows = 0,
           rebuild_started_at = statement_timestamp(), rebuild_ended_at = null
     where m.name = of_name and m.phase = 'none';
    return found;
end $$;

-- Records that the second set has the rows up to a key; null: all. Returns false if another worker has
-- continued from there.
create or replace function leasehold.note_rebuild(
    of_name text, of_second text, from_key text, to_key text, more_rows bigint
)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    update leasehold.mirror m
       set rebuild_after = to_key, rebuild_rows = m.rebuild_rows + more_rows,
           phase = case when to_key is null then 'verifying' else 'building' end
     where m.name = of_name and m.second = of_second and m.phase = 'building'
       and m.rebuild_after is not distinct from from_key;
    return found;
end $$;

-- Records that searches use the second set; the former one is kept and still gets every write. A call
-- with the former set swaps back; a repeated call changes nothing and returns false.
create or replace function leasehold.note_swap(of_name text, to_set text)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    update leasehold.mirror m
       set serving = m.second, second = m.serving, phase = 'swapped',
           rebuild_ended_at = coalesce(m.rebuild_ended_at, statement_timestamp())
     where m.name = of_name and m.second = to_set and m.phase in ('verifying', 'swapped');
    return found;
end $$;

-- Ends writes to the second set. Returns its name; null: there was none.
create or replace function leasehold.drop_second(of_name text)
returns text
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    dropped text;
begin
    select m.second into dropped from leasehold.mirror m where m.name = of_name for update;
    update leasehold.mirror m
       set second = null, phase = 'none', rebuild_after = null
     where m.name = of_name and m.second is not null;
    return dropped;
end $$;

-- Orders a worker that has the store to do something with it. Ordered twice, it is done once. A
-- rollback names its set: a second worker that repeats it, after the first one died, must not swap
-- again. Returns the id of the job; null: there is no such mirror.
create or replace function leasehold.order_mirror(of_name text, what text, actor text)
returns bigint
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    m leasehold.mirror;
    made bigint;
begin
    if what not in ('check', 'rebuild', 'rollback', 'drop') then
        raise exception 'a mirror cannot be told to %', quote_literal(what)
            using errcode = 'LH002', hint = 'Use check, rebuild, rollback or drop.';
    end if;
    select * into m from leasehold.mirror where name = of_name;
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
        key => 'mirror-order:' || m.name || ':' || what, key_for => interval '0') e;
    insert into leasehold.audit (actor, action, subject) values (actor, what, 'mirror ' || m.name);
    return made;
end $$;

-- Mirrors with their state by name.
create or replace view leasehold.mirror_state as
select m.name, m.table_name, m.queue, m.job_name, m.phase, m.serving, m.second, m.rebuild_rows,
       m.rebuild_started_at, m.rebuild_ended_at, m.round_started_at, m.round_rows, m.checked_at,
       m.rows_checked, m.repaired, m.repaired_total, m.rounds, m.equal_as_of,
       d.found as differences, d.oldest as oldest_difference,
       (select count(*) from leasehold.mirror_gone g where g.mirror = m.name) as tombstones
  from leasehold.mirror m
 cross join lateral (
        select count(*) as found, min(first_seen) as oldest
          from leasehold.mirror_difference f where f.mirror = m.name) d;
