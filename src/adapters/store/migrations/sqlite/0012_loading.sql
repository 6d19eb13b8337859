-- The mode of a session's documents, where a request names no other.
ALTER TABLE session ADD COLUMN mode TEXT NOT NULL DEFAULT 'full';

-- What is loaded into a session beside what it began with, in the order of the numbers.
CREATE TABLE session_group (
    id      INTEGER PRIMARY KEY,
    session TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    kind    TEXT NOT NULL CHECK (kind IN ('toolset', 'server', 'tag')),
    name    TEXT NOT NULL,
    UNIQUE (session, kind, name)
) STRICT;

-- What conversations did with their tools: sums for each, as long as events are kept.
CREATE TABLE usage_conversation (
    principal     TEXT    NOT NULL,
    kind          TEXT    NOT NULL CHECK (kind IN ('chat', 'session', 'client')),
    conversation  TEXT    NOT NULL, -- the id of a chat; a hash of that of a session
    mode          TEXT,             -- of the last list
    began_at      INTEGER NOT NULL,
    last_at       INTEGER NOT NULL,
    initial_tools INTEGER,          -- bound at first; NULL: never told
    final_tools   INTEGER,          -- bound last
    selections    INTEGER NOT NULL,
    finds         INTEGER NOT NULL,
    loads         INTEGER NOT NULL,
    unloads       INTEGER NOT NULL,
    calls         INTEGER NOT NULL,
    errors        INTEGER NOT NULL,
    PRIMARY KEY (principal, kind, conversation)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_conversation_last ON usage_conversation (last_at);

-- What was loaded and taken back, by days since 1970, with how long loading took (see domain::usage::LatencyBucket).
CREATE TABLE usage_load (
    day    INTEGER NOT NULL,
    kind   TEXT    NOT NULL, -- of the group
    name   TEXT    NOT NULL,
    bucket INTEGER NOT NULL, -- -1: it was taken back
    times  INTEGER NOT NULL,
    PRIMARY KEY (day, kind, name, bucket)
) STRICT, WITHOUT ROWID;
