-- Runs that go on from a part of another one's history, for those who look. The columns are those of
-- engine.port.records.ResetRow.
--
-- compatible-from: 1
CREATE TABLE pledger.reset (
    run_key bigint PRIMARY KEY,
    run_id text COLLATE "C" NOT NULL,
    base_key bigint NOT NULL,
    base_run_id text COLLATE "C" NOT NULL,
    event_id bigint NOT NULL CHECK (event_id > 0),
    kept bigint NOT NULL CHECK (kept >= 0),
    how text COLLATE "C" NOT NULL,
    reason text COLLATE "C" NOT NULL,
    "by" text COLLATE "C" NOT NULL,
    reset_ms bigint NOT NULL
);
CREATE INDEX reset_by_base ON pledger.reset (base_key);
