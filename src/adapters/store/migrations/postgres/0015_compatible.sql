-- The number of the oldest migration whose version may use this schema. A migration that removes, renames or reinterprets something sets
-- it to its own number. One that only adds something leaves it.
ALTER TABLE installation ADD COLUMN compatible_from bigint NOT NULL DEFAULT 15;
