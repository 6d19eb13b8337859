-- The id of the named key whose selection it was. NULL for other callers, and for what an earlier version wrote.
ALTER TABLE selection_event ADD COLUMN key TEXT;
