-- Runs that go on from a part of another one's history, for those who look. The columns are those of
-- engine.port.records.ResetRow.
--
-- compatible-from: 1
CREATE TABLE pledger_reset (
    run_key INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL,
    base_key INTEGER NOT NULL,
    base_run_id TEXT NOT NULL,
    event_id INTEGER NOT NULL CHECK (event_id > 0),
    kept INTEGER NOT NULL CHECK (kept >= 0),
    how TEXT NOT NULL,
    reason TEXT NOT NULL,
    "by" TEXT NOT NULL,
    reset_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX pledger_reset_by_base ON pledger_reset (base_key);
