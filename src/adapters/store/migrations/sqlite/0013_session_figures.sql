-- What happened in each session (a chat, a session's address, a session of an MCP client), as sums over its events.
CREATE TABLE usage_session (
    session            BLOB    NOT NULL PRIMARY KEY, -- a hash of whose it is and its name
    arm                TEXT    CHECK (arm IN ('static', 'dynamic')), -- of a comparison
    first_at           INTEGER NOT NULL,
    last_at            INTEGER NOT NULL,
    selections         INTEGER NOT NULL,
    initial_tools      INTEGER, -- of the first selection
    final_tools        INTEGER, -- of the last one
    tokens_before      INTEGER NOT NULL,
    tokens_after       INTEGER NOT NULL,
    searches           INTEGER NOT NULL,
    recovered_searches INTEGER NOT NULL,
    loads              INTEGER NOT NULL,
    unloads            INTEGER NOT NULL,
    calls              INTEGER NOT NULL,
    succeeded          INTEGER NOT NULL,
    tool_errors        INTEGER NOT NULL,
    longest_load_us    INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_session_last ON usage_session (last_at);

-- How long loads took: how many in which range (see domain::usage::LatencyBucket).
CREATE TABLE usage_session_load (
    session BLOB    NOT NULL REFERENCES usage_session (session) ON DELETE CASCADE,
    bucket  INTEGER NOT NULL,
    loads   INTEGER NOT NULL,
    PRIMARY KEY (session, bucket)
) STRICT, WITHOUT ROWID;
