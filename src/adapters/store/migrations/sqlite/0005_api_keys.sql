-- Keys with names. Of a key itself only its SHA-256 is here.
CREATE TABLE api_key (
    id           TEXT    NOT NULL PRIMARY KEY,
    name         TEXT    NOT NULL,
    hash         BLOB    NOT NULL CHECK (length(hash) = 32),
    servers      TEXT,             -- JSON array; NULL: all
    key_groups   TEXT    NOT NULL, -- JSON array
    trusted      INTEGER NOT NULL CHECK (trusted IN (0, 1)),
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    revoked_at   INTEGER,
    last_used_at INTEGER
) STRICT, WITHOUT ROWID;

-- Whoever has a name in a rule is one.
CREATE UNIQUE INDEX api_key_name ON api_key (name) WHERE revoked_at IS NULL;
