-- What use has taught. A message is kept only if there is evidence for it.
CREATE TABLE learned_message (
    id        text COLLATE "C" PRIMARY KEY,
    model     text COLLATE "C" NOT NULL, -- vectors of different models can't be compared
    principal text COLLATE "C" NOT NULL,
    vector    bytea  NOT NULL, -- one scale (32-bit float, little-endian), then one signed byte per dimension
    at        bigint NOT NULL  -- the time of the newest evidence
);

CREATE INDEX learned_message_model ON learned_message (model, at);
CREATE INDEX learned_message_at ON learned_message (at);
CREATE INDEX learned_message_principal ON learned_message (principal);

-- For whom a message counts.
CREATE TABLE learned_message_scope (
    message text COLLATE "C" NOT NULL REFERENCES learned_message (id) ON DELETE CASCADE,
    scope   text COLLATE "C" NOT NULL,
    PRIMARY KEY (message, scope)
);

CREATE INDEX learned_message_scope_scope ON learned_message_scope (scope);

-- A message has one row per tool and aspect (call, verdict, order).
CREATE TABLE learned_message_evidence (
    message text COLLATE "C" NOT NULL REFERENCES learned_message (id) ON DELETE CASCADE,
    server  text COLLATE "C" NOT NULL,
    tool    text COLLATE "C" NOT NULL,
    aspect  text COLLATE "C" NOT NULL,
    kind    text COLLATE "C" NOT NULL,
    at      bigint NOT NULL,
    PRIMARY KEY (message, server, tool, aspect)
);

CREATE INDEX learned_message_evidence_tool ON learned_message_evidence (server, tool);
