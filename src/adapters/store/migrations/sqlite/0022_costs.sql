-- What selections saved and what language models cost, as sums by days since 1970. Only tokens: prices are applied when the
-- sums are read. Rows of groups and users exist only where the settings want them ([usage] by).
CREATE TABLE usage_cost (
    day           INTEGER NOT NULL,
    scope         TEXT    NOT NULL CHECK (scope IN ('all', 'group', 'user')),
    name          TEXT    NOT NULL, -- the group or user; '': all callers, or those without a group
    purpose       TEXT    NOT NULL, -- 'chat': messages, calls and what selections saved; otherwise answers of a language model
    is_own        INTEGER NOT NULL, -- 1: a user paid, with a key of their own
    model         TEXT    NOT NULL, -- '': unknown
    requests      INTEGER NOT NULL,
    estimated     INTEGER NOT NULL, -- answers whose tokens are estimated
    calls         INTEGER NOT NULL,
    input_tokens  INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    saved_tokens  INTEGER NOT NULL,
    PRIMARY KEY (day, scope, name, purpose, is_own, model)
) STRICT, WITHOUT ROWID;
