-- Leases of worker processes, and what they own. A parameter `now` that is NULL stands for the store's clock.

-- name: now
SELECT coalesce(?, (SELECT now_ms FROM pledger_clock));

-- name: has_session
SELECT 1 FROM pledger_session WHERE session_key = ?;

-- name: open_session
INSERT INTO pledger_session (identity, namespace, task_queue, code, started_ms, expires_ms)
SELECT ?2, ?3, ?4, ?5, clock.now_ms, clock.now_ms + ?6
FROM (SELECT coalesce(?1, (SELECT now_ms FROM pledger_clock)) AS now_ms) AS clock
RETURNING session_key, identity, namespace, task_queue, code, started_ms, expires_ms;

-- name: renew_session
UPDATE pledger_session SET expires_ms = coalesce(?1, (SELECT now_ms FROM pledger_clock)) + ?3 WHERE session_key = ?2
RETURNING expires_ms - ?3;

-- name: has_expired_session
SELECT 1 FROM pledger_session
WHERE expires_ms <= coalesce(?, (SELECT now_ms FROM pledger_clock)) AND namespace = ?;

-- name: end_expired_sessions
DELETE FROM pledger_session
WHERE expires_ms <= coalesce(?, (SELECT now_ms FROM pledger_clock)) AND namespace = ?
RETURNING session_key, identity, namespace, task_queue, code, started_ms, expires_ms;

-- name: end_session
DELETE FROM pledger_session WHERE session_key = ?;

-- name: orphan_wakes
DELETE FROM pledger_wake WHERE run_key IN (SELECT run_key FROM pledger_run WHERE owner = ?);

-- name: orphan_runs
UPDATE pledger_run SET owner = NULL, fence = fence + 1, due_ms = 0, claims = claims + 1 WHERE owner = ?;

-- name: orphan_tasks
UPDATE pledger_task
SET state = 'queued', owner = NULL, due_ms = 0, lost = 1, expires_ms = iif(cancel_requested, 0, expires_ms)
WHERE owner = ?;

-- name: read_sessions
SELECT session_key, identity, namespace, task_queue, code, started_ms, expires_ms FROM pledger_session
WHERE namespace = ? ORDER BY session_key;

-- name: claimable_runs
-- Ownerless runs that are due, or that only other code has blocked; oldest due first. One range of the index for each type:
-- a backlog of types that nobody serves costs nothing. ?6: pauses that do not stand in the way.
SELECT run.run_key FROM json_each(?1) AS type JOIN pledger_run AS run ON run.run_key IN (
    SELECT run_key FROM (
        SELECT run_key FROM pledger_run
        WHERE owner IS NULL AND blocked IS NULL
            AND namespace = ?2 AND task_queue = ?3 AND workflow_type = type.key AND due_ms <= ?4
            AND NOT EXISTS (SELECT 1 FROM pledger_pause AS pause WHERE pause.run_key = pledger_run.run_key)
        ORDER BY due_ms, run_key LIMIT ?5
    )
    UNION ALL
    SELECT run_key FROM (
        SELECT run_key FROM pledger_run
        WHERE blocked IS NOT NULL AND namespace = ?2 AND task_queue = ?3 AND workflow_type = type.key
            AND (blocked_code < type.value OR blocked_code > type.value)
            AND NOT (tried_event IS last_event AND type.value IN (SELECT value FROM json_each(tried_codes)))
            AND NOT EXISTS (SELECT 1 FROM pledger_pause AS pause WHERE pause.run_key = pledger_run.run_key)
        LIMIT ?5
    )
)
WHERE NOT EXISTS (
    SELECT 1 FROM pledger_pause AS pause
    WHERE pause.namespace = ?2 AND (
        pause.kind = 'namespace' OR (pause.kind = 'queue' AND pause.name = ?3)
        OR (pause.kind = 'type' AND pause.name = type.key)
    ) AND pause.pause_key NOT IN (SELECT value FROM json_each(?6))
)
ORDER BY run.due_ms, run.run_key LIMIT ?5;

-- name: claim_runs
UPDATE pledger_run SET owner = ?, fence = fence + 1, blocked = NULL, blocked_code = NULL
WHERE run_key IN (SELECT value FROM json_each(?));

-- name: read_claimed
SELECT * FROM pledger_run_row WHERE run_key IN (SELECT value FROM json_each(?)) ORDER BY due_ms, run_key;

-- name: woken_runs
SELECT wake.run_key FROM pledger_wake AS wake CROSS JOIN pledger_run AS run USING (run_key)
WHERE run.owner = ? ORDER BY wake.run_key;

-- name: drop_wakes
DELETE FROM pledger_wake WHERE run_key IN (SELECT value FROM json_each(?));

-- name: owned_runs
SELECT row.* FROM pledger_run AS run JOIN pledger_run_row AS row USING (run_key) WHERE run.owner = ? ORDER BY run.run_key;

-- name: look
-- All that an idle worker asks. For the least due time of the queue, types are found by hopping from one to the next in
-- the index: it leads to the due time by type, and to go through all rows of a queue would cost as much as there are
-- sleepers.
WITH RECURSIVE
run_type (name) AS (
    SELECT min(workflow_type) FROM pledger_run
    WHERE owner IS NULL AND blocked IS NULL AND due_ms IS NOT NULL AND namespace = ?1 AND task_queue = ?2
    UNION ALL
    SELECT (
        SELECT min(workflow_type) FROM pledger_run
        WHERE owner IS NULL AND blocked IS NULL AND due_ms IS NOT NULL AND namespace = ?1 AND task_queue = ?2
            AND workflow_type > run_type.name
    ) FROM run_type WHERE run_type.name IS NOT NULL
),
task_type (name) AS (
    SELECT min(activity_type) FROM pledger_task WHERE state = 'queued' AND namespace = ?1 AND task_queue = ?2
    UNION ALL
    SELECT (
        SELECT min(activity_type) FROM pledger_task
        WHERE state = 'queued' AND namespace = ?1 AND task_queue = ?2 AND activity_type > task_type.name
    ) FROM task_type WHERE task_type.name IS NOT NULL
)
SELECT
    EXISTS (
        SELECT 1 FROM pledger_session
        WHERE expires_ms <= coalesce(?3, (SELECT now_ms FROM pledger_clock)) AND namespace = ?1
    ),
    EXISTS (
        SELECT 1 FROM pledger_wake AS wake CROSS JOIN pledger_run AS run USING (run_key) WHERE run.owner = ?4
    ),
    EXISTS (SELECT 1 FROM pledger_task WHERE state = 'queued' AND namespace = ?1 AND expires_ms <= ?5)
    OR EXISTS (SELECT 1 FROM pledger_task WHERE owner = 0 AND namespace = ?1 AND expires_ms <= ?5),
    EXISTS (
        SELECT 1 FROM json_each(?6) AS type CROSS JOIN pledger_run AS run ON run.workflow_type = type.key
        WHERE run.blocked IS NOT NULL AND run.namespace = ?1 AND run.task_queue = ?2
            AND (run.blocked_code < type.value OR run.blocked_code > type.value)
            AND NOT (run.tried_event IS run.last_event AND type.value IN (SELECT value FROM json_each(run.tried_codes)))
    ),
    (
        SELECT json_group_array(held.value) FROM json_each(?7) AS held
        WHERE NOT EXISTS (SELECT 1 FROM pledger_run WHERE run_key = held.value AND closed_ms IS NULL)
    ),
    -- Of all, and of runs alone.
    (
        SELECT json_array(min(due_ms), min(iif(is_run, due_ms, NULL))) FROM (
            SELECT true AS is_run, (
                SELECT min(due_ms) FROM pledger_run
                WHERE owner IS NULL AND blocked IS NULL AND due_ms IS NOT NULL AND namespace = ?1 AND task_queue = ?2
                    AND workflow_type = run_type.name
                    AND NOT EXISTS (SELECT 1 FROM pledger_pause AS pause WHERE pause.run_key = pledger_run.run_key)
            ) AS due_ms FROM run_type
            WHERE NOT EXISTS (
                SELECT 1 FROM pledger_pause AS pause
                WHERE pause.namespace = ?1 AND pause.kind = 'type' AND pause.name = run_type.name
            )
            UNION ALL
            SELECT false, (
                SELECT nullif(min(due_ms), 253402300799000) FROM pledger_task
                WHERE state = 'queued' AND namespace = ?1 AND task_queue = ?2 AND activity_type = task_type.name
                    AND NOT EXISTS (SELECT 1 FROM pledger_paused_run AS paused WHERE paused.run_key = pledger_task.run_key)
            ) AS due_ms FROM task_type
        )
        WHERE NOT EXISTS (
            SELECT 1 FROM pledger_pause AS pause WHERE pause.namespace = ?1
                AND (pause.kind = 'namespace' OR (pause.kind = 'queue' AND pause.name = ?2))
        )
    ),
    (
        SELECT json_group_array(json_array(
            pause_key, namespace, kind, name, run_key, workflow_id, reason, paused_by, paused_ms, rate, backlog,
            released, tokens, filled_ms
        ) ORDER BY pause_key)
        FROM pledger_pause WHERE namespace = ?1 AND kind IN ('type', 'queue', 'namespace')
    ),
    (
        SELECT json_group_array(run.run_key) FROM pledger_pause AS pause CROSS JOIN pledger_run AS run USING (run_key)
        WHERE pause.run_key IS NOT NULL AND run.owner = ?4
    ),
    EXISTS (
        SELECT 1 FROM pledger_task INDEXED BY pledger_task_lane
        WHERE state = 'queued' AND due_ms = 253402300799000 AND namespace = ?1 AND task_queue = ?2
    ),
    EXISTS (SELECT 1 FROM pledger_parting WHERE namespace = ?1);
