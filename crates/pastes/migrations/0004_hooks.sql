-- Drops the trigger on the engine's table of dead jobs: the worker that buries an upload job marks its paste
-- FAILED, and a schedule finds the others. Also drops functions that have other names or arguments now.
--
-- Locks the table of dead jobs for a moment. An older program returns 503 from then on, until it is replaced.
drop function if exists pastes.upload_buried() cascade;
drop function if exists pastes.create_paste(
    text, uuid, boolean, bytea, text, bytea, interval, text, boolean, bytea, bytea, interval, int);
drop function if exists pastes.create_many(
    text[], uuid[], text[], bytea[], double precision[], text[], boolean[], interval, int);
drop function if exists pastes.look(text[]);
drop function if exists pastes.give_up(bigint[]);
drop function if exists pastes.delete_objects(bigint[]);
drop function if exists pastes.remind_of_doomed(interval, int);
drop function if exists pastes.end_soon(text[], uuid[]);
