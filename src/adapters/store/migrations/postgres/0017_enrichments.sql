-- Search texts of administrators are a part of the state that every service keeps in memory. Those of language models are not.
INSERT INTO state_version (part, version) VALUES ('enrichments', 0);

CREATE TRIGGER enrichment_written
    AFTER INSERT OR UPDATE OF written_at ON enrichment FOR EACH ROW WHEN (NEW.model = '') EXECUTE FUNCTION note_change('enrichments');
CREATE TRIGGER enrichment_removed
    AFTER DELETE ON enrichment FOR EACH ROW WHEN (OLD.model = '') EXECUTE FUNCTION note_change('enrichments');
