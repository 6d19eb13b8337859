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
