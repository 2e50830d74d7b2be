-- Returns whether a live worker works a queue.
select exists (select from leasehold.worker_state where state = 'alive' and $1 = any (queues))
