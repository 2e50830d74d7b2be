-- Sweeps: how late the run and the watchdog are, rows that need an operator, and whether the table exists.
select s.name, s.state, s.paused_by,
       extract(epoch from statement_timestamp() - s.next_run_at)::float8,
       extract(epoch from statement_timestamp() - coalesce(s.watchdog_ran_at, w.created_at)
           - w.watchdog_every)::float8,
       (select l.value from leasehold_internal.latest() l where l.kind = 'sweep'
           and l.subject = s.name and l.metric = 'stuck'),
       s.dead,
       exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = case when position('.' in s.table_name) > 0
               then split_part(s.table_name, '.', 1) else 'public' end
           and c.relname = substr(s.table_name, position('.' in s.table_name) + 1)),
       s.table_name
  from leasehold.sweeps s join leasehold_internal.sweep w on w.name = s.name order by s.name
