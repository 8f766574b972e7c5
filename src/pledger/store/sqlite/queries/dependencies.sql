-- Systems that activities depend on: retry budgets and circuit breakers.

-- name: read_dependencies
SELECT name, state FROM pledger_dependency WHERE namespace = ? ORDER BY name;

-- name: some_dependencies
SELECT name, state FROM json_each(?2) AS asked CROSS JOIN pledger_dependency AS dependency
WHERE dependency.namespace = ?1 AND dependency.name = asked.value;

-- name: write_dependency
INSERT INTO pledger_dependency (namespace, name, state) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET state = excluded.state;

-- name: set_aside
-- A queued row into a lane.
UPDATE pledger_task SET
    lane = ?1, ready_ms = iif(due_ms = 253402300799000, ready_ms, due_ms), due_ms = 253402300799000
WHERE run_key = ?2 AND event_id = ?3 AND attempt = ?4 AND state = 'queued';
