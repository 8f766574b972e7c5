-- What stands still because somebody said so. A parameter for the time that is NULL stands for the store's clock.

-- name: lock_pause
SELECT
    pause_key, namespace, kind, name, run_key, workflow_id, reason, paused_by, paused_ms, rate, backlog, released,
    tokens, filled_ms
FROM pledger.pause WHERE namespace = $1 AND kind = $2 AND name = $3 FOR UPDATE;

-- name: lock_lifted
-- Those that are being lifted, by whoever claims what they let go on: one after the other.
SELECT
    pause_key, namespace, kind, name, run_key, workflow_id, reason, paused_by, paused_ms, rate, backlog, released,
    tokens, filled_ms
FROM pledger.pause WHERE namespace = $1 AND kind IN ('type', 'queue', 'namespace') ORDER BY pause_key FOR UPDATE;

-- name: read_pauses
-- Of a run that has closed it is over.
SELECT
    pause_key, namespace, kind, name, run_key, workflow_id, reason, paused_by, paused_ms, rate, backlog, released,
    tokens, filled_ms
FROM pledger.pause AS pause
WHERE namespace = $1 AND (
    run_key IS NULL
    OR (SELECT run.closed_ms IS NULL FROM pledger.run AS run WHERE run.run_key = pause.run_key)
)
ORDER BY pause_key;

-- name: insert_pause
-- No row when somebody else has paused it at this moment.
INSERT INTO pledger.pause (namespace, kind, name, run_key, workflow_id, reason, paused_by, paused_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (namespace, kind, name) DO NOTHING RETURNING pause_key;

-- name: change_pause
UPDATE pledger.pause SET
    reason = $2, paused_by = $3, paused_ms = $4, rate = $5, backlog = $6, released = $7, tokens = $8, filled_ms = $9
WHERE pause_key = $1;

-- name: drop_pause
DELETE FROM pledger.pause WHERE pause_key = $1;

-- name: drop_pauses_of_closed_runs
DELETE FROM pledger.pause WHERE pause_key IN (
    SELECT pause_key FROM pledger.pause AS pause WHERE run_key IS NOT NULL AND NOT EXISTS (
        -- OFFSET 0: each is looked up, or all open runs may be read.
        SELECT FROM pledger.run AS run WHERE run.run_key = pause.run_key AND run.closed_ms IS NULL OFFSET 0
    )
    ORDER BY pause_key FOR UPDATE SKIP LOCKED
);

-- name: backlog
-- How much of a namespace, of one of its types ($3) or queues ($4), waits to be taken now.
SELECT
    (
        SELECT count(*) FROM pledger.run
        WHERE owner IS NULL AND blocked IS NULL AND due_ms IS NOT NULL AND namespace = $1 AND due_ms <= $2
            AND ($3::text IS NULL OR workflow_type = $3) AND ($4::text IS NULL OR task_queue = $4)
    ) + (
        SELECT count(*) FROM pledger.task AS task JOIN pledger.run AS run USING (run_key)
        WHERE task.state = 'queued' AND task.namespace = $1
            AND CASE task.due_ms WHEN 253402300799000 THEN task.ready_ms ELSE task.due_ms END <= $2
            AND ($3::text IS NULL OR run.workflow_type = $3) AND ($4::text IS NULL OR task.task_queue = $4)
    );
