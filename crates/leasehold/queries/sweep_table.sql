-- What the catalogue knows about a table that is to be swept: one row a column that was asked for.
select c.relkind::text, w.name, format_type(a.atttypid, null), a.attnotnull,
       -- One column alone, whole and valid.
       exists (select from pg_index i
                where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indpred is null
                  and i.indnkeyatts = 1 and i.indkey[0] = a.attnum),
       exists (select from pg_inherits h where h.inhparent = c.oid),
       -- An index that begins with it and holds only some of the rows.
       exists (select from pg_index i
                where i.indrelid = c.oid and i.indisvalid and i.indpred is not null
                  and i.indkey[0] = a.attnum)
  from pg_class c
 cross join unnest($2::text[]) as w (name)
  left join pg_attribute a
    on a.attrelid = c.oid and a.attname = w.name and a.attnum > 0 and not a.attisdropped
 where c.oid = to_regclass($1)
