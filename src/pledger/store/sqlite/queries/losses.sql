-- A ledger that has gone back behind what it had acknowledged. ?1: now, NULL for the store's clock; ?2: by how much fences
-- and keys go ahead.

-- name: read_losses
SELECT run_key, moved FROM pledger_loss WHERE run_key IN (SELECT value FROM json_each(?));

-- name: note_losses
-- Those that sleep, and are to sleep on, have not moved: nothing that the ledger knows of could wake them in the part that is
-- gone. A message may have, which is gone with it.
INSERT INTO pledger_loss AS loss (run_key, last_event, declared_ms, moved)
SELECT
    run.run_key, run.last_event, clock.now_ms,
    run.owner IS NOT NULL OR run.due_ms IS NULL OR run.due_ms <= clock.now_ms
    OR EXISTS (SELECT 1 FROM pledger_task AS task WHERE task.run_key = run.run_key)
    OR EXISTS (SELECT 1 FROM pledger_message AS sent WHERE sent.chain_key = run.chain_key AND sent.verdict IS NULL)
FROM pledger_run AS run, (SELECT coalesce(?1, (SELECT now_ms FROM pledger_clock)) AS now_ms) AS clock
WHERE run.closed_ms IS NULL
ON CONFLICT (run_key) DO UPDATE SET
    last_event = excluded.last_event, declared_ms = excluded.declared_ms, moved = max(loss.moved, excluded.moved)
RETURNING moved;

-- name: lose_tasks
UPDATE pledger_task
SET state = 'queued', owner = NULL, due_ms = 0, lost = 1, expires_ms = iif(cancel_requested, 0, expires_ms)
WHERE state = 'started' OR (
    state = 'queued'
    AND iif(due_ms = 253402300799000, ready_ms, due_ms) <= coalesce(?1, (SELECT now_ms FROM pledger_clock))
);

-- name: fence_runs
UPDATE pledger_run SET fence = fence + ?1, due_ms = iif(owner IS NULL, due_ms, 0), owner = NULL WHERE closed_ms IS NULL;

-- name: jump_keys
UPDATE sqlite_sequence SET seq = seq + ?1 WHERE name LIKE 'pledger\_%' ESCAPE '\';

-- name: jump_streams
-- Positions that were given in the part that is gone would be given again, and followers have passed them.
UPDATE pledger_stream SET next_position = next_position + ?1 WHERE NOT forgotten;

-- name: end_all_sessions
DELETE FROM pledger_session;

-- name: drop_all_wakes
DELETE FROM pledger_wake;
