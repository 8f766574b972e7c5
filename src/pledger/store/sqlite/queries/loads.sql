-- Runs as a worker brings them into memory, by a JSON array of keys. Their messages are in mail.sql, their histories in
-- ledger.sql.

-- name: tasks_of_runs
SELECT task.* FROM json_each(?) AS asked CROSS JOIN pledger_placed_task AS task ON task.run_key = asked.value
ORDER BY task.run_key, task.event_id;
