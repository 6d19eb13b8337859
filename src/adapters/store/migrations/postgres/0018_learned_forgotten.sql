-- What services have forgotten of what use has taught, as JSON. All other services forget it too, in the order of the numbers.
CREATE TABLE learned_forgotten (
    number  bigint PRIMARY KEY, -- the number of the change
    service text COLLATE "C" NOT NULL, -- the process that has forgotten it
    what    text NOT NULL,
    at      bigint NOT NULL
);

INSERT INTO state_version (part, version) VALUES ('learning', 0);

-- The same as note_change, which can't return the number.
CREATE FUNCTION note_forgetting() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    next_number bigint;
BEGIN
    UPDATE state_version SET version = version + 1 WHERE part = 'all' RETURNING version INTO next_number;
    UPDATE state_version SET version = next_number WHERE part = 'learning';
    PERFORM pg_notify('toolsieve_' || left(TG_TABLE_SCHEMA, 50), '');
    NEW.number := next_number;
    RETURN NEW;
END
$$;

CREATE TRIGGER learned_forgotten_noted
    BEFORE INSERT ON learned_forgotten FOR EACH ROW EXECUTE FUNCTION note_forgetting();
