-- What every session of the engine needs. Not sent through a transaction pooler.
-- A vanished client must not keep rows locked: the sweeps skip locked rows, so the job would wait
-- as long as the lock lives.
set idle_in_transaction_session_timeout = '30s';
set client_connection_check_interval = '10s';
set statement_timeout = '60s';
set lock_timeout = '10s';
-- "Stored" means stored. Stronger settings stay.
select set_config('synchronous_commit', 'on', false)
 where current_setting('synchronous_commit') in ('off', 'local');
-- Our statements read few rows; compiling their plans costs more than running them.
set jit = off;
