-- A random value for each change. After a failover or a restored backup, a number may be given to another change: only the token then shows
-- that what a service has in memory is something else.
ALTER TABLE state_version ADD COLUMN token uuid NOT NULL DEFAULT gen_random_uuid();

CREATE OR REPLACE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    number bigint;
BEGIN
    -- Other transactions that change such a table wait here, so numbers are committed in their order.
    UPDATE state_version SET version = version + 1, token = gen_random_uuid() WHERE part = 'all' RETURNING version INTO number;
    UPDATE state_version SET version = number, token = gen_random_uuid() WHERE part = TG_ARGV[0];
    PERFORM pg_notify('toolsieve_' || left(TG_TABLE_SCHEMA, 50), '');
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION note_forgetting() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    next_number bigint;
BEGIN
    UPDATE state_version SET version = version + 1, token = gen_random_uuid() WHERE part = 'all' RETURNING version INTO next_number;
    UPDATE state_version SET version = next_number, token = gen_random_uuid() WHERE part = 'learning';
    PERFORM pg_notify('toolsieve_' || left(TG_TABLE_SCHEMA, 50), '');
    NEW.number := next_number;
    RETURN NEW;
END
$$;
