-- What services tell each other about rate limits. A crash of the server empties these tables, which costs nothing but accuracy for a
-- moment: every service knows the last state.
CREATE UNLOGGED TABLE shared_rate (
    key     bytea  PRIMARY KEY CHECK (octet_length(key) = 16),
    due     bigint NOT NULL, -- microseconds since 1970, on the clock of the server
    taken   bigint NOT NULL, -- of the last change, in microseconds
    changed bigint NOT NULL  -- microseconds since 1970
) WITH (fillfactor = 50);

CREATE UNLOGGED TABLE service (
    id   uuid   PRIMARY KEY,
    seen bigint NOT NULL -- microseconds since 1970
) WITH (fillfactor = 50);
