-- What a key may do beside calling tools, or in place of it. NULL: it only calls tools.
ALTER TABLE api_key ADD COLUMN role TEXT;
