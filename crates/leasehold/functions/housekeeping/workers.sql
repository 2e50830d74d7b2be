-- Records that a worker is alive.
create or replace function leasehold_internal.register_worker(
    id text, name text, host text, pid int, version text, queues text[],
    names text[], slots int, busy int, draining boolean
)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold_internal.worker as w
        (id, name, host, pid, version, queues, names, slots, busy, draining_since)
    values (left(register_worker.id, 200), left(register_worker.name, 200), left(register_worker.host, 200), register_worker.pid, left(register_worker.version, 200),
            -- Readers expect names: a null among them would break every list of workers.
            array_remove(register_worker.queues, null), array_remove(register_worker.names, null), greatest(register_worker.slots, 0),
            greatest(register_worker.busy, 0),
            case when register_worker.draining then statement_timestamp() end)
    on conflict (id) do update
        set last_seen_at = statement_timestamp(), busy = excluded.busy,
            draining_since = coalesce(w.draining_since, excluded.draining_since),
            stopped_at = null
$$;

create or replace function leasehold_internal.unregister_worker(id text)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold_internal.worker set stopped_at = statement_timestamp(), busy = 0,
           last_seen_at = statement_timestamp()
     where id = unregister_worker.id
$$;
