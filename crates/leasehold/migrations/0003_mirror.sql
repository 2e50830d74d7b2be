-- What mirrors know. New tables only; nothing that was there before is locked.
create table leasehold.mirror (
    name text collate "C" primary key
        constraint mirror_name_form check (name ~ '^[a-z0-9][a-z0-9_.-]{0,63}$')
);
