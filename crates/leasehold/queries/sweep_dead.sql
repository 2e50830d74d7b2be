-- Dead rows of a sweep.
select key, attempts, last_error, failed_at, dead_at
  from leasehold_internal.sweep_failure
 where sweep = $1 and dead_at is not null and ($2::text is null or key > $2)
 order by key
 limit $3
