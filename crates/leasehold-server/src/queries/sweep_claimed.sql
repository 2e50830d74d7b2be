-- The question how many rows of a swept table are claimed just now, and since when, as text.
select format('select count(*), min(%I) from %s where %I = %L',
              claimed_at_column,
              case when position('.' in table_name) > 0
                   then quote_ident(split_part(table_name, '.', 1)) || '.'
                        || quote_ident(substr(table_name, position('.' in table_name) + 1))
                   else quote_ident(table_name) end,
              status_column, claimed)
  from leasehold.sweep
 where name = $1
