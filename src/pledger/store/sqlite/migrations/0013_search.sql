-- Search attributes and memos, and indices by which lists find their runs.
--
-- compatible-from: 1
--
-- All of it says again what histories say: old code leaves it as it is.

-- answers_for: who, a person or a team. deadline_ms: when the run times out. Old code leaves both NULL.
ALTER TABLE pledger_run ADD COLUMN answers_for TEXT;
ALTER TABLE pledger_run ADD COLUMN deadline_ms INTEGER;

-- A row for each value of each search attribute: in one of the three columns, by its kind.
CREATE TABLE pledger_attribute (
    run_key INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    position INTEGER NOT NULL,
    words TEXT,
    whole INTEGER,
    real REAL,
    PRIMARY KEY (run_key, name, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX pledger_attribute_value ON pledger_attribute (namespace, kind, name, words, whole, real, run_key);

-- memo: JSON object.
CREATE TABLE pledger_memo (run_key INTEGER PRIMARY KEY, memo BLOB NOT NULL) STRICT;

-- Lists go by the time of the start. Of what a step of an owned run writes nothing is in these.
CREATE INDEX pledger_run_started ON pledger_run (namespace, started_ms, run_key);
CREATE INDEX pledger_run_open ON pledger_run (namespace, started_ms, run_key) WHERE status = 'running';
CREATE INDEX pledger_run_ended_badly ON pledger_run (namespace, started_ms, run_key)
WHERE status IN ('cancelled', 'compensated', 'failed', 'terminated', 'timed_out');
