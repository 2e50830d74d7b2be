-- Claims of jobs that have a limit key. Such a job is in no lane: keys take turns, and within a key jobs
-- run in order.

-- Claims up to `up_to` jobs of keys that have work and room. `names` null: every name. Jobs that lost their
-- worker `most_lost` times or more are left out; null: those on their last chance. `only_key` and `only_job`:
-- of this key, or this job of it.
--
-- A key is locked first and counted in a later statement: that one sees the permits of all claimers that
-- had the lock before. A count in the statement that locks is as old as the wait for the lock, and the limit
-- would be exceeded. Every claim from a key writes its row, so a caller with an older snapshot gets a
-- serialization error and never a stale count.
-- Rows that another transaction has locked are skipped, keys and jobs alike: nothing waits here.
-- Turns: the key that has waited longest comes first, and gives a share before the next one gives more.
create or replace function leasehold_internal.claim_limited(
    worker text, queue text, up_to int, lease interval, claim_id uuid, names text[],
    most_lost int default null, only_key text default null, only_job bigint default null
)
returns setof leasehold.claimed_job
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_tidscan = on set enable_nestloop = on
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set enable_material = off set jit = off
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_variable
declare
    settings leasehold_internal.queue := leasehold_internal.queue_settings(queue);
    length interval := coalesce(leasehold_internal.check_lease_length(lease), settings.lease);
    chances int := coalesce(most_lost, greatest(settings.max_lost - 1, 1));
    wanted int := least(greatest(up_to, 16), 200);
    began timestamptz := clock_timestamp();
    share int;
    busy text[] := '{}';
    candidates text[];
    locked text[];
    key_rows tid[];
    paused boolean[];
    full_ats timestamptz[];
    collapsed record;
    locked_at timestamptz;
    signals bigint[];
    rules leasehold_internal.limit_rule[];
    rooms int[];
    tokens int[];
    allowances int[];
    places int[];
    rows_at tid[];
    lost boolean[];
    reached int;
begin
    if settings.paused_at is not null or coalesce(up_to, 0) <= 0 then
        return;
    end if;
    up_to := least(up_to, 10000);
    if settings.is_limited then
        up_to := leasehold_internal.queue_room(queue, up_to);
        if up_to <= 0 then
            return;
        end if;
    end if;
    for round in 1 .. 20 loop
        if only_key is not null then
            candidates := array[only_key];
            signals := '{}';
        else
            -- Signals of a key that another claimer has locked stay: `busy` reads past them.
            with signalled as materialized (
                select s.id, s.key, s.due_at from leasehold_internal.limit_signal s
                 where s.queue = claim_limited.queue and s.due_at <= statement_timestamp()
                   and s.key <> all (busy)
                 order by s.queue, s.due_at limit wanted * 4
            ), listed as materialized (
                select k.key, k.look_at from leasehold_internal.limit_key k
                 where k.queue = claim_limited.queue and k.look_at <= statement_timestamp()
                   and k.key <> all (busy) and k.key <> ''
                 order by k.queue, k.look_at limit wanted
            )
            select array_agg(c.key), (select array_agg(s.id) from signalled s)
              into candidates, signals
              from (select u.key
                      from (select l.key, l.look_at as at from listed l
                            union all select s.key, s.due_at from signalled s) u
                     group by u.key order by min(u.at), u.key limit wanted) c;
        end if;
        exit when candidates is null;

        -- Lock, nothing else.
        with made as (
            insert into leasehold_internal.limit_key as k (queue, key)
            select claim_limited.queue, c.key
              from unnest(candidates) as c (key)
             where case when exists (select from leasehold_internal.limit_key o
                                      where o.queue = claim_limited.queue and o.key = c.key) then false
                        -- As `may_create_key`.
                        else pg_try_advisory_xact_lock(7307, hashtext(claim_limited.queue || '/' || c.key)) end
            on conflict do nothing
            returning k.key, k.ctid as row_at, false as paused, k.full_at
        ), taken as materialized (
            select k.key, k.ctid as row_at, k.paused_at is not null as paused, k.full_at
              from leasehold_internal.limit_key k
             where k.queue = claim_limited.queue and k.key = any (candidates)
               for update skip locked
        )
        select array_agg(l.key order by l.place), array_agg(l.row_at order by l.place),
               array_agg(l.paused order by l.place), array_agg(l.full_at order by l.place)
          into locked, key_rows, paused, full_ats
          from (select a.*, array_position(candidates, a.key) as place
                  from (select * from made union all select * from taken) a) l;

        if locked is not null then
            share := greatest(1, up_to / 16, ceil(up_to::numeric / cardinality(locked)));
            -- Not the time of the statement: it may have begun before the tokens were taken that it sees.
            locked_at := clock_timestamp();
            rules := array(
                select rule from unnest(locked) with ordinality as l (key, place)
                  left join lateral (
                    -- As `limit_rule_of`.
                    select r from leasehold_internal.limit_rule r
                     where r.queue = claim_limited.queue
                       and r.key = any (array[l.key, nullif(split_part(l.key, ':', 1), '')])
                     order by r.key = l.key desc, r.by_operator desc limit 1) found (rule) on true
                 order by l.place);
            for collapsed in
                select l.key, rules[l.place].debounce_max from unnest(locked) with ordinality as l (key, place)
                 where rules[l.place].debounce is not null
            loop
                perform leasehold_internal.collapse_key(queue, collapsed.key, collapsed.debounce_max);
            end loop;
            -- A new snapshot. Room and tokens: null without a limit and without a rate.
            with room as materialized (
                select l.key, l.place, f.room, t.tokens, (l.rule).ordered, (l.rule).on_death = 'stop' as stops,
                       least(coalesce(f.room, 1000000), coalesce(t.tokens, 1000000),
                             share * coalesce((l.rule).weight, 1)) as allowance
                  from (select u.*, rules[u.place] as rule
                          from unnest(locked, paused, full_ats) with ordinality as u (key, paused, full_at, place)) l
                 cross join lateral (
                    select case when (l.rule).ordered or (l.rule).debounce is not null then 1
                                else (l.rule).max_running end as max_running) most
                 cross join lateral (
                    select case when l.paused then 0
                                when most.max_running is not null then greatest(0, most.max_running - (
                                    select count(*) from (
                                        select from leasehold.job j
                                         where j.queue = claim_limited.queue and j.limit_key = l.key and j.permit
                                           and j.held
                                         limit most.max_running) running))::int end as room
                    offset 0) f
                 cross join lateral (
                    select case when (l.rule).rate is not null then leasehold_internal.tokens(
                        (l.rule).rate, (l.rule).per, (l.rule).burst, l.full_at, locked_at) end as tokens
                    offset 0) t
            ), picked as materialized (
                -- Pulled row by row, as in `claim_next`: nothing is locked beyond what is taken.
                select l.place, due.row_at, due.lost
                  from room l
                 cross join lateral (
                    with recursive hop (deferred, priority) as (
                        (select j.deferred, j.priority from leasehold.job j
                          where j.queue = claim_limited.queue and j.limit_key = l.key and not j.permit
                          order by j.queue, j.limit_key, j.permit, j.deferred, j.priority limit 1)
                        union all
                        select n.deferred, n.priority
                          from hop h cross join lateral (
                            select j.deferred, j.priority from leasehold.job j
                             where j.queue = claim_limited.queue and j.limit_key = l.key and not j.permit
                               and (j.deferred, j.priority) > (h.deferred, h.priority)
                             order by j.queue, j.limit_key, j.permit, j.deferred, j.priority limit 1) n
                    )
                    select o.row_at, o.lost
                      from leasehold_internal.ordered_head(
                            claim_limited.queue, l.key, l.stops, names, chances, only_job) o
                     where l.ordered and l.allowance > 0
                    union all
                    select d.row_at, d.lost
                      from hop h cross join lateral (
                        select j.ctid as row_at, j.lost_count > 0 as lost
                          from leasehold.job j
                         where l.ordered is not true
                           and j.queue = claim_limited.queue and j.limit_key = l.key and not j.permit
                           and j.deferred = h.deferred and j.priority = h.priority
                           and j.scheduled_at <= statement_timestamp()
                           and j.expires_at > statement_timestamp()
                           and not j.held and j.lost_count < chances
                           and (only_job is null or j.id = only_job)
                           and (names is null or j.name in (select u.name from unnest(names) as u (name)))
                         order by j.queue, j.limit_key, j.permit, j.deferred, j.priority, j.scheduled_at, +j.id
                           for update skip locked) d
                     limit l.allowance) due
                 limit up_to
            )
            select (select array_agg(r.room order by r.place) from room r),
                   (select array_agg(r.tokens order by r.place) from room r),
                   (select array_agg(r.allowance order by r.place) from room r),
                   array_agg(p.place), array_agg(p.row_at), array_agg(p.lost)
              into rooms, tokens, allowances, places, rows_at, lost
              from picked p;

            if rows_at is not null then
            return query
            with fresh as materialized (
                select leasehold_internal.next_generation() as generation
                  from (select count(*) as jobs from unnest(lost) as l (was) where not l.was) n where n.jobs > 0
            ), gone as materialized (
                select leasehold_internal.next_generation() as generation
                  from (select count(*) as jobs from unnest(lost) as l (was) where l.was) n where n.jobs > 0
            ), claimed as (
                update leasehold.job j
                   set held = true, permit = true, attempts = j.attempts + 1,
                       lease_generation = case when j.lost_count > 0 then (select g.generation from gone g)
                                               else (select f.generation from fresh f) end
                 where j.ctid = any (rows_at) and not j.held
                returning j as job, j.id, j.lease_generation
            ), leased as (
                insert into leasehold_internal.lease
                    (lease_generation, lease_expires_at, lease, keep_history, has_extras, queue, claimed_by,
                     claim_id, job_ids)
                select c.lease_generation, statement_timestamp() + length, length, settings.keep_history,
                       true, claim_limited.queue, worker, claim_limited.claim_id, array_agg(c.id)
                  from claimed c group by c.lease_generation
            )
            select r.*
              from claimed c
             cross join lateral leasehold_internal.claimed_columns(c.job, settings, length) r
             order by r.deferred, r.priority, r.scheduled_at, r.id;
            end if;

            -- Keys behind the last one that gave a job stay as they are.
            reached := case when cardinality(places) >= up_to then places[cardinality(places)]
                            else cardinality(locked) end;
            update leasehold_internal.limit_key k
               set look_at = case when s.continues then least(k.look_at, statement_timestamp()) else s.look_at end,
                   full_at = case when (s.rule).rate is null then null
                                  when s.jobs > 0 then leasehold_internal.full_again(
                                    (s.rule).rate, (s.rule).per, (s.rule).burst, k.full_at, locked_at, s.jobs)
                                  else k.full_at end
              from (select l.row_at, l.rule, given.jobs,
                           -- The claim was full before the key had its share: it keeps its turn with the chance
                           -- that makes its jobs, over many claims, as many as its weight says.
                           cardinality(places) >= up_to and l.place = reached and given.jobs < l.allowance
                               and random() * l.allowance >= given.jobs as continues,
                           case when l.room <= given.jobs then null
                                when l.tokens <= given.jobs then case when leasehold_internal.key_has_due(
                                    claim_limited.queue, l.key, (l.rule).ordered is true) then
                                        leasehold_internal.next_token((l.rule).rate, (l.rule).per, (l.rule).burst,
                                            leasehold_internal.full_again((l.rule).rate, (l.rule).per,
                                                (l.rule).burst, l.full_at, locked_at, given.jobs)) end
                                when given.jobs > 0 and (given.jobs >= l.allowance or cardinality(places) >= up_to)
                                    then clock_timestamp()
                                -- What is left is locked, on its last chance, or for workers that know
                                -- its name.
                                when leasehold_internal.key_has_due(
                                        claim_limited.queue, l.key, (l.rule).ordered is true)
                                     and not ((l.rule).ordered is true and (l.rule).on_death = 'stop'
                                        and leasehold_internal.stopped_by(claim_limited.queue, l.key) is not null)
                                    then clock_timestamp() + interval '500 ms' end as look_at
                      from (select u.*, rules[u.place] as rule
                              from unnest(locked[:reached], key_rows[:reached], rooms[:reached], tokens[:reached],
                                          allowances[:reached], full_ats[:reached])
                                   with ordinality as u (key, row_at, room, tokens, allowance, full_at, place)) l
                     cross join lateral (
                        select count(*)::int as jobs from unnest(places) as p (place) where p.place = l.place
                        offset 0) given
                    offset 0) s
             where k.ctid = s.row_at
               and (s.jobs > 0 or k.look_at is distinct from s.look_at);
            -- Those that were read before the key was locked: whatever caused them was seen.
            delete from leasehold_internal.limit_signal s
             where s.id = any (signals) and s.key = any (locked[:reached]);
            if rows_at is not null and settings.is_limited then
                perform leasehold_internal.queue_started(queue, cardinality(rows_at));
            end if;
            exit when rows_at is not null;
        end if;
        exit when only_key is not null or clock_timestamp() > began + interval '100 ms';
        busy := busy || candidates;
    end loop;
end $$;

-- Claims up to `up_to` jobs one by one, each under its own lease, where `claim_limited` was refused: a
-- job that a trigger or a constraint does not let be claimed is left out, with a warning of the server.
-- Stops after 5 s.
create or replace function leasehold_internal.claim_limited_around(
    worker text, queue text, up_to int, lease interval, claim_id uuid, names text[]
)
returns setof leasehold.claimed_job
language plpgsql volatile security definer
set search_path = leasehold, pg_temp
set enable_indexscan = on set enable_seqscan = off set enable_bitmapscan = off
set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_variable
declare
    candidate record;
    taken int := 0;
    now_taken int;
begin
    for candidate in
        select c.key, j.id
          from (select u.key, min(u.at) as at
                  from ((select k.key, k.look_at as at from leasehold_internal.limit_key k
                          where k.queue = claim_limited_around.queue and k.look_at <= statement_timestamp()
                            and k.key <> ''
                          order by k.queue, k.look_at limit 1000)
                        union all
                        (select s.key, s.due_at from leasehold_internal.limit_signal s
                          where s.queue = claim_limited_around.queue and s.due_at <= statement_timestamp()
                          order by s.queue, s.due_at limit 1000)) u
                 group by u.key) c
         cross join lateral (
            select w.id from leasehold.job w
             where w.queue = claim_limited_around.queue and w.limit_key = c.key and not w.permit
               and w.scheduled_at <= statement_timestamp() and w.expires_at > statement_timestamp()
             order by w.queue, w.limit_key, w.permit, w.deferred, w.priority, w.scheduled_at, +w.id
             limit 20) j
         order by c.at
    loop
        exit when taken >= up_to or clock_timestamp() > statement_timestamp() + interval '5 seconds';
        begin
            return query
            select * from leasehold_internal.claim_limited(
                worker, queue, 1, lease, claim_id, names, null, candidate.key, candidate.id);
            get diagnostics now_taken = row_count;
            taken := taken + now_taken;
        exception when others then
            raise warning 'job % of queue % could not be claimed: %', candidate.id, queue, sqlerrm;
        end;
    end loop;
end $$;

-- Claims as `claim_limited` does. A job that is refused does not block the jobs behind it.
create or replace function leasehold_internal.claim_limited_safely(
    worker text, queue text, up_to int, lease interval, claim_id uuid, names text[], most_lost int default null
)
returns setof leasehold.claimed_job
language plpgsql volatile security definer set search_path = leasehold, pg_temp as $$
#variable_conflict use_variable
begin
    return query select * from leasehold_internal.claim_limited(
        worker, queue, up_to, lease, claim_id, names, most_lost);
exception when others then
    -- As in `leasehold.claim`.
    if sqlstate ~ '^(LH|08|25|40|42|53|54|55|57|58|XX)' then
        raise;
    end if;
    -- One call of `leasehold.claim` returns one lease.
    return query select * from leasehold_internal.claim_limited_around(
        worker, queue, case when most_lost is null then up_to else least(up_to, 1) end, lease, claim_id, names);
end $$;
