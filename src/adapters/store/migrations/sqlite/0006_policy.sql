-- The rules that administrators gave over the API. Each change is a row, the last one holds.
CREATE TABLE policy (
    version  INTEGER NOT NULL PRIMARY KEY CHECK (version > 0),
    body     TEXT    NOT NULL, -- JSON
    saved_at INTEGER NOT NULL
) STRICT;
