-- Activities that wait in the store or run away from their run's owner: claims and reads.

-- name: claim_tasks
-- Due rows, oldest first. One range of the index for each type: a backlog of types that nobody serves costs nothing.
WITH alive AS (
    SELECT session_key FROM pledger.session WHERE session_key = $1 AND NOT EXISTS (
        SELECT FROM pledger.pause AS pause
        WHERE pause.namespace = $3 AND (pause.kind = 'namespace' OR (pause.kind = 'queue' AND pause.name = $4))
    )
    FOR KEY SHARE
),
candidate AS (
    SELECT due.run_key, due.event_id, due.due_ms FROM unnest($5::text[]) AS type (name)
    CROSS JOIN LATERAL (
        SELECT run_key, event_id, due_ms FROM pledger.task AS task
        WHERE state = 'queued' AND namespace = $3 AND task_queue = $4 AND activity_type = type.name AND due_ms <= $2
            AND EXISTS (SELECT FROM alive)
            -- OFFSET 0: a look for each row, in their order; joined, the whole backlog would be read and sorted.
            AND NOT EXISTS (SELECT FROM pledger.paused_run AS paused WHERE paused.run_key = task.run_key OFFSET 0)
        ORDER BY due_ms LIMIT $6 FOR UPDATE OF task SKIP LOCKED
    ) AS due
    ORDER BY due.due_ms, due.run_key, due.event_id LIMIT $6
),
claimed AS (
    UPDATE pledger.task AS task SET
        state = 'started', owner = $1, started_ms = coalesce(CASE WHEN task.lost THEN task.started_ms END, $2)
    FROM candidate WHERE task.run_key = candidate.run_key AND task.event_id = candidate.event_id
    RETURNING task.*, candidate.due_ms AS was_due_ms
)
SELECT
    claimed.run_key, claimed.event_id, claimed.namespace, chain.workflow_id, run.run_id, run.workflow_type,
    claimed.task_queue, claimed.activity_type, claimed.state, claimed.attempt, claimed.due_ms, claimed.command,
    claimed.scheduled_ms, claimed.started_ms, claimed.expires_ms, claimed.owner, claimed.lost, claimed.heartbeat,
    claimed.last_failure, claimed.outcome, claimed.cancel_requested, claimed.lane, coalesce(claimed.weight, 1)
FROM claimed JOIN pledger.run AS run USING (run_key) JOIN pledger.chain AS chain USING (chain_key)
ORDER BY claimed.was_due_ms, claimed.run_key, claimed.event_id;

-- name: expired_tasks
-- In the queue, and outside. One range of an index for each.
SELECT row.* FROM (
    SELECT run_key, event_id, expires_ms FROM pledger.task
    WHERE state = 'queued' AND namespace = $1 AND expires_ms <= $2
    UNION ALL
    SELECT run_key, event_id, expires_ms FROM pledger.task
    WHERE owner = 0 AND namespace = $1 AND expires_ms <= $2
) AS expired JOIN pledger.placed_task AS row USING (run_key, event_id)
ORDER BY expired.expires_ms, expired.run_key, expired.event_id LIMIT $3;

-- name: owned_tasks
SELECT row.* FROM pledger.task AS task JOIN pledger.placed_task AS row USING (run_key, event_id)
WHERE task.owner = $1 ORDER BY task.run_key, task.event_id;

-- name: read_tasks
SELECT * FROM pledger.placed_task WHERE run_key = $1 ORDER BY event_id;

-- name: read_attempts
SELECT run_key, event_id, attempt, outcome, started_ms, ended_ms, worker, failure FROM pledger.attempt
WHERE run_key = $1 ORDER BY attempt_key;
