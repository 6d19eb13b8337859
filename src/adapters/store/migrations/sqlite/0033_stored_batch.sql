-- The ids of batches of records, so that a batch that is sent again after an outage is stored once.
CREATE TABLE stored_batch (
    id BLOB    PRIMARY KEY CHECK (length(id) = 16),
    at INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

CREATE INDEX stored_batch_at ON stored_batch (at);
