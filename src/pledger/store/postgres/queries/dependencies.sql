-- Systems that activities depend on: retry budgets and circuit breakers.

-- name: read_dependencies
SELECT name, state FROM pledger.dependency WHERE namespace = $1 ORDER BY name;

-- name: some_dependencies
SELECT name, state FROM pledger.dependency WHERE namespace = $1 AND name = ANY ($2::text[]);

-- name: make_dependencies
-- So that there is a row to be locked.
INSERT INTO pledger.dependency (namespace, name, state)
SELECT $1, * FROM unnest($2::text[], $3::text[]) ON CONFLICT DO NOTHING;

-- name: lock_dependencies
-- In one order for all.
SELECT name, state FROM pledger.dependency WHERE namespace = $1 AND name = ANY ($2::text[]) ORDER BY name FOR UPDATE;

-- name: write_dependencies
-- Of rows that are there and locked.
INSERT INTO pledger.dependency (namespace, name, state)
SELECT $1, written.* FROM unnest($2::text[], $3::text[]) AS written
ON CONFLICT (namespace, name) DO UPDATE SET state = excluded.state;

-- name: need_not_wait_for_the_disk
SELECT set_config('synchronous_commit', 'off', true);

-- name: set_aside
-- Into lanes. Of rows that are locked: see lock_queued.
UPDATE pledger.task AS task SET
    lane = aside.lane, due_ms = 253402300799000,
    ready_ms = CASE task.due_ms WHEN 253402300799000 THEN task.ready_ms ELSE task.due_ms END
FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::text[]) AS aside (run_key, event_id, attempt, lane)
WHERE task.run_key = aside.run_key AND task.event_id = aside.event_id AND task.attempt = aside.attempt;
