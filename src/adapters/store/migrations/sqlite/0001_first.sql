-- "TSIV": tells our files from those of other programs.
PRAGMA application_id = 1414744406;

-- The last good answer of every server.
CREATE TABLE listing (
    server       TEXT    NOT NULL PRIMARY KEY,
    title        TEXT,
    version      TEXT,
    instructions TEXT,
    tools        TEXT    NOT NULL, -- JSON array of the raw tools, in the server's order
    skipped      TEXT    NOT NULL, -- JSON array of {"tool", "reason"}
    fetched_at   INTEGER NOT NULL  -- milliseconds since 1970, as every time here
) STRICT;

-- Names of embedding models, so that a vector's row does not repeat one.
CREATE TABLE model (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE vector (
    model     INTEGER NOT NULL REFERENCES model (id) ON DELETE CASCADE,
    text_hash BLOB    NOT NULL CHECK (length(text_hash) = 32),
    data      BLOB    NOT NULL CHECK (length(data) % 4 = 0), -- f32, little endian
    PRIMARY KEY (model, text_hash)
) STRICT;

CREATE TABLE token_count (
    definition_hash BLOB    NOT NULL PRIMARY KEY CHECK (length(definition_hash) = 32),
    tokens          INTEGER NOT NULL CHECK (tokens >= 0)
) STRICT, WITHOUT ROWID;

CREATE TABLE chat_set (
    principal  TEXT    NOT NULL,
    chat       TEXT    NOT NULL,
    tools      TEXT    NOT NULL, -- JSON, see domain::chat::ChatSet
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (principal, chat)
) STRICT;

CREATE INDEX chat_set_updated_at ON chat_set (updated_at);

-- What happened to selections. Never a message, an argument or a result.
CREATE TABLE selection_event (
    id        INTEGER PRIMARY KEY,
    at        INTEGER NOT NULL,
    kind      TEXT    NOT NULL CHECK (kind IN ('offered', 'called', 'searched')),
    selection TEXT,
    principal TEXT    NOT NULL,
    chat      TEXT,
    model     INTEGER REFERENCES model (id), -- offered, searched: what made the vector
    vector    BLOB,                          -- offered, searched: the message
    outcome   TEXT,                          -- called
    took_us   INTEGER                        -- called: microseconds
) STRICT;

CREATE INDEX selection_event_at ON selection_event (at);

CREATE TABLE selection_event_tool (
    event    INTEGER NOT NULL REFERENCES selection_event (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    server   TEXT    NOT NULL,
    tool     TEXT    NOT NULL,
    PRIMARY KEY (event, position)
) STRICT, WITHOUT ROWID;
