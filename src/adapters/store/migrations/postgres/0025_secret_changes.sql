-- Services that have connections with a user's former secrets close them. That a secret was sealed with another key is no change.
INSERT INTO state_version (part, version) VALUES ('secrets', 0);

CREATE TRIGGER secret_changed
    AFTER INSERT OR DELETE OR UPDATE OF updated_at ON secret FOR EACH STATEMENT EXECUTE FUNCTION note_change('secrets');
