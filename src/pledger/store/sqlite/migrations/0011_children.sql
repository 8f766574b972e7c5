-- Child workflows, and messages between runs.
-- compatible-from: 1

-- From a child, by its chain, to the run that started it, and to the event of its history where that was.
CREATE TABLE pledger_child (
    chain_key INTEGER PRIMARY KEY,
    parent_key INTEGER NOT NULL,
    event_id INTEGER NOT NULL CHECK (event_id > 0),
    policy TEXT NOT NULL CHECK (policy IN ('terminate', 'request_cancel', 'abandon'))
) STRICT;
CREATE INDEX pledger_child_by_parent ON pledger_child (parent_key, event_id);

-- Runs that have ended, and whose open children that are not to outlive them are to be seen to.
CREATE TABLE pledger_parting (
    parting_key INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    run_key INTEGER NOT NULL UNIQUE
) STRICT;
CREATE INDEX pledger_parting_by_namespace ON pledger_parting (namespace, parting_key);

-- Messages of further kinds: what kinds there are is the code's to say. A constraint is changed by making the table anew.
CREATE TABLE pledger_message_of_any_kind (
    message_key INTEGER PRIMARY KEY AUTOINCREMENT,
    chain_key INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind <> ''),
    message_id TEXT NOT NULL,
    name TEXT NOT NULL,
    body BLOB NOT NULL,
    sent_ms INTEGER NOT NULL,
    keep_id INTEGER NOT NULL CHECK (keep_id IN (0, 1)),
    verdict TEXT CHECK (verdict IN ('delivered', 'undelivered', 'cancelled') OR verdict GLOB 'too_late:*'),
    event_id INTEGER,
    CHECK (event_id IS NULL OR verdict IS NOT NULL)
) STRICT;
INSERT INTO pledger_message_of_any_kind SELECT * FROM pledger_message;
-- No key is ever given twice.
DELETE FROM sqlite_sequence WHERE name = 'pledger_message_of_any_kind';
INSERT INTO sqlite_sequence (name, seq)
SELECT 'pledger_message_of_any_kind', seq FROM sqlite_sequence WHERE name = 'pledger_message';
DROP TABLE pledger_message;
ALTER TABLE pledger_message_of_any_kind RENAME TO pledger_message;
CREATE UNIQUE INDEX pledger_message_by_id ON pledger_message (chain_key, message_id);
CREATE INDEX pledger_message_unsettled ON pledger_message (chain_key, message_key, kind, verdict)
WHERE verdict IS NULL OR (kind = 'cancel' AND verdict = 'delivered');
