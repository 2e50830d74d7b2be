-- What the catalogue knows about a table that is to be mirrored: one row a column that was asked for,
-- in that order.
select c.relkind::text as relkind, w.name, format_type(a.atttypid, null) as type, a.attnotnull,
       -- One column alone, whole and valid.
       exists (select from pg_index i
                where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indpred is null
                  and i.indnkeyatts = 1 and i.indkey[0] = a.attnum) as is_unique,
       exists (select from pg_inherits h where h.inhparent = c.oid) as inherited,
       (select count(*) from pg_trigger t
         where t.tgrelid = c.oid and t.tgname = any ($3) and t.tgenabled <> 'D') as triggers
  from pg_class c
 cross join unnest($2::text[]) with ordinality as w (name, place)
  left join pg_attribute a
    on a.attrelid = c.oid and a.attname = w.name and a.attnum > 0 and not a.attisdropped
 where c.oid = to_regclass($1)
 order by w.place
