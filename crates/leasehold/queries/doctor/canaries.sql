-- Watched queues: when a canary was completed last, since when one waits, and how old the newest sampled
-- minute is. One index lookup per minute of a day.
select w.queue, extract(epoch from statement_timestamp() - last.at)::float8,
       extract(epoch from statement_timestamp() - j.at)::float8, q.paused_at is not null,
       (select extract(epoch from statement_timestamp() - m.at)::float8
          from leasehold_internal.measure m where m.at >= statement_timestamp() - interval '1 day'
           and m.kind = 'database' and m.subject = '' and m.metric = 'sampled' order by m.at desc limit 1)
  from (select * from leasehold_internal.watch where not off and min_completed > 0 order by queue limit 50) w
  left join leasehold_internal.queue q on q.name = w.queue
 cross join lateral (select min(scheduled_at) as at from leasehold.job
       where queue = w.queue and limit_key is null and name = 'leasehold.canary') j
 cross join lateral (select max(g.minute) as at
       from generate_series(date_trunc('minute', statement_timestamp()) - interval '24 hours',
                date_trunc('minute', statement_timestamp()), interval '1 minute') as g (minute)
      where exists (select from leasehold_internal.measure m where m.at = g.minute and m.kind = 'tag'
               and m.subject in (leasehold_internal.tag_subject(w.queue, 'leasehold.canary'),
                                 leasehold_internal.tag_subject(w.queue, '(others)'))
               and m.metric = 'completed')) last
 order by w.queue
