-- Mirrors with their differences, since when each is equal, and how long a round takes.
select m.name, n.differences, n.oldest_difference_age,
       extract(epoch from statement_timestamp() - coalesce(m.equal_as_of, m.created_at))::float8,
       m.equal_as_of is not null,
       ((m.rows_compared / m.range_rows + 1) * extract(epoch from m.check_every))::float8
  from leasehold_internal.mirror m join leasehold_internal.mirror_numbers() n on n.name = m.name
 order by m.name
