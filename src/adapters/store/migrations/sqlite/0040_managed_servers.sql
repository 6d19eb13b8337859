-- MCP servers over which the API has a say: those that it added, and those of the servers file that it switched off or restarted.
-- The secret values of an entry are a row of the table secret, whose owner is no principal.
CREATE TABLE managed_server (
    name       TEXT    NOT NULL PRIMARY KEY,
    entry      TEXT,             -- JSON, without secret values; NULL: the servers file defines the server
    enabled    INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    restarts   INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
