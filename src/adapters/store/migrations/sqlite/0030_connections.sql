-- Users' sign-ins to MCP servers. The tokens are sealed as secrets are.
CREATE TABLE connection (
    owner         TEXT    NOT NULL, -- a principal, or the owner of a sign-in for all
    server        TEXT    NOT NULL,
    sign_in       TEXT    NOT NULL,
    version       INTEGER NOT NULL,
    ended         TEXT,
    issuer        TEXT    NOT NULL,
    scopes        TEXT    NOT NULL, -- JSON array of texts
    wanted        TEXT    NOT NULL, -- JSON array of texts
    expires_at    INTEGER,
    connected_at  INTEGER NOT NULL,
    claimed_until INTEGER,          -- until then, somebody refreshes the tokens
    name          TEXT    NOT NULL,
    key_id        TEXT    NOT NULL,
    nonce         BLOB    NOT NULL CHECK (length(nonce) = 12),
    sealed        BLOB    NOT NULL,
    updated_at    INTEGER NOT NULL,
    PRIMARY KEY (owner, server)
) STRICT, WITHOUT ROWID;

-- Sign-ins that a person has begun, by the hash of their state.
CREATE TABLE pending_sign_in (
    state      TEXT    NOT NULL PRIMARY KEY,
    session    TEXT    NOT NULL,
    owner      TEXT    NOT NULL,
    server     TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    key_id     TEXT    NOT NULL,
    nonce      BLOB    NOT NULL CHECK (length(nonce) = 12),
    sealed     BLOB    NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The service as a client of authorization servers.
CREATE TABLE oauth_client (
    server     TEXT    NOT NULL,
    issuer     TEXT    NOT NULL,
    owner      TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    key_id     TEXT    NOT NULL,
    nonce      BLOB    NOT NULL CHECK (length(nonce) = 12),
    sealed     BLOB    NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (server, issuer)
) STRICT, WITHOUT ROWID;

-- Links to the page on which a person signs in, and the sessions that these links open.
CREATE TABLE connect_visit (
    kind       TEXT    NOT NULL CHECK (kind IN ('link', 'session')),
    id         TEXT    NOT NULL,
    owner      TEXT    NOT NULL,
    person     TEXT    NOT NULL,
    servers    TEXT    NOT NULL, -- JSON array of texts
    server     TEXT,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
