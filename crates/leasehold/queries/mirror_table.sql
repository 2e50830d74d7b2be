-- What the catalogue has about a table for a mirror: one row per given column, in their order.
select c.relkind::text as relkind, n.nspname::text as schema, c.relname::text as relation, w.name,
       format_type(a.atttypid, null) as type, a.attnotnull,
       -- A valid unique index on this column alone, without a predicate.
       exists (select from pg_index i
                where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indpred is null
                  and i.indnkeyatts = 1 and i.indkey[0] = a.attnum) as is_unique,
       exists (select from pg_inherits h where h.inhparent = c.oid) as inherited,
       (select count(*) from pg_trigger t
         where t.tgrelid = c.oid and t.tgname = any ($3) and t.tgenabled <> 'D') as triggers,
       -- Update triggers of an earlier release do not pass the former versions of the rows.
       exists (select from pg_trigger t
                where t.tgrelid = c.oid and t.tgname = any ($3) and t.tgtype & 16 = 16
                  and t.tgtype & 1 = 0 and t.tgoldtable is null) as silent
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
 cross join unnest($2::text[]) with ordinality as w (name, place)
  left join pg_attribute a
    on a.attrelid = c.oid and a.attname = w.name and a.attnum > 0 and not a.attisdropped
 where c.oid = to_regclass($1)
 order by w.place
