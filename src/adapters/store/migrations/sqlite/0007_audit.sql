-- Who did what and how it ended. Never arguments or results.
CREATE TABLE audit (
    id          INTEGER PRIMARY KEY,
    at          INTEGER NOT NULL,
    principal   TEXT    NOT NULL,
    action      TEXT    NOT NULL,
    server      TEXT,
    tool        TEXT,
    subject     TEXT,
    allowed     INTEGER NOT NULL CHECK (allowed IN (0, 1)),
    rule_source TEXT,
    rule_number INTEGER,
    outcome     TEXT,
    took_us     INTEGER NOT NULL,
    bytes       INTEGER
) STRICT;

CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_principal ON audit (principal, id);
CREATE INDEX audit_tool ON audit (server, tool, id);
