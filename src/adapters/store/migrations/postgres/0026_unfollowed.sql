-- Calls and verdicts, as JSON, whose selections their services don't know. The service that has selected learns from them and removes them;
-- otherwise they are removed after some minutes. A crash of the server empties the table, which costs only what they would have taught.
CREATE UNLOGGED TABLE learned_unfollowed (
    number  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    service text COLLATE "C" NOT NULL, -- the process that doesn't know the selection
    what    text NOT NULL,
    at      timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX learned_unfollowed_at ON learned_unfollowed (at);
