-- Attempts that were handed out, to be completed from outside by their tokens; and the keys that sign those.
-- compatible-from: 1

-- Of those alone (their owner is engine.port.records.OUTSIDE): whose time is over. Workers of older code leave them be.
CREATE INDEX pledger_task_outside ON pledger_task (namespace, expires_ms) WHERE owner = 0;

-- The slots of an attempt, which go out with it.
CREATE INDEX pledger_slot_by_task ON pledger_slot (run_key, event_id);

-- The newest one signs; those before it are accepted until retired_ms, NULL for no end.
CREATE TABLE pledger_token_key (
    created_no INTEGER PRIMARY KEY AUTOINCREMENT,
    key_id TEXT NOT NULL UNIQUE,
    secret BLOB NOT NULL CHECK (length(secret) >= 32),
    created_ms INTEGER NOT NULL,
    retired_ms INTEGER
) STRICT;
INSERT INTO pledger_token_key (key_id, secret, created_ms)
SELECT lower(hex(randomblob(4))), randomblob(32), now_ms FROM pledger_clock;
