-- How the queues stand when a minute ends.

-- Whether a tag is one of these, where `reindex_*` is every tag that begins so.
create or replace function leasehold.is_bulk(tag text, patterns text[])
returns boolean
language sql immutable set search_path = leasehold, pg_temp as $$
    select exists (select from unnest(patterns) as p (pattern)
                    where tag = p.pattern
                       or (right(p.pattern, 1) = '*' and starts_with(tag, left(p.pattern, -1))))
$$;

-- How the queues stand. Counts up to a million jobs; of more it looks at a share of the pages and says
-- what that comes to, so that a long queue does not make the looking long.
create or replace function leasehold.measure_queues(minute timestamptz)
returns void
language plpgsql volatile security definer
set search_path = leasehold, pg_temp set jit = off as $$
declare
    live bigint := coalesce((select n_live_tup from pg_stat_all_tables
                              where relid = 'leasehold.job'::regclass), 0);
    share real := case when live > 1000000 then 100.0 * 1000000 / live else 100.0 end;
    scale double precision := 100.0 / share;
begin
    insert into leasehold.measure as m (at, kind, subject, metric, flow, value)
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
        select q.name as queue from leasehold.queue q
        union select w.queue from leasehold.watch w
        union (select c.queue from counted c group by c.queue order by sum(c.length) desc limit 500)
        union (select d.queue from leasehold.dead_job d where d.cause = 'expired' limit 500)
    ), queues as (
        select k.queue,
               coalesce(sum(c.running), 0) * scale as running,
               coalesce(sum(c.ready), 0) * scale as ready,
               coalesce(sum(c.scheduled), 0) * scale as scheduled,
               coalesce(sum(c.retrying), 0) * scale as retrying,
               coalesce(sum(c.length), 0) * scale as length,
               coalesce(sum(c.length) filter (where not leasehold.is_bulk(c.tag, w.bulk_tags)), 0)
                   * scale as watched_length
          from known k
          left join counted c on c.queue = k.queue
          left join (select k2.queue, coalesce(w.bulk_tags, '{}') as bulk_tags
                       from known k2 left join leasehold.watch w on w.queue = k2.queue) w
                 on w.queue = k.queue
         group by k.queue
    ), tags as (
        select t.queue || '/' || case when t.place <= 30 then t.tag else '(others)' end as subject,
               sum(t.length) * scale as length
          from (select c.*, row_number() over (partition by c.queue order by c.length desc, c.tag) as place
                  from counted c join known k on k.queue = c.queue) t
         group by 1
    ), living as (
        select q.queue, count(*) as workers
          from leasehold.worker_state w cross join lateral unnest(w.queues) as q (queue)
         where w.state = 'alive' group by q.queue
    )
    select minute, 'queue', q.queue, v.metric, false, v.value
      from queues q
      left join living l on l.queue = q.queue
      left join leasehold.queue s on s.name = q.queue
     cross join lateral (values
        ('running', q.running), ('ready', q.ready), ('scheduled', q.scheduled),
        ('retrying', q.retrying), ('length', q.length), ('watched_length', q.watched_length),
        ('oldest_ready_age', leasehold.oldest_ready_age(q.queue)),
        ('workers', coalesce(l.workers, 0)),
        ('paused', case when s.paused_at is null then 0 else 1 end),
        ('dead', (select count(*) from (
            select from leasehold.dead_job d
             where d.queue = q.queue and d.cause <> 'expired' limit 10000) kept)),
        ('expired_kept', (select count(*) from (
            select from leasehold.dead_job d
             where d.queue = q.queue and d.cause = 'expired' limit 10000) kept))
     ) as v (metric, value)
    union all
    select minute, 'tag', t.subject, 'length', false, t.length from tags t
    union all
    select minute, 'database', '', 'sampled', false, 1
    union all
    select minute, 'database', '', 'jobs_looked_at_percent', false, share
    on conflict (at, kind, subject, metric) do update set value = excluded.value;
end $$;

-- For how many seconds the oldest job that could run has waited; 0: none could. One look into the
-- index for each name and priority, past the jobs that run.
create or replace function leasehold.oldest_ready_age(of_queue text)
returns double precision
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    return coalesce((
        select greatest(extract(epoch from statement_timestamp() - min(first.scheduled_at)), 0)
          from (select l.name, l.priority from leasehold.lanes(of_queue) l
                 where l.first_at <= statement_timestamp() limit 200) lane
         cross join lateral (
            select j.scheduled_at from leasehold.job j
             where j.queue = of_queue and j.name = lane.name and j.priority = lane.priority
               and j.scheduled_at <= statement_timestamp() and j.expires_at > statement_timestamp()
               and not j.held
             order by j.scheduled_at, j.id limit 1) first), 0);
end $$;
