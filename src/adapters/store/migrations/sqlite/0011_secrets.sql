-- Secrets that users keep here, sealed. Where each lies is authenticated with it.
CREATE TABLE secret (
    owner      TEXT    NOT NULL, -- a principal
    server     TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    key_id     TEXT    NOT NULL,
    nonce      BLOB    NOT NULL CHECK (length(nonce) = 12),
    sealed     BLOB    NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (owner, server, name)
) STRICT, WITHOUT ROWID;
