-- How often calls filled the parameters of a tool, by caller. An empty parameter counts the calls themselves.
CREATE TABLE learned_parameter (
    server TEXT NOT NULL,
    tool TEXT NOT NULL,
    parameter TEXT NOT NULL,
    -- The id of the caller's key; `-` without a named key.
    key TEXT NOT NULL,
    principal TEXT NOT NULL,
    calls INTEGER NOT NULL,
    -- The time of the last call, in milliseconds since 1970.
    at INTEGER NOT NULL,
    PRIMARY KEY (server, tool, parameter, key, principal)
) STRICT, WITHOUT ROWID;

CREATE INDEX learned_parameter_principal ON learned_parameter (principal);
CREATE INDEX learned_parameter_at ON learned_parameter (at);
