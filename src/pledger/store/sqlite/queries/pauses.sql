-- What stands still because somebody said so. A parameter `now` that is NULL stands for the store's clock.

-- name: find_pause
SELECT
    pause_key, namespace, kind, name, run_key, workflow_id, reason, paused_by, paused_ms, rate, backlog, released,
    tokens, filled_ms
FROM pledger_pause WHERE namespace = ? AND kind = ? AND name = ?;

-- name: read_pauses
-- Of a run that has closed it is over.
SELECT
    pause_key, namespace, kind, name, run_key, workflow_id, reason, paused_by, paused_ms, rate, backlog, released,
    tokens, filled_ms
FROM pledger_pause AS pause
WHERE namespace = ? AND (
    run_key IS NULL OR EXISTS (
        SELECT 1 FROM pledger_run AS run WHERE run.run_key = pause.run_key AND run.closed_ms IS NULL
    )
)
ORDER BY pause_key;

-- name: pauses_of_places
SELECT
    pause_key, namespace, kind, name, run_key, workflow_id, reason, paused_by, paused_ms, rate, backlog, released,
    tokens, filled_ms
FROM pledger_pause WHERE namespace = ? AND kind IN ('type', 'queue', 'namespace') ORDER BY pause_key;

-- name: insert_pause
INSERT INTO pledger_pause (namespace, kind, name, run_key, workflow_id, reason, paused_by, paused_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: change_pause
UPDATE pledger_pause SET
    reason = ?, paused_by = ?, paused_ms = ?, rate = ?, backlog = ?, released = ?, tokens = ?, filled_ms = ?
WHERE pause_key = ?;

-- name: drop_pause
DELETE FROM pledger_pause WHERE pause_key = ?;

-- name: drop_pauses_of_closed_runs
DELETE FROM pledger_pause WHERE run_key IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM pledger_run AS run WHERE run.run_key = pledger_pause.run_key AND run.closed_ms IS NULL
);

-- name: backlog
-- How much of a namespace, of one of its types (?3) or queues (?4), waits to be taken now.
SELECT
    (
        SELECT count(*) FROM pledger_run
        WHERE owner IS NULL AND blocked IS NULL AND due_ms IS NOT NULL AND namespace = ?1 AND due_ms <= ?2
            AND (?3 IS NULL OR workflow_type = ?3) AND (?4 IS NULL OR task_queue = ?4)
    ) + (
        SELECT count(*) FROM pledger_task AS task JOIN pledger_run AS run USING (run_key)
        WHERE task.state = 'queued' AND task.namespace = ?1
            AND iif(task.due_ms = 253402300799000, task.ready_ms, task.due_ms) <= ?2
            AND (?3 IS NULL OR run.workflow_type = ?3) AND (?4 IS NULL OR task.task_queue = ?4)
    );
