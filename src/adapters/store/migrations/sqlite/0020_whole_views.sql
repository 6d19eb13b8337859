-- Of a selection that kept everything: how many tools that were, and the hash of their names. It has no rows in
-- selection_event_tool.
ALTER TABLE selection_event ADD COLUMN kept INTEGER;
ALTER TABLE selection_event ADD COLUMN view BLOB;
-- selection_event.model and .vector are not written any more: nothing read them. What is there goes with its event.
