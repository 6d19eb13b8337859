-- What tools are found by beside what their servers say.
CREATE TABLE enrichment (
    tool_hash  BLOB    NOT NULL CHECK (length(tool_hash) = 32), -- of server and definition
    model      TEXT    NOT NULL, -- the language model that wrote it; empty: an admin
    context    TEXT    NOT NULL,
    queries    TEXT    NOT NULL, -- JSON array of texts
    written_at INTEGER NOT NULL,
    used_at    INTEGER NOT NULL,
    PRIMARY KEY (tool_hash, model)
) STRICT, WITHOUT ROWID;
