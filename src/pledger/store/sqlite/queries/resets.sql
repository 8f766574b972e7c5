-- Runs that go on from a part of another one's history.

-- name: insert_segment
-- The next run of a chain: ?1 run_id, ?2 its time, ?3 the last event that it takes over, ?4 the checksum of that, ?5 the
-- run whose history it is, ?6 who answers for the new one, ?7 when it times out.
INSERT INTO pledger_run (
    chain_key, namespace, segment, run_id, workflow_type, task_queue, input_digest, started_ms, fence, due_ms,
    last_event, head, answers_for, deadline_ms
)
SELECT
    base.chain_key, base.namespace,
    (SELECT 1 + max(part.segment) FROM pledger_run AS part WHERE part.chain_key = base.chain_key),
    ?1, base.workflow_type, base.task_queue, base.input_digest, ?2, 0, 0, ?3, ?4, ?6, ?7
FROM pledger_run AS base WHERE base.run_key = ?5;

-- name: copy_history
INSERT INTO pledger_history (run_key, first_event_id, body, checksum)
SELECT ?1, first_event_id, body, checksum FROM pledger_history
WHERE run_key = ?2 AND first_event_id <= ?3 ORDER BY first_event_id;

-- name: copy_uses
-- Of the pieces that the history refers to.
INSERT INTO pledger_piece_use (run_key, piece_key)
SELECT ?1, piece_key FROM pledger_piece_use WHERE run_key = ?2;

-- name: drop_start
-- Of a run of the chain that ended before anybody took it.
DELETE FROM pledger_message WHERE chain_key = ? AND message_id = ?;

-- name: revive_signals
-- Those that came too late for a run of the chain.
UPDATE pledger_message SET verdict = NULL
WHERE chain_key = ? AND kind = 'signal' AND verdict = 'undelivered';

-- name: insert_reset
INSERT INTO pledger_reset (run_key, run_id, base_key, base_run_id, event_id, kept, how, reason, "by", reset_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: read_resets
SELECT run_key, run_id, base_key, base_run_id, event_id, kept, how, reason, "by", reset_ms FROM pledger_reset
WHERE run_key = ?1 OR base_key = ?1 ORDER BY run_key;
