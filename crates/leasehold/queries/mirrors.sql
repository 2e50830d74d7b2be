-- Mirrors with the results of their check and the progress of a rebuild, by name.
select name, table_name, queue, job_name, phase, serving, second, rebuild_rows, rebuild_started_at,
       rebuild_ended_at, round_started_at, round_rows, compared_at, rows_compared, repaired,
       repaired_total, rounds, equal_as_of, differences, oldest_difference, tombstones
  from leasehold.mirrors
 where $1::text is null or name = $1
 order by name
 limit $2
