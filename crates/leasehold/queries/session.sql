-- Settings of every session of the engine. Not sent through a transaction pooler. A vanished client
-- must not keep rows locked: claims and housekeeping skip locked rows, so a locked job would wait as
-- long as the lock lives.
set idle_in_transaction_session_timeout = '30s';
set client_connection_check_interval = '10s';
set statement_timeout = '60s';
set lock_timeout = '10s';
-- A commit must be durable when it returns. Stronger settings stay.
select set_config('synchronous_commit', 'on', false)
 where current_setting('synchronous_commit') in ('off', 'local');
-- Every transition is one conditional statement that waits for a row and checks it again. Above READ
-- COMMITTED it would fail instead, and more than half of all claims with it.
set default_transaction_isolation = 'read committed';
-- The engine's statements read few rows; compiling their plans costs more than running them.
set jit = off;
