-- The ids of batches of records, so that a batch that is sent again after an outage is stored once.
CREATE TABLE stored_batch (
    id bytea  PRIMARY KEY CHECK (octet_length(id) = 16),
    at bigint NOT NULL
);

CREATE INDEX stored_batch_at ON stored_batch (at);
