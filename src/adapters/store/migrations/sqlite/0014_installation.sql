-- The one row: which installation the file belongs to. A folder beside the file says the same.
CREATE TABLE installation (
    only    INTEGER NOT NULL PRIMARY KEY CHECK (only = 1),
    id      TEXT,            -- a UUID; NULL until the first start
    refused INTEGER NOT NULL -- counts writes whose commit failed
) STRICT;

INSERT INTO installation (only, id, refused) VALUES (1, NULL, 0);
