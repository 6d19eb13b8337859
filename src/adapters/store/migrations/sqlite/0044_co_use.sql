-- The tools that chats called together. A chat is known by a hash of its caller and its id.
CREATE TABLE learned_chat (
    id TEXT PRIMARY KEY NOT NULL,
    principal TEXT NOT NULL,
    -- The time of the last call, in milliseconds since 1970.
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX learned_chat_at ON learned_chat (at);
CREATE INDEX learned_chat_principal ON learned_chat (principal, at);

-- For whom a chat counts.
CREATE TABLE learned_chat_scope (
    chat TEXT NOT NULL REFERENCES learned_chat (id) ON DELETE CASCADE,
    scope TEXT NOT NULL,
    PRIMARY KEY (chat, scope)
) STRICT, WITHOUT ROWID;

CREATE INDEX learned_chat_scope_scope ON learned_chat_scope (scope);

-- A chat has one row per tool. The server of a loaded group is empty.
CREATE TABLE learned_chat_tool (
    chat TEXT NOT NULL REFERENCES learned_chat (id) ON DELETE CASCADE,
    server TEXT NOT NULL,
    tool TEXT NOT NULL,
    -- The time of the first call.
    at INTEGER NOT NULL,
    PRIMARY KEY (chat, server, tool)
) STRICT, WITHOUT ROWID;

CREATE INDEX learned_chat_tool_tool ON learned_chat_tool (server, tool);
