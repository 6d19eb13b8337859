-- What a user or a named key has switched off for itself, such as the selection of tools. Without a row, it is on.
CREATE TABLE user_switch (
    owner      TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (owner, name)
) STRICT, WITHOUT ROWID;

-- What else a person's page needs to know of the caller: JSON with email, name, groups, and the servers that take the caller's secrets.
ALTER TABLE connect_visit ADD COLUMN caller TEXT;
