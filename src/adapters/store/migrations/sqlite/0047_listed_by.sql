-- Whose lists contained the tools of a server that lists them for each user: JSON object of the tools' names with hashes of the users.
ALTER TABLE listing ADD COLUMN listed_by TEXT;
