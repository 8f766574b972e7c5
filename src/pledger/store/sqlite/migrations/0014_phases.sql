-- Phases and named waits that runs are in, and by when they should be over: lists ask who must act.
--
-- compatible-from: 1
--
-- Old code leaves a phase here that it has ended; a run that is closed is in none.
CREATE TABLE pledger_phase (
    run_key INTEGER NOT NULL,
    event_id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    owner TEXT,
    deadline_ms INTEGER NOT NULL,
    PRIMARY KEY (run_key, event_id)
) STRICT, WITHOUT ROWID;
