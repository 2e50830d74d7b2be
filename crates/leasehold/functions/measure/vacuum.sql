-- Returns what keeps Postgres from removing dead rows here, the one that holds it back furthest first:
-- sessions, prepared transactions, replication slots and standbys, each with its remedy. No text of a
-- query: it may hold a secret. `xids` counts the transactions that have begun since.
--
-- Every role may see the ids of a session's transaction. Its start, its state and its kind are visible
-- only to roles that may read statistics (grant the owner of these functions pg_read_all_stats); slots
-- and standbys never have them. Then the age is a lower bound, computed from the transaction ids in the
-- samples of the last day.
create or replace function leasehold_internal.vacuum_holders()
returns table (kind text, who text, remedy text, age double precision, xids bigint)
language plpgsql stable security definer
set search_path = leasehold, pg_temp set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    next_xid double precision := pg_snapshot_xmax(pg_current_snapshot())::text::double precision;
begin
    return query
    with holder as (
        select case when a.sends then 'standby' else 'session' end as kind,
               concat_ws(', ', case when a.sends then 'a standby behind pid ' else 'session pid ' end || a.pid,
                   'application ' || nullif(left(a.application_name, 64), ''),
                   'role ' || a.usename, coalesce(a.state, 'in a state that only pg_read_all_stats sees')) as who,
               case when a.sends then 'look at the standby: hot_standby_feedback holds back for its queries'
                    else 'end it: select pg_terminate_backend(' || a.pid || ')' end as remedy,
               a.xact_start as since,
               greatest(age(a.backend_xmin), age(a.backend_xid)) as behind
          from (select *, coalesce(s.backend_type = 'walsender', s.datname is null) as sends
                  from pg_stat_activity s
                 -- The server's own processes have no role.
                 where s.usesysid is not null and s.pid <> pg_backend_pid()
                   and coalesce(s.backend_type in ('client backend', 'walsender'), true)
                   and (s.backend_xmin is not null or s.backend_xid is not null)) a
         where a.sends or a.datname = current_database()
        union all
        select 'prepared', 'prepared transaction ' || quote_literal(left(p.gid, 200)) || ', role ' || p.owner,
               'end it: rollback prepared ' || quote_literal(left(p.gid, 200)) || ' (or commit prepared)',
               p.prepared, age(p.transaction)
          from pg_prepared_xacts p where p.database = current_database()
        union all
        select 'slot', 'replication slot ' || quote_ident(s.slot_name)
                   || case when s.active then ', in use by pid ' || s.active_pid else ', not in use' end,
               case when s.active then 'look at the standby: hot_standby_feedback holds back for its queries'
                    else 'if no standby needs it: select pg_drop_replication_slot('
                         || quote_literal(s.slot_name) || ')' end,
               null, age(s.xmin)
          from pg_replication_slots s where s.xmin is not null
    )
    select h.kind, regexp_replace(h.who, '[[:cntrl:]]', '?', 'g'), h.remedy,
           greatest(extract(epoch from clock_timestamp() - coalesce(h.since, before.at)), 0)::double precision,
           h.behind::bigint
      from holder h
      left join lateral (
        -- Ids up to this one were assigned when that minute was sampled. One index lookup per minute,
        -- and only for holders without a start time.
        select coalesce(max(m.at) filter (where m.value <= next_xid - h.behind) + interval '2 minutes',
                        min(m.at)) as at
          from generate_series(date_trunc('minute', statement_timestamp()) - interval '24 hours',
                               date_trunc('minute', statement_timestamp()), interval '1 minute') as g (minute)
         cross join lateral (
            select s.at, s.value from leasehold_internal.measure s
             where s.at = g.minute and s.kind = 'database' and s.subject = '' and s.metric = 'next_xid'
             limit 1) m
         where h.since is null) before on true
     order by h.behind desc nulls last, 4 desc;
end $$;
