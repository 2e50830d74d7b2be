-- Sessions of browsers. Until now the cookie of a browser held the user's token itself, so that logging out
-- left a valid credential behind.
--
-- The reference to `token` locks that table against writes for as long as it takes to make an empty table. An
-- older program works with it as before; browsers that logged in through it log in again.
create table annotations.session (
    -- Of the random text in the cookie.
    hash bytea primary key,
    -- The token with which the user logged in. A session ends with its token.
    token_hash bytea not null references annotations.token on delete cascade,
    expires_at timestamptz not null
);
create index session_of_token on annotations.session (token_hash, expires_at);
create index session_age on annotations.session (expires_at);
