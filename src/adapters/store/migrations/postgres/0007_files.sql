-- Files that tools returned, so that every service can return them by their signed links.
CREATE TABLE stored_file (
    id        bytea  PRIMARY KEY CHECK (octet_length(id) = 16),
    mime_type text   NOT NULL,
    name      text,
    expires   bigint NOT NULL, -- milliseconds since 1970
    size      bigint NOT NULL,
    bytes     bytea  NOT NULL
);

CREATE INDEX stored_file_expires ON stored_file (expires);

-- Most files are compressed already.
ALTER TABLE stored_file ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- The key that signs links. All services use the same one.
CREATE TABLE link_key (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    key    bytea   NOT NULL
);
