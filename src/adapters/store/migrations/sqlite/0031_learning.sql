-- What use has taught. A message is kept only if there is evidence for it.
CREATE TABLE learned_message (
    id TEXT PRIMARY KEY NOT NULL,
    -- Vectors of different models can't be compared.
    model TEXT NOT NULL,
    principal TEXT NOT NULL,
    -- One scale (32-bit float, little-endian), then one signed byte per dimension.
    vector BLOB NOT NULL,
    -- The time of the newest evidence, in milliseconds since 1970.
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX learned_message_model ON learned_message (model, at);
CREATE INDEX learned_message_at ON learned_message (at);
CREATE INDEX learned_message_principal ON learned_message (principal);

-- For whom a message counts.
CREATE TABLE learned_message_scope (
    message TEXT NOT NULL REFERENCES learned_message (id) ON DELETE CASCADE,
    scope TEXT NOT NULL,
    PRIMARY KEY (message, scope)
) STRICT, WITHOUT ROWID;

CREATE INDEX learned_message_scope_scope ON learned_message_scope (scope);

-- A message has one row per tool and aspect (call, verdict, order).
CREATE TABLE learned_message_evidence (
    message TEXT NOT NULL REFERENCES learned_message (id) ON DELETE CASCADE,
    server TEXT NOT NULL,
    tool TEXT NOT NULL,
    aspect TEXT NOT NULL,
    kind TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (message, server, tool, aspect)
) STRICT, WITHOUT ROWID;

CREATE INDEX learned_message_evidence_tool ON learned_message_evidence (server, tool);
