-- Toolsets that administrators gave over the API.
CREATE TABLE toolset (
    name       TEXT    NOT NULL PRIMARY KEY,
    definition TEXT    NOT NULL, -- JSON
    saved_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The toolsets that a key is kept to: JSON array; NULL: none.
ALTER TABLE api_key ADD COLUMN toolsets TEXT;

-- What somebody chose to have published at an address of its own.
CREATE TABLE session (
    id         TEXT    NOT NULL PRIMARY KEY,
    principal  TEXT    NOT NULL,
    contents   TEXT    NOT NULL, -- JSON
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX session_principal ON session (principal, used_at);
CREATE INDEX session_expires ON session (expires_at);

-- Counts the changes of a chat's set, so that of two processes none writes over what the other wrote.
ALTER TABLE chat_set ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
