-- The identity of the index that belongs to this database.

-- Records the index that a process uses, unless one is recorded; returns the recorded one. A process
-- that only searches records nothing.
create or replace function annotations.index_used(identity text, place text, writes boolean)
returns table (known_identity text, known_place text, known_since timestamptz)
language plpgsql volatile set search_path = annotations, pg_temp as $$
#variable_conflict use_column
begin
    if writes then
        insert into annotations.index_identity (identity, place)
        values (index_used.identity, index_used.place) on conflict (only_row) do nothing;
    end if;
    return query select i.identity, i.place, i.recorded_at from annotations.index_identity i;
end $$;

-- Forgets the recorded index, so that the next one that is used becomes the database's own. Returns the
-- place of the former one; null if none was recorded.
create or replace function annotations.forget_index()
returns text
language plpgsql volatile set search_path = annotations, pg_temp as $$
declare
    former text;
begin
    delete from annotations.index_identity i returning i.place into former;
    return former;
end $$;
