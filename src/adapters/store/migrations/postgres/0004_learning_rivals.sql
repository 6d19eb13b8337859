-- The best tools of a message without learning, with their scores: a JSON array of [server, tool, score]. NULL if they are unknown.
ALTER TABLE learned_message ADD COLUMN rivals text COLLATE "C";
