-- What the catalogue has about a table: one row per given column. The schema is included, so that every
-- session means the same table, with any search_path.
select c.relkind::text as relkind, n.nspname::text as schema, c.relname::text as relation, w.name,
       exists (select from pg_inherits h where h.inhparent = c.oid) as has_children,
       format_type(a.atttypid, null) as base_type,
       -- With its length: `character` alone is one character long.
       format_type(a.atttypid, a.atttypmod) as full_type, a.attnotnull as not_null,
       -- A valid unique index on this column alone, without a predicate.
       exists (select from pg_index i
                where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indpred is null
                  and i.indnkeyatts = 1 and i.indkey[0] = a.attnum) as is_unique,
       exists (select from pg_index i
                where i.indrelid = c.oid and i.indisvalid and i.indpred is not null
                  and i.indkey[0] = a.attnum) as begins_partial_index
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
 cross join unnest($2::text[]) as w (name)
  left join pg_attribute a
    on a.attrelid = c.oid and a.attname = w.name and a.attnum > 0 and not a.attisdropped
 where c.oid = to_regclass($1)
