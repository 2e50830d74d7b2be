-- The server's clock, and the leases that end later than their length allows: it was set back.
select clock_timestamp(),
       (select count(*) from leasehold_internal.lease l where l.ended_at is null
           and l.lease_expires_at > statement_timestamp() + l.lease + interval '60 seconds')
