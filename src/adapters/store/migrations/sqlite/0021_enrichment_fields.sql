-- The fields by which tools are found: what an administrator wrote as context says what the tool does, and queries stay.
ALTER TABLE enrichment RENAME COLUMN context TO function;
ALTER TABLE enrichment ADD COLUMN tags TEXT NOT NULL DEFAULT '[]'; -- JSON array of texts

-- Models wrote other fields until now. They are asked again if enrichment is switched on.
DELETE FROM enrichment WHERE model <> '';
