-- What the engine measures of itself. New tables only; nothing that was there before is locked.
create table leasehold.measure (
    at timestamptz not null,
    kind text not null,
    subject text collate "C" not null,
    metric text not null,
    value double precision not null,
    primary key (at, kind, subject, metric)
);
