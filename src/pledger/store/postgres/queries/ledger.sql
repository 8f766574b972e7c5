-- Runs and their histories: reads.

-- name: find_newest_run
-- The newest run of a workflow id: the last segment of its last chain.
SELECT row.* FROM pledger.run_row AS row WHERE row.run_key = (
    SELECT run.run_key FROM pledger.chain AS chain JOIN pledger.run AS run USING (chain_key)
    WHERE chain.namespace = $1 AND chain.workflow_id = $2
    ORDER BY chain.generation DESC, run.segment DESC LIMIT 1
);

-- name: find_run
-- The run of a workflow id that has this run id.
SELECT row.* FROM pledger.run_row AS row WHERE row.run_id = $3 AND row.chain_key IN (
    SELECT chain_key FROM pledger.chain WHERE namespace = $1 AND workflow_id = $2
);

-- name: read_run
SELECT * FROM pledger.run_row WHERE run_key = $1;

-- name: read_current
-- The newest run of the chain that the run is of.
SELECT * FROM pledger.run_row WHERE run_key = (
    SELECT newest.run_key FROM pledger.run AS asked JOIN pledger.run AS newest USING (chain_key)
    WHERE asked.run_key = $1 ORDER BY newest.segment DESC LIMIT 1
);

-- name: read_statuses
SELECT run_key, status, blocked IS NOT NULL FROM pledger.run WHERE run_key = ANY($1::bigint[]);

-- name: read_history
SELECT first_event_id, body, checksum FROM pledger.history
WHERE run_key = $1 AND first_event_id > $2 ORDER BY first_event_id LIMIT $3;

-- name: read_last_transitions
-- The newest two, the last one first.
SELECT first_event_id, body, checksum FROM pledger.history WHERE run_key = $1 ORDER BY first_event_id DESC LIMIT 2;

-- name: count_open
-- Open runs by what they are at, each kind in the index that leads to it: see `open_rows`. oldest: since when the one of
-- them that has waited longest has had something to do, as far as rows say: one that was never begun, since its start.
SELECT task_queue, workflow_type, 'blocked', count(*), NULL::bigint FROM pledger.run
WHERE namespace = $1 AND blocked IS NOT NULL AND status = 'running' GROUP BY task_queue, workflow_type
UNION ALL
SELECT task_queue, workflow_type, 'ready', count(*),
    min(CASE WHEN due_ms > 0 THEN due_ms WHEN last_event = 0 THEN started_ms END)
FROM pledger.run
WHERE namespace = $1 AND owner IS NULL AND blocked IS NULL AND due_ms IS NOT NULL AND due_ms <= $2
GROUP BY task_queue, workflow_type
UNION ALL
SELECT task_queue, workflow_type, 'free', count(*), NULL::bigint FROM pledger.run
WHERE namespace = $1 AND status = 'running' AND owner IS NULL AND blocked IS NULL
GROUP BY task_queue, workflow_type
UNION ALL
SELECT run.task_queue, run.workflow_type, 'held', count(*), NULL::bigint
FROM pledger.session AS session JOIN pledger.run AS run ON run.owner = session.session_key
WHERE session.namespace = $1 AND run.namespace = $1 GROUP BY run.task_queue, run.workflow_type;
