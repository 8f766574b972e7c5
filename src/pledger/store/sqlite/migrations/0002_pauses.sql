-- Pauses: what stands still because somebody said so. The columns are those of engine.port.pauses.
--
-- compatible-from: 1

-- name: the run id, the workflow type, the task queue, or the namespace once more. A row with a rate is being lifted.
CREATE TABLE pledger_pause (
    pause_key INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    run_key INTEGER,
    workflow_id TEXT NOT NULL,
    reason TEXT NOT NULL,
    paused_by TEXT NOT NULL,
    paused_ms INTEGER NOT NULL,
    rate REAL CHECK (rate > 0),
    backlog INTEGER NOT NULL DEFAULT 0,
    released INTEGER NOT NULL DEFAULT 0,
    tokens REAL NOT NULL DEFAULT 0,
    filled_ms INTEGER NOT NULL DEFAULT 0,
    CHECK ((kind = 'run') = (run_key IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX pledger_pause_by_scope ON pledger_pause (namespace, kind, name);
CREATE UNIQUE INDEX pledger_pause_of_run ON pledger_pause (run_key) WHERE run_key IS NOT NULL;
CREATE INDEX pledger_pause_of_type ON pledger_pause (namespace, name) WHERE kind = 'type';

-- Runs that are paused, each by itself or by its type, and by what.
CREATE VIEW pledger_paused_run (run_key, pause_key) AS
SELECT run_key, pause_key FROM pledger_pause WHERE run_key IS NOT NULL
UNION ALL
SELECT run.run_key, pause.pause_key FROM pledger_pause AS pause CROSS JOIN pledger_run AS run
WHERE pause.kind = 'type' AND run.namespace = pause.namespace AND run.workflow_type = pause.name;
