-- The number of a claim never decreases, even after a failover or a restore that sets the sequence of
-- generations back. For that the database remembers which server drew the last one.
--
-- Locks: none that a claim waits for; everything here is new. An older program works as before: it does
-- not use these two.

-- A number for the server, and for this very sequence, that drew the last generation. A sequence and
-- not a table: every transaction sees its value at once, and the value survives a rollback.
create sequence leasehold.epoch;

-- The row that a claim locks while it moves the generations forward.
create table leasehold.epoch_guard (
    only_row boolean primary key default true check (only_row)
);
insert into leasehold.epoch_guard default values;
