-- The order in which a queue is claimed, as an index; and since when the server has been up.
--
-- Why: an index that begins with the name makes a claim visit every name, and lock in each as many rows
-- as it wants in all. This one holds a queue in the order in which its jobs run, so a claim reads and
-- locks only what it takes. Names are compared on the row.
-- Locks: writes to `job` wait while the two indexes are built: each reads the waiting and running jobs
-- once, without their kwargs.
-- An old binary sees: functions of the names that it calls (functions/105_former.sql), which claim by
-- the new index.

-- `+id`, not `id`: a search for ids must find no index but the primary key. Where vacuum saw an empty
-- table, as it often does in a queue that keeps up, the planner estimates that reading a whole index is
-- cheap, keeps that plan, and every finish reads every job once the queue has grown.
create index job_order_idx on leasehold.job (queue, priority, scheduled_at, (+id));

-- Jobs whose worker died.
drop index leasehold.job_lost_idx;
create index job_lost_idx on leasehold.job (queue, priority, scheduled_at, (+id)) where lost_count > 0;

drop index leasehold.job_claim_idx;

-- Functions of the old index. Those that former workers call are created anew with the others.
drop function if exists leasehold.claim_lanes(
    text, text, int, interval, uuid, text[], int[], timestamptz[], bigint[]);
drop function if exists leasehold.lanes(text, text[]);
drop function if exists leasehold.last_chance_waits(text, text[]);
drop function if exists leasehold.claim_lost(text, text, interval, uuid, text[], boolean);

-- One row: since when this server has been up without a break. Unlogged on purpose: a crash and a
-- promotion empty the table, and the next expiry records that the server is back. A lease that could
-- not be renewed because the server was down must not count as the death of its worker.
create unlogged table leasehold.server_start (
    only_row boolean primary key default true constraint server_start_is_one_row check (only_row),
    since timestamptz not null default statement_timestamp(),
    -- The server start that the row belongs to: a clean restart keeps the row.
    started timestamptz not null default pg_postmaster_start_time()
);
insert into leasehold.server_start default values;
