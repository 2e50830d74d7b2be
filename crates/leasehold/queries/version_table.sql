-- Which migrations ran here. Version 0 stands for the functions and views. It checks before it creates:
-- a role without the right to create succeeds if everything exists, and Postgres sends no notice about
-- that.
do $$ begin
    if to_regnamespace('leasehold') is null then
        create schema leasehold;
    end if;
    if to_regclass('leasehold.schema_version') is null then
        create table leasehold.schema_version (
            version int primary key,
            name text not null,
            checksum bytea not null,
            applied_at timestamptz not null default statement_timestamp()
        );
    end if;
    if not exists (select from pg_attribute a
                    where a.attrelid = 'leasehold.schema_version'::regclass
                      and a.attname = 'oldest_reader' and not a.attisdropped) then
        -- The number of the release that wrote the row, and of the oldest release whose programs can
        -- work with it. Null: a release from before these numbers.
        alter table leasehold.schema_version add column release int, add column oldest_reader int;
    end if;
end $$;
