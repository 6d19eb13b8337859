-- What a user or a named key has switched off for itself, such as the selection of tools. Without a row, it is on.
CREATE TABLE user_switch (
    owner      text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    changed_at bigint NOT NULL,
    PRIMARY KEY (owner, name)
);

INSERT INTO state_version (part, version) VALUES ('switches', 0);

CREATE TRIGGER user_switch_changed
    AFTER INSERT OR DELETE OR UPDATE ON user_switch FOR EACH STATEMENT EXECUTE FUNCTION note_change('switches');

-- What else a person's page needs to know of the caller: JSON with email, name, groups, and the servers that take the caller's secrets.
ALTER TABLE connect_visit ADD COLUMN caller text;
