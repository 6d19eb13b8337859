-- What admins wrote about tools, by the names of server and tool, so that it stays over a tool's update.
CREATE TABLE tool_facts (
    server     TEXT    NOT NULL,
    tool       TEXT    NOT NULL,
    version    INTEGER NOT NULL CHECK (version > 0),
    facts      TEXT,             -- JSON; NULL: it was taken back
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (server, tool)
) STRICT, WITHOUT ROWID;

-- The definition of every tool that was ever seen, as it was seen first or approved last.
CREATE TABLE definition (
    server       TEXT    NOT NULL,
    tool         TEXT    NOT NULL,
    fingerprint  BLOB    NOT NULL CHECK (length(fingerprint) = 32),
    body         TEXT    NOT NULL, -- JSON
    is_new       INTEGER NOT NULL CHECK (is_new IN (0, 1)), -- its server was known before it
    first_seen   INTEGER NOT NULL,
    noticed      BLOB CHECK (length(noticed) = 32), -- another definition that was seen and logged
    noticed_at   INTEGER,
    approved_at  INTEGER,
    PRIMARY KEY (server, tool)
) STRICT;
