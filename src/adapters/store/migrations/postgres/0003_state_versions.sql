-- Services keep some tables in memory. Each change of such a table gets the next number, and all services are notified when it is
-- committed.
CREATE TABLE state_version (
    part    text COLLATE "C" PRIMARY KEY, -- 'all': the number of the last change
    version bigint NOT NULL
);

INSERT INTO state_version (part, version)
VALUES ('all', 0), ('keys', 0), ('policy', 0), ('toolsets', 0), ('tools', 0), ('definitions', 0);

CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    number bigint;
BEGIN
    -- Other transactions that change such a table wait here, so numbers are committed in their order.
    UPDATE state_version SET version = version + 1 WHERE part = 'all' RETURNING version INTO number;
    UPDATE state_version SET version = number WHERE part = TG_ARGV[0];
    PERFORM pg_notify('toolsieve_' || left(TG_TABLE_SCHEMA, 50), '');
    RETURN NULL;
END
$$;

-- Without the time of the last use, and without the times when servers listed their tools.
CREATE TRIGGER api_key_changed
    AFTER INSERT OR DELETE OR UPDATE OF name, hash, servers, toolsets, key_groups, trusted, expires_at, revoked_at
    ON api_key FOR EACH STATEMENT EXECUTE FUNCTION note_change('keys');
CREATE TRIGGER policy_changed
    AFTER INSERT OR DELETE OR UPDATE ON policy FOR EACH STATEMENT EXECUTE FUNCTION note_change('policy');
CREATE TRIGGER toolset_changed
    AFTER INSERT OR DELETE OR UPDATE ON toolset FOR EACH STATEMENT EXECUTE FUNCTION note_change('toolsets');
CREATE TRIGGER tool_facts_changed
    AFTER INSERT OR DELETE OR UPDATE ON tool_facts FOR EACH STATEMENT EXECUTE FUNCTION note_change('tools');
CREATE TRIGGER definition_approved
    AFTER INSERT OR UPDATE OF approved_at ON definition FOR EACH ROW WHEN (NEW.approved_at IS NOT NULL)
    EXECUTE FUNCTION note_change('definitions');
