-- Runs as a worker brings them into memory, by an array of keys. Their messages are in mail.sql.

-- name: tasks_of_runs
SELECT * FROM pledger.placed_task WHERE run_key = ANY($1::bigint[]) ORDER BY run_key, event_id;

-- name: histories_of_runs
-- Run by run, each in the order of its index: sorted together, large histories would go through files of the server.
SELECT asked.run_key, found.first_event_id, found.body, found.checksum
FROM unnest($1::bigint[]) AS asked (run_key)
CROSS JOIN LATERAL (
    SELECT first_event_id, body, checksum FROM pledger.history AS history
    WHERE history.run_key = asked.run_key ORDER BY first_event_id LIMIT $2
) AS found;
