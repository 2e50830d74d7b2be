-- The fingerprint of a key in a version: 52 bits, the same as the library's `fingerprint`.
create or replace function leasehold.fingerprint(key text, version bigint)
returns bigint
language sql immutable strict parallel safe as $$
    select ('x' || encode(substring(sha256(convert_to(key || ':' || version, 'UTF8')) from 1 for 7),
                          'hex'))::bit(56)::bigint >> 4
$$;
