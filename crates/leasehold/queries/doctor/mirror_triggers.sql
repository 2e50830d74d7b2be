-- Mirrors with the triggers on their tables, enabled and disabled. Reads the catalogue, which every role may.
select m.name, m.table_name, c.oid is not null, c.oid::regclass::text,
       array(select t.tgname::text from pg_trigger t
              where t.tgrelid = c.oid and t.tgenabled in ('O', 'A')),
       array(select t.tgname::text from pg_trigger t
              where t.tgrelid = c.oid and t.tgenabled not in ('O', 'A'))
  from leasehold_internal.mirror m
  left join pg_namespace n on n.nspname = case when position('.' in m.table_name) > 0
       then split_part(m.table_name, '.', 1) else 'public' end
  left join pg_class c on c.relnamespace = n.oid and c.relkind in ('r', 'p')
       and c.relname = substr(m.table_name, position('.' in m.table_name) + 1)
 order by m.name
