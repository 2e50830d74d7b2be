-- Records that a worker is alive. `busy`: how many jobs it runs; `claimed_ahead`: how many wait for its slots.
create or replace function leasehold_internal.announce_worker(
    id text, name text, host text, pid int, version text, queues text[],
    names text[], slots int, busy int, claimed_ahead int, draining boolean
)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    insert into leasehold_internal.worker as w
        (id, name, host, pid, version, queues, names, slots, busy, claimed_ahead, draining_since)
    values (left(announce_worker.id, 200), left(announce_worker.name, 200), left(announce_worker.host, 200), announce_worker.pid, left(announce_worker.version, 200),
            -- Readers expect names: a null among them would break every list of workers.
            array_remove(announce_worker.queues, null), array_remove(announce_worker.names, null), greatest(announce_worker.slots, 0),
            greatest(announce_worker.busy, 0), greatest(announce_worker.claimed_ahead, 0),
            case when announce_worker.draining then statement_timestamp() end)
    on conflict (id) do update
        set last_seen_at = statement_timestamp(), busy = excluded.busy,
            claimed_ahead = excluded.claimed_ahead,
            draining_since = coalesce(w.draining_since, excluded.draining_since),
            stopped_at = null
$$;

-- The same for programs of an older release.
create or replace function leasehold_internal.register_worker(
    id text, name text, host text, pid int, version text, queues text[],
    names text[], slots int, busy int, draining boolean
)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    select leasehold_internal.announce_worker(id, name, host, pid, version, queues, names, slots, busy, 0, draining)
$$;

create or replace function leasehold_internal.unregister_worker(id text)
returns void
language sql volatile security definer set search_path = leasehold, pg_temp as $$
    update leasehold_internal.worker set stopped_at = statement_timestamp(), busy = 0, claimed_ahead = 0,
           last_seen_at = statement_timestamp()
     where id = unregister_worker.id
$$;
