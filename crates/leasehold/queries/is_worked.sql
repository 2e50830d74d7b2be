-- Returns whether a live worker works a queue, and whether one of them has a handler for a name.
select count(*) > 0 as worked, coalesce(bool_or($2 = any (names)), false) as handled
  from leasehold.workers where state = 'alive' and $1 = any (queues)
