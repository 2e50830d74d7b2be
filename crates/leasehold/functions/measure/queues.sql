-- The state of the queues at the end of a minute.

-- Returns whether a tag matches one of the patterns; `reindex_*` matches every tag with that prefix.
create or replace function leasehold_internal.is_bulk(tag text, patterns text[])
returns boolean
language sql immutable set search_path = leasehold, pg_temp as $$
    select exists (select from unnest(patterns) as p (pattern)
                    where tag = p.pattern
                       or (right(p.pattern, 1) = '*' and starts_with(tag, left(p.pattern, -1))))
$$;

-- Returns queues that have jobs. Hops from one to the next in the index; never reads the jobs between.
create or replace function leasehold_internal.waiting_queues()
returns setof text
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    return query
    with recursive hop (queue) as (
        (select leasehold_internal.next_queue(''))
        union all
        select leasehold_internal.next_queue(hop.queue) from hop where hop.queue is not null
    )
    select hop.queue from hop where hop.queue is not null limit 5000;
end $$;

-- The same for queues that have dead jobs.
create or replace function leasehold_internal.dead_queues()
returns setof text
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    return query
    with recursive hop (queue) as (
        (select d.queue from leasehold_internal.dead_job d order by d.queue limit 1)
        union all
        select (select d.queue from leasehold_internal.dead_job d where d.queue > hop.queue order by d.queue limit 1)
          from hop where hop.queue is not null
    )
    select hop.queue from hop where hop.queue is not null limit 5000;
end $$;

-- Measures the queues. Reads at most `most_pages` pages of the jobs, whatever dead rows they hold: of a
-- larger table it reads a share of the pages, and records the extrapolated counts. `recount_queues`
-- corrects them for short and watched queues.
create or replace function leasehold_internal.measure_queues(minute timestamptz, most_pages bigint default 32768)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
declare
    -- From the file, not from the statistics: those are gone after a crash, and ignore dead rows.
    pages bigint := pg_relation_size('leasehold.job') / current_setting('block_size')::bigint;
    share real := least(100.0, 100.0 * most_pages / greatest(pages, 1));
    scale double precision := 100.0 / share;
    standing jsonb;
begin
    with counted as materialized (
        select j.queue, j.tag,
               count(*) filter (where j.held) as running,
               count(*) filter (where not j.held and j.scheduled_at <= statement_timestamp()) as ready,
               count(*) filter (where not j.held and j.scheduled_at > statement_timestamp()
                                  and j.attempts = 0) as scheduled,
               count(*) filter (where not j.held and j.scheduled_at > statement_timestamp()
                                  and j.attempts > 0) as retrying,
               count(*) as length
          from leasehold.job j tablesample system (share)
         group by j.queue, j.tag
    ), known as materialized (
        -- Queues with something to record. Settings alone do not count: a queue in which nothing
        -- happens costs no row.
        select c.queue from counted c join leasehold_internal.queue q on q.name = c.queue
        union (select c.queue from counted c group by c.queue order by sum(c.length) desc limit 500)
        union select q.name from leasehold_internal.queue q where q.paused_at is not null
        union select w.queue from leasehold_internal.watch w
        union select d.queue from leasehold_internal.dead_queues() as d (queue)
    ), tags as (
        select leasehold_internal.tag_subject(t.queue, case when t.rank <= 30 then t.tag else '(others)' end) as subject,
               sum(t.length) * scale as length
          from (select c.*, row_number() over (partition by c.queue order by c.length desc, c.tag) as rank
                  from counted c join known k on k.queue = c.queue) t
         group by 1
    ), noted as (
        insert into leasehold_internal.measure as m (at, kind, subject, metric, flow, value)
        select minute, 'tag', t.subject, 'length', false, t.length from tags t
        union all
        select minute, 'database', '', 'sampled', false, 1
        union all
        select minute, 'database', '', 'jobs_looked_at_percent', false, share
        on conflict (at, kind, subject, metric) do update set value = excluded.value
    )
    select jsonb_agg(to_jsonb(s)) into standing from (
        select k.queue,
               coalesce(sum(c.running), 0) * scale as running,
               coalesce(sum(c.ready), 0) * scale as ready,
               coalesce(sum(c.scheduled), 0) * scale as scheduled,
               coalesce(sum(c.retrying), 0) * scale as retrying,
               coalesce(sum(c.length), 0) * scale as length,
               coalesce(sum(c.length) filter (where not leasehold_internal.is_bulk(c.tag, coalesce(w.bulk_tags, '{}'))), 0)
                   * scale as watched_length
          from known k
          left join counted c on c.queue = k.queue
          left join leasehold_internal.watch w on w.queue = k.queue
         group by k.queue) s;
    perform leasehold_internal.note_queues(minute, standing);
end $$;

-- Counts the jobs of a queue by the index, in pieces; it is stable, so that all of them are read as of
-- the calling statement. Ends when there are no more (`whole`); when it has counted more than `most`
-- and, if `up_to` is given, more than that without bulk work; or at `deadline` (null: no time limit).
-- Internal.
create or replace function leasehold_internal.count_queue(
    queue text, bulk text[], most bigint, up_to bigint, deadline timestamptz,
    out whole boolean, out running bigint, out ready bigint, out scheduled bigint, out retrying bigint,
    out length bigint, out watched_length bigint
)
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    met record;
    -- Jobs with a limit key come last: they are in an index of their own.
    keyed boolean := false;
    -- Before the first job.
    last_key text := '';
    last_permit boolean := false;
    last_deferred boolean := false;
    last_priority bigint := -2147483649;
    last_at timestamptz := '-infinity';
    last_id bigint := 0;
begin
    running := 0;
    ready := 0;
    scheduled := 0;
    retrying := 0;
    length := 0;
    watched_length := 0;
    loop
        with piece as materialized (
            (select null::text as limit_key, false as permit, j.deferred, j.priority, j.scheduled_at, j.id,
                    j.tag, j.held, j.attempts
               from leasehold.job j
              where not keyed and j.queue = count_queue.queue and j.limit_key is null
                and (j.deferred, j.priority, j.scheduled_at, +j.id)
                    > (last_deferred, last_priority, last_at, last_id)
              order by j.deferred, j.priority, j.scheduled_at, +j.id
              limit most + 1)
            union all
            (select j.limit_key, j.permit, j.deferred, j.priority, j.scheduled_at, j.id,
                    j.tag, j.held, j.attempts
               from leasehold.job j
              where keyed and j.queue = count_queue.queue and j.limit_key is not null
                and (j.limit_key, j.permit, j.deferred, j.priority, j.scheduled_at, +j.id)
                    > (last_key, last_permit, last_deferred, last_priority, last_at, last_id)
              order by j.limit_key, j.permit, j.deferred, j.priority, j.scheduled_at, +j.id
              limit most + 1)
        ), tags as (
            select p.tag, count(*) as jobs, count(*) filter (where p.held) as running,
                   count(*) filter (where not p.held
                       and p.scheduled_at <= statement_timestamp()) as ready,
                   count(*) filter (where not p.held and p.scheduled_at > statement_timestamp()
                       and p.attempts = 0) as scheduled,
                   count(*) filter (where not p.held and p.scheduled_at > statement_timestamp()
                       and p.attempts > 0) as retrying
              from piece p group by p.tag
        ), sums as (
            select coalesce(sum(t.running), 0) as running, coalesce(sum(t.ready), 0) as ready,
                   coalesce(sum(t.scheduled), 0) as scheduled,
                   coalesce(sum(t.retrying), 0) as retrying, coalesce(sum(t.jobs), 0) as jobs,
                   coalesce(sum(t.jobs) filter (where not leasehold_internal.is_bulk(t.tag, bulk)), 0) as watched
              from tags t
        )
        select s.*, l.limit_key, l.permit, l.deferred, l.priority, l.scheduled_at, l.id into met
          from sums s
          left join lateral (
            select p.* from piece p
             order by p.limit_key desc, p.permit desc, p.deferred desc, p.priority desc, p.scheduled_at desc,
                      p.id desc limit 1) l on true;
        running := running + met.running;
        ready := ready + met.ready;
        scheduled := scheduled + met.scheduled;
        retrying := retrying + met.retrying;
        length := length + met.jobs;
        watched_length := watched_length + met.watched;
        whole := keyed and met.jobs <= most;
        exit when whole or (length > most and watched_length > coalesce(up_to, -1))
                  or clock_timestamp() > deadline;
        if keyed or met.jobs > most then
            last_key := coalesce(met.limit_key, '');
            last_permit := met.permit;
            last_deferred := met.deferred;
            last_priority := met.priority;
            last_at := met.scheduled_at;
            last_id := met.id;
        else
            keyed := true;
            last_key := '';
            last_permit := false;
            last_deferred := false;
            last_priority := -2147483649;
            last_at := '-infinity';
            last_id := 0;
        end if;
    end loop;
end $$;

-- Counts queues by the index where `measure_queues` read only a share of the pages: fifty jobs on one
-- page would count as none, or as five hundred. Short queues are counted whole. Queues with a length
-- threshold up to 100,000 are counted, without bulk work, until it is known whether they exceed it: no
-- estimate raises an alarm about their length. Returns how many were counted whole.
create or replace function leasehold_internal.recount_queues(minute timestamptz, most bigint default 1000)
returns int
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    share double precision := (select m.value from leasehold_internal.measure m where m.at = minute
        and m.kind = 'database' and m.subject = '' and m.metric = 'jobs_looked_at_percent');
    -- The caller's timeout would roll back all of it, so it is not used up: queues without a threshold
    -- get 30 % of it, the others the next 30 %, and no single queue more than 20 %.
    timeout interval := nullif(current_setting('statement_timeout')::interval, interval '0');
    deadline timestamptz;
    entry record;
    counted record;
    guess double precision;
    standing jsonb := '[]';
begin
    if coalesce(share, 100) >= 100 then
        return 0;
    end if;
    for entry in
        select k.queue, coalesce(w.bulk_tags, '{}') as bulk_tags,
               -- For thresholds above 100,000 the share of the pages is exact enough.
               case when w.max_length <= 100000 and not w.off then w.max_length end as up_to
          from (select q.queue from leasehold_internal.waiting_queues() as q (queue)
                union select w.queue from leasehold_internal.watch w) k
          left join leasehold_internal.watch w on w.queue = k.queue
         order by up_to nulls first, k.queue
    loop
        deadline := statement_timestamp() + timeout * case when entry.up_to is null then 0.3 else 0.6 end;
        continue when entry.up_to is null and clock_timestamp() > deadline;
        select entry.queue as queue, c.* into counted
          from leasehold_internal.count_queue(entry.queue, entry.bulk_tags, most, entry.up_to,
                                     least(deadline, clock_timestamp() + timeout / 5)) c;
        -- Null: the pages held no job of the queue at all.
        guess := (select coalesce(max(m.value) filter (where m.metric = 'watched_length'), 0)
                    from leasehold_internal.measure m
                   where m.at = minute and m.kind = 'queue' and m.subject = entry.queue
                     and m.metric in ('length', 'watched_length')
                  having count(*) > 0);
        if counted.whole or guess is null then
            standing := standing || to_jsonb(counted);
            continue;
        end if;
        -- The length is at least the count, and otherwise the estimate from the pages; where the time
        -- ended before the threshold was exceeded, the estimate must not raise an alarm.
        if counted.watched_length <= entry.up_to then
            guess := least(guess, entry.up_to);
        end if;
        insert into leasehold_internal.measure as m (at, kind, subject, metric, flow, value)
        select minute, 'queue', entry.queue, 'watched_length', false, greatest(guess, counted.watched_length)
         where greatest(guess, counted.watched_length) > 0
        on conflict (at, kind, subject, metric) do update set value = excluded.value;
    end loop;
    perform leasehold_internal.note_queues(minute, standing);
    return jsonb_array_length(standing);
end $$;

-- Records the state of queues: the counts, and what else is known of each. Only values that are not
-- zero: in a minute that was sampled, a missing row means zero. Internal.
create or replace function leasehold_internal.note_queues(minute timestamptz, standing jsonb)
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp set enable_seqscan = off set jit = off as $$
begin
    -- A second measurement of a minute replaces the first.
    delete from leasehold_internal.measure m
     where m.at = minute and m.kind = 'queue' and not m.flow and m.metric <> 'oldest_ready_age'
       and m.subject in (select q.queue from jsonb_to_recordset(standing) as q (queue text));
    insert into leasehold_internal.measure as m (at, kind, subject, metric, flow, value)
    with living as materialized (
        select q.queue, count(*) as workers
          from leasehold.workers w cross join lateral unnest(w.queues) as q (queue)
         where w.state = 'alive' group by q.queue
    ), noted as (
        select q.queue, v.metric, v.value,
               -- Workers that wait in a queue without jobs are not recorded with every minute.
               max(v.value) filter (where v.metric <> 'workers') over (partition by q.queue) as most
          from jsonb_to_recordset(standing) as q (queue text, running float8, ready float8, scheduled float8,
                                                  retrying float8, length float8, watched_length float8)
          left join living l on l.queue = q.queue
          left join leasehold_internal.queue s on s.name = q.queue
         cross join lateral (values
            ('running', q.running), ('ready', q.ready), ('scheduled', q.scheduled),
            ('retrying', q.retrying), ('length', q.length), ('watched_length', q.watched_length),
            ('workers', coalesce(l.workers, 0)),
            ('paused', case when s.paused_at is null then 0 else 1 end),
            ('dead', (select count(*) from (
                select from leasehold_internal.dead_job d
                 where d.queue = q.queue and d.cause <> 'expired' limit 10000) kept)),
            ('dead_expired', (select count(*) from (
                select from leasehold_internal.dead_job d
                 where d.queue = q.queue and d.cause = 'expired' limit 10000) kept))
         ) as v (metric, value)
    )
    select minute, 'queue', n.queue, n.metric, false, n.value from noted n where n.value > 0 and n.most > 0
    on conflict (at, kind, subject, metric) do update set value = excluded.value;
end $$;

-- Measures for how long the oldest ready job has waited, in every queue that has jobs.
create or replace function leasehold_internal.measure_ages(minute timestamptz)
returns void
language plpgsql volatile security definer set search_path = leasehold, pg_temp set jit = off as $$
begin
    delete from leasehold_internal.measure m
     where m.at = minute and m.kind = 'queue' and m.metric = 'oldest_ready_age';
    insert into leasehold_internal.measure as m (at, kind, subject, metric, flow, value)
    select minute, 'queue', a.queue, 'oldest_ready_age', false, a.age
      from (select q.queue, leasehold_internal.oldest_ready_age(q.queue) as age
              from leasehold_internal.waiting_queues() as q (queue)) a
     where a.age > 0;
end $$;

-- Returns for how many seconds the oldest ready job has waited; 0: none is ready. One index lookup for
-- each of the first 200 priorities, past the running jobs, and for each of the first 200 limit keys that
-- have room: what a limit holds back does not wait for a worker.
create or replace function leasehold_internal.oldest_ready_age(queue text)
returns double precision
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
begin
    return greatest(leasehold_internal.oldest_limited_age(queue), coalesce((
        with recursive hop (deferred, priority) as (
            (select j.deferred, j.priority from leasehold.job j
              where j.queue = oldest_ready_age.queue and j.limit_key is null
              order by j.queue, j.deferred, j.priority, j.scheduled_at limit 1)
            union all
            select next.deferred, next.priority
              from hop cross join lateral (
                select j.deferred, j.priority from leasehold.job j
                 where j.queue = oldest_ready_age.queue and j.limit_key is null
                   and (j.deferred, j.priority) > (hop.deferred, hop.priority)
                 order by j.queue, j.deferred, j.priority, j.scheduled_at limit 1) next
        )
        -- A plain INSERT may store '-infinity', which cannot be subtracted.
        select greatest(extract(epoch from statement_timestamp()
                                - min(greatest(first.scheduled_at, timestamptz '2000-01-01 00:00Z'))), 0)
          from (select hop.deferred, hop.priority from hop limit 200) known
         cross join lateral (
            select j.scheduled_at from leasehold.job j
             where j.queue = oldest_ready_age.queue and j.limit_key is null
               and j.deferred = known.deferred and j.priority = known.priority
               and j.scheduled_at <= statement_timestamp() and j.expires_at > statement_timestamp()
               and not j.held
             order by j.queue, j.deferred, j.priority, j.scheduled_at limit 1) first), 0));
end $$;

-- The same for jobs with a limit key. Internal.
create or replace function leasehold_internal.oldest_limited_age(queue text)
returns double precision
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
begin
    return coalesce((
        with recursive hop (key, place) as (
            (select j.limit_key, 1 from leasehold.job j
              where j.queue = oldest_limited_age.queue and j.limit_key is not null
              order by j.queue, j.limit_key limit 1)
            union all
            select next.limit_key, hop.place + 1
              from hop cross join lateral (
                select j.limit_key from leasehold.job j
                 where j.queue = oldest_limited_age.queue and j.limit_key > hop.key
                 order by j.queue, j.limit_key limit 1) next
             where hop.place < 200
        )
        select greatest(extract(epoch from statement_timestamp()
                                - min(greatest(first.scheduled_at, timestamptz '2000-01-01 00:00Z'))), 0)
          from hop
         cross join lateral (
            select j.scheduled_at from leasehold.job j
             where j.queue = oldest_limited_age.queue and j.limit_key = hop.key and not j.permit
             order by j.queue, j.limit_key, j.permit, j.deferred, j.priority, j.scheduled_at limit 1) first
         where first.scheduled_at <= statement_timestamp()
           and leasehold_internal.has_room(oldest_limited_age.queue, hop.key)), 0);
end $$;
