-- MCP servers over which the API has a say: those that it added, and those of the servers file that it switched off or restarted.
-- The secret values of an entry are a row of the table secret, whose owner is no principal.
CREATE TABLE managed_server (
    name       text COLLATE "C" PRIMARY KEY,
    entry      text,             -- JSON, without secret values; NULL: the servers file defines the server
    enabled    boolean NOT NULL,
    restarts   bigint  NOT NULL,
    changed_at bigint  NOT NULL
);

INSERT INTO state_version (part, version) VALUES ('servers', 0);

CREATE TRIGGER managed_server_changed
    AFTER INSERT OR DELETE OR UPDATE ON managed_server FOR EACH STATEMENT EXECUTE FUNCTION note_change('servers');
