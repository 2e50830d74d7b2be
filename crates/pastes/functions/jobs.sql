-- The jobs that the functions enqueue: name, queue and the number of attempts. `src/worker.rs` has the same
-- list for the worker; a test compares the two.
create or replace function pastes.jobs()
returns table (job text, name text, queue text, max_attempts int)
language sql immutable as $$
    values ('upload', 'pastes.upload', 'pastes', 6),
           ('delete_objects', 'pastes.delete_objects', 'pastes.objects', 1000),
           ('end', 'pastes.end', 'pastes.objects', 20),
           ('end_banned', 'pastes.end_banned', 'pastes.objects', 20)
$$;
