-- When a server was known to list the tool last: what no server has listed for long goes.
ALTER TABLE definition ADD COLUMN seen_at INTEGER NOT NULL DEFAULT 0;

-- Of what is there nobody knows better than: now.
UPDATE definition SET seen_at = unixepoch() * 1000;
