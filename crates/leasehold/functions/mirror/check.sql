-- What the check of a mirror stores: its cursor, what it found, its counts and which deletions may be
-- forgotten.

-- Takes the next range of a mirror's check. Returns no row if the range is not due or is being checked.
-- A checker that dies blocks the range for two minutes.
create or replace function leasehold_internal.claim_check(name text)
returns table (token bigint, after text, round_started_at timestamptz)
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold_internal.mirror m
       set check_token = leasehold_internal.next_generation(),
           check_busy_until = statement_timestamp() + interval '2 minutes',
           round_started_at = case when m.check_after is null then statement_timestamp()
                                   else m.round_started_at end,
           round_rows = case when m.check_after is null then 0 else m.round_rows end,
           round_repaired = case when m.check_after is null then 0 else m.round_repaired end
     where m.name = claim_check.name
       and (m.check_due_at <= statement_timestamp()
            -- The clock was set back.
            or m.check_due_at > statement_timestamp() + m.check_every + interval '1 minute')
       and (m.check_busy_until is null or m.check_busy_until <= statement_timestamp()
            or m.check_busy_until > statement_timestamp() + interval '10 minutes')
    returning m.check_token, m.check_after, m.round_started_at
$$;

-- Ends a range of the check. `next_after` null: the round is over, and its result is published. Returns
-- false if it took too long, and another worker has taken the range.
create or replace function leasehold_internal.end_check(
    name text, token bigint, next_after text, rows bigint, repaired bigint,
    pause interval
)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
declare
    m leasehold_internal.mirror;
begin
    update leasehold_internal.mirror c
       set check_after = next_after, check_busy_until = null,
           check_due_at = statement_timestamp() + pause,
           round_rows = c.round_rows + end_check.rows, round_repaired = c.round_repaired + end_check.repaired
     where c.name = end_check.name and c.check_token = end_check.token
    returning * into m;
    if not found then
        return false;
    end if;
    if next_after is null then
        perform leasehold_internal.publish_check(end_check.name, m.round_started_at, m.round_rows, m.round_repaired);
    end if;
    return true;
end $$;

-- Publishes the result of a whole round: equal as of its start, if no difference is left, and if the
-- store has searched one set all that time. A comparison with a set that was lost since proves nothing.
create or replace function leasehold_internal.publish_check(
    name text, began timestamptz, rows bigint, repaired bigint
)
returns timestamptz
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold_internal.mirror m
       set compared_at = statement_timestamp(), rows_compared = publish_check.rows, repaired = publish_check.repaired,
           repaired_total = m.repaired_total + publish_check.repaired, rounds = m.rounds + 1,
           differences = d.found, oldest_difference = d.oldest,
           equal_as_of = case when d.found = 0 and (m.adopted_at is null or m.adopted_at < began)
                              then greatest(m.equal_as_of, began) else m.equal_as_of end
      from (select count(*) as found, min(first_seen) as oldest
              from leasehold_internal.mirror_difference where mirror = publish_check.name) d
     where m.name = publish_check.name
    returning m.equal_as_of
$$;

-- Returns which of these rows have jobs. For jobs that change the row: since when the oldest waits,
-- which version the row had before it and whether that was a deletion; `known` false: one of them does
-- not record the version. Jobs are read once, by their queue, and joined with the rows, never once per
-- row.
create or replace function leasehold_internal.mirror_waiting(mirror text, keys text[])
returns table (key text, since timestamptz, before numeric, gone boolean, known boolean)
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off
set enable_nestloop = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    m leasehold_internal.mirror;
begin
    if cardinality(keys) = 0 then
        return;
    end if;
    select * into m from leasehold_internal.mirror w where w.name = mirror_waiting.mirror;
    return query
    select n.key, min(n.at), min(n.before), (array_agg(n.gone order by n.before))[1],
           coalesce(bool_and(n.before is not null) filter (where n.at is not null), false)
      from (select k.key,
                   case when c.changes then j.enqueued_at end as at,
                   case when c.changes and jsonb_typeof(j.kwargs -> 'before') = 'number'
                        then (j.kwargs -> 'before')::numeric end as before,
                   case when c.changes then j.kwargs ? 'gone' end as gone
              from unnest(keys) as k (key)
              join leasehold.job j
                on j.kwargs ->> m.job_field
                   = leasehold_internal.mirror_kwargs(m.key_kind, m.job_field, k.key) ->> m.job_field
             cross join lateral (select j.kwargs ? 'changed'
                     or j.idempotency_key = leasehold_internal.mirror_mark(m.name, k.key) as changes) c
             -- No job of a mirror has a limit key.
             where j.queue = m.queue and j.limit_key is null and j.name = m.job_name) n
     group by n.key;
end $$;

-- Records differences, and enqueues a job for each row that has none. A row that changed since the
-- round began is not a difference yet, because its own job will write it. But that is only so if no
-- older change waits, and if the store holds at least the version from before that job. Otherwise a
-- change that was made before the round is missing from the store, whether its job was completed, buried or cancelled. A row
-- that stays different gets another job a minute later, then after two, up to a day.
--
-- If more jobs wait than can be read in a second, every row that differs counts as different, and none
-- gets a job: it may have one.
create or replace function leasehold_internal.mirror_differs(
    mirror text, began timestamptz, keys text[], kinds text[], sources bigint[], held_versions bigint[]
)
returns table (different int, made int)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    m leasehold_internal.mirror;
    wanted text[];
    too_many boolean;
begin
    select * into m from leasehold_internal.mirror where name = mirror_differs.mirror;
    too_many := (select count(*) from (
        select from leasehold.job j where j.queue = m.queue and j.limit_key is null limit 500001) c) > 500000;
    with marked as materialized (
        select a.key, a.kind, a.source, a.held, j.enqueued_at as since
          from unnest(keys, kinds, sources, held_versions) as a (key, kind, source, held)
          left join leasehold_internal.idempotency_key i
            on i.queue = m.queue and i.key = leasehold_internal.mirror_mark(m.name, a.key)
          left join leasehold.job j on j.id = i.job_id
    ), asked as materialized (
        -- A mark names the newest job of a row; an older one may be running at the same time.
        select a.key, a.kind, a.source, a.held,
               a.since is not null or p.key is not null or too_many as has_job,
               coalesce(least(a.since, p.since) >= began and p.known
                        and ((p.gone and a.kind = 'missing') or coalesce(a.held, 0) >= p.before),
                        false) as is_on_its_way
          from marked a
          left join leasehold_internal.mirror_waiting(
                        m.name, array(select n.key from marked n
                                       where not too_many and (n.since is null or n.since >= began))) p
            on p.key = a.key
    ), noted as (
        insert into leasehold_internal.mirror_difference as d
            (mirror, key, kind, source_version, held_version, repairs, repaired_at)
        select m.name, a.key, a.kind, a.source, a.held,
               case when a.has_job then 0 else 1 end,
               case when a.has_job then null else statement_timestamp() end
          from asked a where not a.is_on_its_way
         order by a.key collate "C"
        on conflict (mirror, key) do update
            set kind = excluded.kind, source_version = excluded.source_version,
                held_version = excluded.held_version, last_seen = statement_timestamp(),
                repairs = case when excluded.repairs > 0 and (d.repaired_at is null
                    or d.repaired_at <= statement_timestamp()
                        - leasehold_internal.doubled(d.repairs, '1 minute', '1 day'))
                    then d.repairs + 1 else d.repairs end,
                repaired_at = case when excluded.repairs > 0 and (d.repaired_at is null
                    or d.repaired_at <= statement_timestamp()
                        - leasehold_internal.doubled(d.repairs, '1 minute', '1 day'))
                    then statement_timestamp() else d.repaired_at end
        returning d.key, d.repaired_at = statement_timestamp() as due
    )
    select count(*), coalesce(array_agg(n.key) filter (where n.due), '{}') into different, wanted
      from noted n;
    made := leasehold_internal.reindex_mirror(m.name, wanted, 'mirror.repair', 50);
    return next;
end $$;

-- Removes the differences of a range that was seen equal, except for the given keys. `looked` is the
-- database's time before the comparison began. A difference that was recorded since stays: another
-- check saw it after this one compared the row.
create or replace function leasehold_internal.mirror_equal(
    mirror text, after text, up_to text, but text[], looked timestamptz
)
returns void
language sql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    delete from leasehold_internal.mirror_difference d
     -- No key is empty. A range without an end gets the last difference as its end, so that the index
     -- finds both ends.
     where d.mirror = mirror_equal.mirror and d.key > coalesce(after, '')
       and d.key <= coalesce(up_to, (select max(l.key) from leasehold_internal.mirror_difference l
                                      where l.mirror = mirror_equal.mirror))
       and d.last_seen < looked
       and not exists (select from unnest(but) as b (key) where b.key = d.key)
$$;

-- Removes the differences of rows that were seen equal, and not before `looked`: see `mirror_equal`.
create or replace function leasehold_internal.mirror_seen(mirror text, keys text[], looked timestamptz)
returns void
language sql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    delete from leasehold_internal.mirror_difference d
     where d.mirror = mirror_seen.mirror and d.key = any (keys) and d.last_seen < looked
$$;

-- Returns deletions that are old enough to be forgotten.
create or replace function leasehold_internal.mirror_old_gone(mirror text, up_to int default 1000)
returns table (key text, version bigint)
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select g.key, g.version
      from leasehold_internal.mirror m
      join leasehold_internal.mirror_gone g on g.mirror = m.name
     where m.name = mirror_old_gone.mirror and g.gone_at < statement_timestamp() - m.tombstones
     order by g.gone_at limit up_to
$$;

-- Removes deletions that the store has forgotten. One that was renewed meanwhile stays.
create or replace function leasehold_internal.mirror_forgotten(mirror text, keys text[], versions bigint[])
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
declare
    gone int;
begin
    delete from leasehold_internal.mirror_gone g where g.ctid = any (array(
        select o.ctid from unnest(keys, versions) as f (key, version)
          join leasehold_internal.mirror_gone o on o.mirror = mirror_forgotten.mirror and o.key = f.key
                                       and o.version = f.version
           for update of o skip locked));
    get diagnostics gone = row_count;
    return gone;
end $$;

-- Records a deletion above a version, for a key without a tombstone or with an older one. One row per
-- call: a caller that locked several could deadlock with a transaction that locks them in another order.
-- Returns the version.
create or replace function leasehold_internal.mirror_entomb(mirror text, key text, above bigint)
returns bigint
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold_internal.mirror_gone as g (mirror, key, version)
    values (mirror_entomb.mirror, mirror_entomb.key, above + 1)
    on conflict (mirror, key) do update
        set version = greatest(g.version, excluded.version), gone_at = statement_timestamp()
    returning g.version
$$;

-- Counts what a pass did, for the measures of each minute.
create or replace function leasehold_internal.mirror_tally(
    mirror text, queue text, tags text[], events text[], counts bigint[]
)
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_column
begin
    insert into leasehold_internal.tally (queue, tag, what, n, subject)
    select mirror_tally.queue, t.tag, t.what, t.n, mirror_tally.mirror from unnest(tags, events, counts) as t (tag, what, n);
end $$;
