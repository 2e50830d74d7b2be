-- What the check of a mirror keeps: its place, what it found, what is counted and what may be
-- forgotten.

-- Takes the next range of a mirror's check. No row: it is not due, or somebody is at it. Who takes it
-- and dies holds it up for two minutes.
create or replace function leasehold.take_check(of_name text)
returns table (token bigint, after text, round_started_at timestamptz)
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold.mirror m
       set check_token = leasehold.next_generation(),
           check_busy_until = statement_timestamp() + interval '2 minutes',
           round_started_at = case when m.check_after is null then statement_timestamp()
                                   else m.round_started_at end,
           round_rows = case when m.check_after is null then 0 else m.round_rows end,
           round_repaired = case when m.check_after is null then 0 else m.round_repaired end
     where m.name = of_name
       and (m.check_due_at <= statement_timestamp()
            -- The clock went back.
            or m.check_due_at > statement_timestamp() + m.check_every + interval '1 minute')
       and (m.check_busy_until is null or m.check_busy_until <= statement_timestamp()
            or m.check_busy_until > statement_timestamp() + interval '10 minutes')
    returning m.check_token, m.check_after, m.round_started_at
$$;

-- Ends a range of the check. `next_after` null: the round is over, and what it found is published.
-- False: it took too long, and somebody else has taken the range.
create or replace function leasehold.end_check(
    of_name text, of_token bigint, next_after text, more_rows bigint, more_repaired bigint,
    pause interval
)
returns boolean
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
declare
    m leasehold.mirror;
begin
    update leasehold.mirror c
       set check_after = next_after, check_busy_until = null,
           check_due_at = statement_timestamp() + pause,
           round_rows = c.round_rows + more_rows, round_repaired = c.round_repaired + more_repaired
     where c.name = of_name and c.check_token = of_token
    returning * into m;
    if not found then
        return false;
    end if;
    if next_after is null then
        perform leasehold.publish_check(of_name, m.round_started_at, m.round_rows, m.round_repaired);
    end if;
    return true;
end $$;

-- Writes down what a whole round found: equal as of its start, if nothing is left different.
create or replace function leasehold.publish_check(
    of_name text, began timestamptz, of_rows bigint, of_repaired bigint
)
returns timestamptz
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold.mirror m
       set checked_at = statement_timestamp(), rows_checked = of_rows, repaired = of_repaired,
           repaired_total = m.repaired_total + of_repaired, rounds = m.rounds + 1,
           differences = d.found, oldest_difference = d.oldest,
           equal_as_of = case when d.found = 0 then greatest(m.equal_as_of, began)
                              else m.equal_as_of end
      from (select count(*) as found, min(first_seen) as oldest
              from leasehold.mirror_difference where mirror = of_name) d
     where m.name = of_name
    returning m.equal_as_of
$$;

-- Which of these rows have jobs, and since when a change has waited: null if none does, and the row is only
-- to be looked at again. Jobs are read as a whole and laid beside the rows, never once for each row.
create or replace function leasehold.mirror_pending(of_mirror text, keys text[])
returns table (key text, since timestamptz)
language plpgsql stable security definer
set search_path = leasehold, pg_temp
set enable_nestloop = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    m leasehold.mirror;
begin
    if cardinality(keys) = 0 then
        return;
    end if;
    select * into m from leasehold.mirror where name = of_mirror;
    return query
    select k.key, min(j.enqueued_at) filter (
               where j.kwargs ? 'changed' or j.idempotency_key = leasehold.mirror_mark(m.name, k.key))
      from unnest(keys) as k (key)
      join leasehold.job j
        on j.kwargs ->> m.job_field
           = leasehold.mirror_kwargs(m.key_kind, m.job_field, k.key) ->> m.job_field
     where j.queue = m.queue and j.name = m.job_name
     group by k.key;
end $$;

-- Notes what is unequal, and makes a job for each row that has none. A row that changed since the
-- round began is not a difference yet: its own job is on its way. Only if nothing older waits: a change
-- that was made before the round is missing from the store all the same. A row that stays unequal gets
-- another job a minute later, then two, up to a day.
create or replace function leasehold.mirror_differs(
    of_mirror text, began timestamptz, keys text[], kinds text[], sources bigint[], helds bigint[]
)
returns table (different int, made int)
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    m leasehold.mirror;
    wanted text[];
begin
    select * into m from leasehold.mirror where name = of_mirror;
    with marked as materialized (
        select a.key, a.kind, a.source, a.held, j.enqueued_at as since
          from unnest(keys, kinds, sources, helds) as a (key, kind, source, held)
          left join leasehold.idempotency_key i
            on i.queue = m.queue and i.key = leasehold.mirror_mark(m.name, a.key)
          left join leasehold.job j on j.id = i.job_id
    ), asked as materialized (
        -- A mark names the newest job of a row; an older one may be running beside it.
        select a.key, a.kind, a.source, a.held, least(a.since, p.since) as since,
               a.since is not null or p.key is not null as has_job
          from marked a
          left join leasehold.mirror_pending(
                        m.name, array(select n.key from marked n
                                       where n.since is null or n.since >= began)) p
            on p.key = a.key
    ), noted as (
        insert into leasehold.mirror_difference as d
            (mirror, key, kind, source_version, held_version, repairs, repaired_at)
        select m.name, a.key, a.kind, a.source, a.held,
               case when a.has_job then 0 else 1 end,
               case when a.has_job then null else statement_timestamp() end
          from asked a where a.since is null or a.since < began
         order by a.key collate "C"
        on conflict (mirror, key) do update
            set kind = excluded.kind, source_version = excluded.source_version,
                held_version = excluded.held_version, last_seen = statement_timestamp(),
                repairs = case when excluded.repairs > 0 and (d.repaired_at is null
                    or d.repaired_at <= statement_timestamp() - least(
                        interval '30 seconds' * power(2, least(d.repairs, 20)), interval '1 day'))
                    then d.repairs + 1 else d.repairs end,
                repaired_at = case when excluded.repairs > 0 and (d.repaired_at is null
                    or d.repaired_at <= statement_timestamp() - least(
                        interval '30 seconds' * power(2, least(d.repairs, 20)), interval '1 day'))
                    then statement_timestamp() else d.repaired_at end
        returning d.key, d.repaired_at = statement_timestamp() as due
    )
    select count(*), coalesce(array_agg(n.key) filter (where n.due), '{}') into different, wanted
      from noted n;
    made := leasehold.mirror_reindex(m.name, wanted, 'mirror.repair', 50);
    return next;
end $$;

-- Rows of a range were seen equal, but for those that are named.
create or replace function leasehold.mirror_equal(
    of_mirror text, after text, up_to text, but text[] default '{}'
)
returns void
language sql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    delete from leasehold.mirror_difference d
     -- No key is empty. The end of a range is looked up among the differences themselves where there is
     -- none, so that both ends are found by the index.
     where d.mirror = of_mirror and d.key > coalesce(after, '')
       and d.key <= coalesce(up_to, (select max(l.key) from leasehold.mirror_difference l
                                      where l.mirror = of_mirror))
       and not exists (select from unnest(but) as b (key) where b.key = d.key)
$$;

-- Rows were seen equal.
create or replace function leasehold.mirror_seen(of_mirror text, keys text[])
returns void
language sql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
    delete from leasehold.mirror_difference d where d.mirror = of_mirror and d.key = any (keys)
$$;

-- Deletions that are old enough to be forgotten.
create or replace function leasehold.mirror_old_gone(of_mirror text, up_to int default 1000)
returns table (key text, version bigint)
language sql stable security definer set search_path = leasehold, pg_temp as $$
    select g.key, g.version
      from leasehold.mirror m
      join leasehold.mirror_gone g on g.mirror = m.name
     where m.name = of_mirror and g.gone_at < statement_timestamp() - m.tombstones
     order by g.gone_at limit up_to
$$;

-- The store has forgotten them. One that was renewed meanwhile stays.
create or replace function leasehold.mirror_forgotten(of_mirror text, keys text[], versions bigint[])
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off as $$
declare
    gone int;
begin
    delete from leasehold.mirror_gone g where g.ctid = any (array(
        select o.ctid from unnest(keys, versions) as f (key, version)
          join leasehold.mirror_gone o on o.mirror = of_mirror and o.key = f.key
                                       and o.version = f.version
           for update of o skip locked));
    get diagnostics gone = row_count;
    return gone;
end $$;

-- Forgets marks of changes whose jobs are over. Each change leaves one, which is more than `prune` is
-- made for. Its job is looked for when the mark is locked, in a statement of its own: see `prune`.
create or replace function leasehold.mirror_prune(of_mirror text, up_to int default 5000)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    of_queue text;
    old_keys text[];
    gone int;
begin
    select m.queue into of_queue from leasehold.mirror m where m.name = of_mirror;
    select array_agg(e.key) into old_keys
      from (select k.key from leasehold.idempotency_key k
             where k.queue = of_queue and k.key > 'mirror:' || of_mirror || ':'
               and k.key < 'mirror:' || of_mirror || ';'
               and k.holds_until < statement_timestamp()
               and not exists (select from leasehold.job j where j.id = k.job_id)
             limit up_to for update skip locked) e;
    delete from leasehold.idempotency_key k
     where k.queue = of_queue and k.key = any (old_keys)
       and not exists (select from leasehold.job j where j.id = k.job_id);
    get diagnostics gone = row_count;
    return gone;
end $$;

-- Remembers a deletion that nobody wrote down. One row a call: a caller that held one row and waited
-- for the next could meet a transaction that does so the other way round. Gives the version.
create or replace function leasehold.mirror_entomb(of_mirror text, of_key text, above bigint)
returns bigint
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold.mirror_gone as g (mirror, key, version)
    values (of_mirror, of_key, above + 1)
    on conflict (mirror, key) do update
        set version = greatest(g.version, excluded.version), gone_at = statement_timestamp()
    returning g.version
$$;

-- Counts what a pass did, for the figures of each minute.
create or replace function leasehold.mirror_tally(
    of_mirror text, of_queue text, tags text[], whats text[], ns bigint[]
)
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
begin
    insert into leasehold.tally (queue, tag, what, n, subject)
    select of_queue, t.tag, t.what, t.n, of_mirror from unnest(tags, whats, ns) as t (tag, what, n);
end $$;
