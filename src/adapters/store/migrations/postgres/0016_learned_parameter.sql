-- How often calls filled the parameters of a tool, by caller. An empty parameter counts the calls themselves.
CREATE TABLE learned_parameter (
    server    text COLLATE "C" NOT NULL,
    tool      text COLLATE "C" NOT NULL,
    parameter text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL, -- the id of the caller's key; `-` without a named key
    principal text COLLATE "C" NOT NULL,
    calls     bigint NOT NULL,
    at        bigint NOT NULL, -- the time of the last call
    PRIMARY KEY (server, tool, parameter, key, principal)
);

CREATE INDEX learned_parameter_principal ON learned_parameter (principal);
CREATE INDEX learned_parameter_at ON learned_parameter (at);
