-- Which migrations ran here. Version 0 stands for the functions and views.
create schema if not exists leasehold;
create table if not exists leasehold.schema_version (
    version int primary key,
    name text not null,
    checksum bytea not null,
    applied_at timestamptz not null default statement_timestamp()
);
