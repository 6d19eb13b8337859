-- The tools that chats called together. A chat is known by a hash of its caller and its id.
CREATE TABLE learned_chat (
    id        text COLLATE "C" PRIMARY KEY,
    principal text COLLATE "C" NOT NULL,
    at        bigint NOT NULL -- the time of the last call
);

CREATE INDEX learned_chat_at ON learned_chat (at);
CREATE INDEX learned_chat_principal ON learned_chat (principal, at);

-- For whom a chat counts.
CREATE TABLE learned_chat_scope (
    chat  text COLLATE "C" NOT NULL REFERENCES learned_chat (id) ON DELETE CASCADE,
    scope text COLLATE "C" NOT NULL,
    PRIMARY KEY (chat, scope)
);

CREATE INDEX learned_chat_scope_scope ON learned_chat_scope (scope);

-- A chat has one row per tool. The server of a loaded group is empty.
CREATE TABLE learned_chat_tool (
    chat   text COLLATE "C" NOT NULL REFERENCES learned_chat (id) ON DELETE CASCADE,
    server text COLLATE "C" NOT NULL,
    tool   text COLLATE "C" NOT NULL,
    at     bigint NOT NULL, -- the time of the first call
    PRIMARY KEY (chat, server, tool)
);

CREATE INDEX learned_chat_tool_tool ON learned_chat_tool (server, tool);
