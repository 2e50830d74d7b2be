-- When the last sample was taken, how old its newest minute is, and how many workers run: all of them, and
-- those that have run for longer than $1 seconds.
select case when isfinite(d.ran_at) then
           extract(epoch from statement_timestamp() - d.ran_at) end::float8,
       (select extract(epoch from statement_timestamp() - m.at)::float8
          from leasehold_internal.measure m where m.at >= statement_timestamp() - interval '1 day'
           and m.kind = 'database' and m.subject = '' and m.metric = 'sampled' order by m.at desc limit 1),
       (select count(*) from leasehold.workers w where w.state = 'alive'),
       (select count(*) from leasehold.workers w where w.state = 'alive'
           and w.started_at < statement_timestamp() - make_interval(secs => $1))
  from leasehold_internal.duty d where d.name = 'measure'
