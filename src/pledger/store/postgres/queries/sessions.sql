-- Leases of worker processes, and what they own. A parameter for the time that is NULL stands for the store's clock.

-- name: now
SELECT coalesce($1::bigint, pledger.now_ms());

-- name: open_session
INSERT INTO pledger.session (identity, namespace, task_queue, code, started_ms, expires_ms, lease_ms)
SELECT $2, $3, $4, $5, clock.now_ms, clock.now_ms + $6, $6
FROM (SELECT coalesce($1::bigint, pledger.now_ms()) AS now_ms) AS clock
RETURNING session_key, identity, namespace, task_queue, code, started_ms, expires_ms;

-- name: renew_session
UPDATE pledger.session SET expires_ms = coalesce($1::bigint, pledger.now_ms()) + $3, lease_ms = $3 WHERE session_key = $2
RETURNING expires_ms - $3;

-- name: end_session
DELETE FROM pledger.session WHERE session_key = $1
RETURNING session_key, identity, namespace, task_queue, code, started_ms, expires_ms;

-- name: end_expired_sessions
-- By whoever comes first; one that is just being renewed, or ended, by somebody else is let alone.
DELETE FROM pledger.session WHERE session_key IN (
    SELECT session_key FROM pledger.session
    WHERE namespace = $2 AND (
        expires_ms <= $1::bigint
        OR ($1::bigint IS NULL AND pledger.lease_end_ms(expires_ms, lease_ms) <= pledger.now_ms())
    )
    ORDER BY session_key FOR UPDATE SKIP LOCKED
)
RETURNING session_key, identity, namespace, task_queue, code, started_ms, expires_ms;

-- name: orphan_runs
UPDATE pledger.run AS run SET owner = NULL, fence = run.fence + 1, due_ms = 0, claims = run.claims + 1
FROM (
    SELECT run_key FROM pledger.run WHERE owner = ANY($1::bigint[]) ORDER BY run_key FOR NO KEY UPDATE
) AS orphan
WHERE run.run_key = orphan.run_key
RETURNING run.run_key;

-- name: orphan_tasks
UPDATE pledger.task AS task SET
    state = 'queued', owner = NULL, due_ms = 0, lost = true,
    expires_ms = CASE WHEN task.cancel_requested THEN 0 ELSE task.expires_ms END
FROM (
    SELECT run_key, event_id FROM pledger.task WHERE owner = ANY($1::bigint[]) ORDER BY run_key, event_id FOR UPDATE
) AS orphan
WHERE task.run_key = orphan.run_key AND task.event_id = orphan.event_id;

-- name: read_sessions
SELECT session_key, identity, namespace, task_queue, code, started_ms, expires_ms FROM pledger.session
WHERE namespace = $1 ORDER BY session_key;

-- name: claim_runs
-- Ownerless runs that are due, or that only other code has blocked; oldest due first. One range of the index for each type:
-- a backlog of types that nobody serves costs nothing. Runs that somebody else is just claiming are passed over.
-- $8: pauses that do not stand in the way.
WITH alive AS (SELECT session_key FROM pledger.session WHERE session_key = $1 FOR KEY SHARE),
type AS (
    SELECT * FROM unnest($5::text[], $6::text[]) AS type (name, code)
    WHERE EXISTS (SELECT FROM alive) AND NOT EXISTS (
        SELECT FROM pledger.pause AS pause
        WHERE pause.namespace = $3 AND pause.pause_key <> ALL ($8::bigint[]) AND (
            pause.kind = 'namespace' OR (pause.kind = 'queue' AND pause.name = $4)
            OR (pause.kind = 'type' AND pause.name = type.name)
        )
    )
),
candidate AS (
    SELECT due.run_key, due.due_ms FROM type CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT run_key, due_ms FROM pledger.run AS run
            WHERE owner IS NULL AND blocked IS NULL AND due_ms IS NOT NULL
                AND namespace = $3 AND task_queue = $4 AND workflow_type = type.name AND due_ms <= $2
                AND NOT EXISTS (SELECT FROM pledger.pause AS pause WHERE pause.run_key = run.run_key OFFSET 0)
            ORDER BY due_ms LIMIT $7 FOR NO KEY UPDATE SKIP LOCKED
        ) AS whole
        UNION ALL
        SELECT * FROM (
            SELECT run_key, due_ms FROM pledger.run AS run
            WHERE blocked IS NOT NULL AND namespace = $3 AND task_queue = $4 AND workflow_type = type.name
                AND (blocked_code < type.code OR blocked_code > type.code)
                AND (tried_event IS DISTINCT FROM last_event OR type.code <> ALL (tried_codes))
                AND NOT EXISTS (SELECT FROM pledger.pause AS pause WHERE pause.run_key = run.run_key OFFSET 0)
            LIMIT $7 FOR NO KEY UPDATE SKIP LOCKED
        ) AS blocked
    ) AS due
    ORDER BY due.due_ms, due.run_key LIMIT $7
),
claimed AS (
    UPDATE pledger.run AS run SET
        owner = $1, fence = run.fence + 1, due_ms = NULL, next_ms = run.due_ms, blocked = NULL, blocked_code = NULL
    FROM candidate WHERE run.run_key = candidate.run_key
    RETURNING run.*
)
SELECT
    run.run_key, run.chain_key, run.namespace, chain.workflow_id, run.run_id, run.workflow_type, run.task_queue,
    run.status, run.input_digest, run.started_ms, run.closed_ms, run.last_event, run.head, run.fence, run.owner,
    run.next_ms, run.claims, run.blocked, run.blocked_code
FROM claimed AS run JOIN pledger.chain AS chain USING (chain_key)
ORDER BY run.next_ms, run.run_key;

-- name: take_wakes
-- Each run once, however much there is for it.
WITH taken AS (
    DELETE FROM pledger.wake WHERE wake_key IN (
        SELECT wake.wake_key FROM pledger.wake AS wake JOIN pledger.run AS run USING (run_key)
        WHERE run.owner = $1 ORDER BY wake.wake_key FOR UPDATE OF wake SKIP LOCKED
    )
    RETURNING run_key
)
SELECT DISTINCT run_key FROM taken ORDER BY run_key;

-- name: owned_runs
SELECT row.* FROM pledger.run AS run JOIN pledger.run_row AS row USING (run_key) WHERE run.owner = $1 ORDER BY run.run_key;

-- name: look
-- All that an idle worker asks. For the least due time of the queue, types are found by hopping from one to the next in
-- the index: it leads to the due time by type, and to go through all rows of a queue would cost as much as there are
-- sleepers.
WITH RECURSIVE
run_type (name) AS (
    SELECT min(workflow_type) FROM pledger.run
    WHERE owner IS NULL AND blocked IS NULL AND due_ms IS NOT NULL AND namespace = $1 AND task_queue = $2
    UNION ALL
    SELECT (
        SELECT min(run.workflow_type) FROM pledger.run AS run
        WHERE owner IS NULL AND blocked IS NULL AND due_ms IS NOT NULL AND namespace = $1 AND task_queue = $2
            AND run.workflow_type > run_type.name
    ) FROM run_type WHERE run_type.name IS NOT NULL
),
task_type (name) AS (
    SELECT min(activity_type) FROM pledger.task WHERE state = 'queued' AND namespace = $1 AND task_queue = $2
    UNION ALL
    SELECT (
        SELECT min(task.activity_type) FROM pledger.task AS task
        WHERE state = 'queued' AND namespace = $1 AND task_queue = $2 AND task.activity_type > task_type.name
    ) FROM task_type WHERE task_type.name IS NOT NULL
)
SELECT
    EXISTS (
        SELECT FROM pledger.session WHERE namespace = $1 AND (
            expires_ms <= $3::bigint
            OR ($3::bigint IS NULL AND pledger.lease_end_ms(expires_ms, lease_ms) <= pledger.now_ms())
        )
    ),
    EXISTS (SELECT FROM pledger.wake AS wake JOIN pledger.run AS run USING (run_key) WHERE run.owner = $4),
    -- The first one is asked for, rather than whether there is any: for that the planner may read everybody's.
    coalesce(
        (
            SELECT expires_ms <= $5 FROM pledger.task WHERE state = 'queued' AND namespace = $1 AND expires_ms IS NOT NULL
            ORDER BY expires_ms LIMIT 1
        ),
        false
    ) OR coalesce(
        (
            SELECT expires_ms <= $5 FROM pledger.task WHERE owner = 0 AND namespace = $1 AND expires_ms IS NOT NULL
            ORDER BY expires_ms LIMIT 1
        ),
        false
    ),
    EXISTS (
        SELECT FROM unnest($6::text[], $7::text[]) AS type (name, code)
        CROSS JOIN LATERAL (
            SELECT FROM pledger.run AS run
            WHERE run.blocked IS NOT NULL AND run.namespace = $1 AND run.task_queue = $2
                AND run.workflow_type = type.name AND (run.blocked_code < type.code OR run.blocked_code > type.code)
                AND (run.tried_event IS DISTINCT FROM run.last_event OR type.code <> ALL (run.tried_codes))
            LIMIT 1
        ) AS blocked
    ),
    ARRAY(
        SELECT held.run_key FROM unnest($8::bigint[]) WITH ORDINALITY AS held (run_key, place)
        WHERE NOT EXISTS (SELECT FROM pledger.run AS run WHERE run.run_key = held.run_key AND run.closed_ms IS NULL)
        ORDER BY held.place
    ),
    -- The oldest that is not paused, in the order of the index. OFFSET 0: a pause is looked up for each row that is met;
    -- joined as the planner likes, everything that is due would be read to find its first. Of all, and of runs alone.
    (
        SELECT ARRAY[min(due_ms), min(due_ms) FILTER (WHERE is_run)] FROM (
            SELECT true AS is_run, (
                SELECT due_ms FROM pledger.run AS run
                WHERE owner IS NULL AND blocked IS NULL AND due_ms IS NOT NULL AND namespace = $1 AND task_queue = $2
                    AND run.workflow_type = run_type.name
                    AND NOT EXISTS (SELECT FROM pledger.pause AS pause WHERE pause.run_key = run.run_key OFFSET 0)
                ORDER BY due_ms LIMIT 1
            ) AS due_ms FROM run_type
            WHERE NOT EXISTS (
                SELECT FROM pledger.pause AS pause
                WHERE pause.namespace = $1 AND pause.kind = 'type' AND pause.name = run_type.name
            )
            UNION ALL
            SELECT false, (
                SELECT nullif(due_ms, 253402300799000) FROM pledger.task AS task
                WHERE state = 'queued' AND namespace = $1 AND task_queue = $2 AND task.activity_type = task_type.name
                    AND NOT EXISTS (SELECT FROM pledger.paused_run AS paused WHERE paused.run_key = task.run_key OFFSET 0)
                ORDER BY due_ms LIMIT 1
            ) AS due_ms FROM task_type
        ) AS due
        WHERE NOT EXISTS (
            SELECT FROM pledger.pause AS pause WHERE pause.namespace = $1
                AND (pause.kind = 'namespace' OR (pause.kind = 'queue' AND pause.name = $2))
        )
    ),
    (
        SELECT json_agg(json_build_array(
            pause_key, namespace, kind, name, run_key, workflow_id, reason, paused_by, paused_ms, rate, backlog,
            released, tokens, filled_ms
        ) ORDER BY pause_key)::text
        FROM pledger.pause WHERE namespace = $1 AND kind IN ('type', 'queue', 'namespace')
    ),
    ARRAY(
        SELECT run.run_key FROM pledger.pause AS pause JOIN pledger.run AS run USING (run_key)
        WHERE pause.run_key IS NOT NULL AND run.owner = $4
    ),
    -- By type: that is one place in each index that may be taken. Of the queue, it may be all that is due.
    EXISTS (
        SELECT FROM task_type CROSS JOIN LATERAL (
            SELECT FROM pledger.task AS task
            WHERE state = 'queued' AND due_ms = 253402300799000 AND namespace = $1 AND task_queue = $2
                AND task.activity_type = task_type.name
            LIMIT 1
        ) AS apart
    ),
    EXISTS (SELECT FROM pledger.parting WHERE namespace = $1);

-- name: drop_marks
-- Of handles that are long gone, or of a machine that is suspended: the newest of them is kept in mind, so that nobody takes
-- a mark that was dropped for one that is lost.
WITH dropped AS (DELETE FROM pledger.mark WHERE written_ms < pledger.now_ms() - 86400000 RETURNING written_ms)
INSERT INTO pledger.meta AS meta (name, value)
SELECT 'dropped_ms', max(written_ms)::text FROM dropped HAVING count(*) > 0
ON CONFLICT (name) DO UPDATE SET value = greatest(excluded.value::bigint, meta.value::bigint)::text;
