-- When a vector or a count was last needed: what no server lists any more goes after a while.
ALTER TABLE vector ADD COLUMN used_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE token_count ADD COLUMN used_at INTEGER NOT NULL DEFAULT 0;

-- Of what is there nobody knows better than: now.
UPDATE vector SET used_at = unixepoch() * 1000;
UPDATE token_count SET used_at = unixepoch() * 1000;
