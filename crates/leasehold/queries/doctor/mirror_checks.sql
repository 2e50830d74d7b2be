-- Mirrors with their rounds, and for how long no worker has taken the next range that is due.
select m.name, m.rounds,
       case when m.check_busy_until > statement_timestamp() then 0 else
           extract(epoch from statement_timestamp() - greatest(m.check_due_at, m.compared_at, m.created_at))
       end::float8
  from leasehold_internal.mirror m order by m.name
