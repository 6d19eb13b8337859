-- The id of the named key whose selection it was. Empty for other callers; NULL for what an earlier version wrote.
ALTER TABLE selection_event ADD COLUMN key TEXT;
