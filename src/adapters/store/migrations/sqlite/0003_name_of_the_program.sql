-- What a server calls itself (MCP `serverInfo.name`): the title of its document in mcpo's layout.
ALTER TABLE listing ADD COLUMN program TEXT;
