-- Whether the chat's last selection had not offered what was called, or the best of what was found.
ALTER TABLE selection_event ADD COLUMN recovered INTEGER;
-- The message of what was offered or found; only where the settings want it.
ALTER TABLE selection_event ADD COLUMN message TEXT;

CREATE INDEX selection_event_selection ON selection_event (selection) WHERE kind = 'offered';
CREATE INDEX selection_event_chat ON selection_event (principal, chat, id) WHERE kind = 'offered' AND chat IS NOT NULL;

-- What callers said of a tool and a selection: one word for each.
CREATE TABLE feedback (
    selection TEXT    NOT NULL,
    server    TEXT    NOT NULL,
    tool      TEXT    NOT NULL,
    principal TEXT    NOT NULL,
    at        INTEGER NOT NULL,
    verdict   TEXT    NOT NULL,
    PRIMARY KEY (selection, server, tool)
) STRICT, WITHOUT ROWID;

CREATE INDEX feedback_at ON feedback (at);

-- Sums over the events, by days since 1970: they outlive the events, and are quick to read.
CREATE TABLE usage_day (
    day                INTEGER NOT NULL PRIMARY KEY,
    selections         INTEGER NOT NULL,
    searches           INTEGER NOT NULL,
    recovered_searches INTEGER NOT NULL,
    tokens_before      INTEGER NOT NULL,
    tokens_after       INTEGER NOT NULL
) STRICT;

CREATE TABLE usage_tool (
    day         INTEGER NOT NULL,
    server      TEXT    NOT NULL,
    tool        TEXT    NOT NULL,
    offered     INTEGER NOT NULL,
    called      INTEGER NOT NULL,
    succeeded   INTEGER NOT NULL,
    tool_errors INTEGER NOT NULL,
    recovered   INTEGER NOT NULL,
    called_at   INTEGER NOT NULL, -- the last call; 0: none
    PRIMARY KEY (day, server, tool)
) STRICT, WITHOUT ROWID;

-- How long calls took: how many in which range (see domain::usage::LatencyBucket).
CREATE TABLE usage_latency (
    day    INTEGER NOT NULL,
    server TEXT    NOT NULL,
    tool   TEXT    NOT NULL,
    bucket INTEGER NOT NULL,
    calls  INTEGER NOT NULL,
    PRIMARY KEY (day, server, tool, bucket)
) STRICT, WITHOUT ROWID;
