-- Activities that wait in the store or run away from their run's owner.

-- name: holds_run
-- Whether an open run is held under this fence.
SELECT 1 FROM pledger_run WHERE run_key = ? AND fence = ? AND owner IS NOT NULL;

-- name: has_attempt
-- Whether the row of this attempt or a later one is there.
SELECT 1 FROM pledger_task WHERE run_key = ? AND event_id = ? AND attempt >= ?;

-- name: put_task
-- A cancellation is not taken back by what is written over the row; what waits in the queue then waits no longer.
INSERT INTO pledger_task (
    run_key, event_id, namespace, task_queue, activity_type, state, attempt, due_ms, command, scheduled_ms,
    started_ms, expires_ms, owner, lost, heartbeat, last_failure, outcome, cancel_requested, lane, weight, ready_ms
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_key, event_id) DO UPDATE SET
    task_queue = excluded.task_queue, activity_type = excluded.activity_type, state = excluded.state,
    attempt = excluded.attempt, due_ms = excluded.due_ms, command = excluded.command,
    scheduled_ms = excluded.scheduled_ms, started_ms = excluded.started_ms,
    expires_ms = iif(cancel_requested AND excluded.state = 'queued', 0, excluded.expires_ms),
    owner = excluded.owner, lost = excluded.lost, heartbeat = excluded.heartbeat,
    last_failure = excluded.last_failure, outcome = excluded.outcome,
    cancel_requested = max(cancel_requested, excluded.cancel_requested),
    lane = excluded.lane, weight = excluded.weight, ready_ms = excluded.ready_ms;

-- name: drop_task
DELETE FROM pledger_task WHERE run_key = ? AND event_id = ?;

-- name: request_task_cancel
-- What waits in the queue waits no longer.
UPDATE pledger_task SET cancel_requested = 1, expires_ms = iif(state = 'queued', 0, expires_ms)
WHERE run_key = ? AND event_id = ?;

-- name: finish_task
-- The outcome of an attempt that is still the one that runs; ?6: and whose time ends then, or NULL.
UPDATE pledger_task SET state = 'done', owner = NULL, outcome = ?
WHERE run_key = ? AND event_id = ? AND attempt = ? AND owner = ? AND coalesce(expires_ms = ?6, ?6 IS NULL);

-- name: hand_out
-- It is run by nobody here from now on (engine.port.records.OUTSIDE).
UPDATE pledger_task SET owner = 0, expires_ms = ?, heartbeat = coalesce(?, heartbeat)
WHERE run_key = ? AND event_id = ? AND attempt = ? AND owner = ?;

-- name: is_out
SELECT 1 FROM pledger_task WHERE run_key = ? AND event_id = ? AND attempt = ? AND owner = 0;

-- name: hand_out_slots
-- Its slots go with it.
UPDATE pledger_slot SET session_key = 0
WHERE run_key = ?1 AND event_id = ?2 AND attempt = ?3 AND session_key = ?4;

-- name: expire_task
-- The outcome of a wait in the queue that took too long, unless the attempt has been started or put off meanwhile.
UPDATE pledger_task SET state = 'done', outcome = ?
WHERE run_key = ? AND event_id = ? AND attempt = ? AND state = 'queued' AND expires_ms = ?;

-- name: runs_task
-- Whether this attempt is the one that runs.
SELECT 1 FROM pledger_task
WHERE run_key = ?1 AND event_id = ?2 AND attempt = ?3 AND owner = ?4 AND coalesce(expires_ms = ?5, ?5 IS NULL);

-- name: heartbeat
-- A beat without details keeps the last ones.
UPDATE pledger_task SET heartbeat = coalesce(?, heartbeat), expires_ms = coalesce(?, expires_ms)
WHERE run_key = ? AND event_id = ? AND attempt = ? AND owner = ? RETURNING cancel_requested;

-- name: log_attempt
INSERT INTO pledger_attempt (run_key, event_id, attempt, outcome, started_ms, ended_ms, worker, failure)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: trim_attempts
-- The line that is one too many, if there is one.
DELETE FROM pledger_attempt WHERE attempt_key = (
    SELECT attempt_key FROM pledger_attempt WHERE run_key = ? AND event_id = ?
    ORDER BY attempt_key DESC LIMIT 1 OFFSET ?
);

-- name: claimable_tasks
-- Due rows, oldest first. One range of the index for each type: a backlog of types that nobody serves costs nothing.
SELECT task.task_key FROM json_each(?1) AS type JOIN pledger_task AS task ON task.task_key IN (
    SELECT task_key FROM pledger_task
    WHERE state = 'queued' AND namespace = ?2 AND task_queue = ?3 AND activity_type = type.value AND due_ms <= ?4
        AND NOT EXISTS (SELECT 1 FROM pledger_paused_run AS paused WHERE paused.run_key = pledger_task.run_key)
    ORDER BY due_ms, task_key LIMIT ?5
)
WHERE NOT EXISTS (
    SELECT 1 FROM pledger_pause AS pause
    WHERE pause.namespace = ?2 AND (pause.kind = 'namespace' OR (pause.kind = 'queue' AND pause.name = ?3))
)
ORDER BY task.due_ms, task.run_key, task.event_id LIMIT ?5;

-- name: claim_task
UPDATE pledger_task SET state = 'started', owner = ?, started_ms = coalesce(iif(lost, started_ms, NULL), ?)
WHERE task_key = ? RETURNING run_key, event_id;

-- name: expired_tasks
-- In the queue, and outside. One range of an index for each.
SELECT row.* FROM (
    SELECT run_key, event_id, expires_ms FROM pledger_task
    WHERE state = 'queued' AND namespace = ?1 AND expires_ms <= ?2
    UNION ALL
    SELECT run_key, event_id, expires_ms FROM pledger_task
    WHERE owner = 0 AND namespace = ?1 AND expires_ms <= ?2
) AS expired JOIN pledger_placed_task AS row USING (run_key, event_id)
ORDER BY expired.expires_ms, expired.run_key, expired.event_id LIMIT ?3;

-- name: owned_tasks
SELECT row.* FROM pledger_task AS task JOIN pledger_placed_task AS row USING (run_key, event_id)
WHERE task.owner = ? ORDER BY task.run_key, task.event_id;

-- name: read_task
SELECT * FROM pledger_placed_task WHERE run_key = ? AND event_id = ?;

-- name: read_tasks
SELECT * FROM pledger_placed_task WHERE run_key = ? ORDER BY event_id;

-- name: read_attempts
SELECT run_key, event_id, attempt, outcome, started_ms, ended_ms, worker, failure FROM pledger_attempt
WHERE run_key = ? ORDER BY attempt_key;
