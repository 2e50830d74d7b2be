-- Returns whether a live worker works a queue.
select exists (select from leasehold.workers where state = 'alive' and $1 = any (queues))
