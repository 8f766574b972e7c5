-- Messages accepted for a chain and not yet in its history.

-- name: find_addressee
SELECT chain_key, status, owner FROM pledger_run WHERE run_key = ?;

-- name: find_successor
-- The newest run of a chain.
SELECT run_key, status, owner FROM pledger_run WHERE chain_key = ? ORDER BY segment DESC LIMIT 1;

-- name: knows_message
SELECT 1 FROM pledger_message WHERE chain_key = ? AND message_id = ?;

-- name: is_full
-- A row when at least so many messages of the chain have no verdict. Counts in the index alone.
SELECT 1 FROM pledger_message
WHERE chain_key = ?1 AND (verdict IS NULL OR (kind = 'cancel' AND verdict = 'delivered'))
LIMIT 1 OFFSET max(?2 - 1, 0);

-- name: insert_message
-- No row when the chain knows the id.
INSERT INTO pledger_message (chain_key, kind, message_id, name, body, sent_ms, keep_id) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (chain_key, message_id) DO NOTHING;

-- name: wake_owner
INSERT INTO pledger_wake (run_key) SELECT run_key FROM pledger_run WHERE run_key = ? AND owner IS NOT NULL
ON CONFLICT DO NOTHING;

-- name: wake_ownerless
UPDATE pledger_run SET due_ms = 0 WHERE run_key = ? AND owner IS NULL AND closed_ms IS NULL;

-- name: forget_message
-- A consumed message whose id needs no memory.
DELETE FROM pledger_message WHERE message_key = ? AND NOT keep_id;

-- name: deliver_message
-- A consumed message whose id is remembered. A cancel stays whole: its sender asks for the verdict.
UPDATE pledger_message
SET verdict = 'delivered', event_id = ?, body = CASE kind WHEN 'cancel' THEN body ELSE x'' END
WHERE message_key = ?;

-- name: read_inbox
SELECT message_key, kind, message_id, name, body, sent_ms, verdict, event_id FROM pledger_message
WHERE chain_key = ? AND verdict IS NULL ORDER BY message_key;

-- name: read_message
SELECT message_key, kind, message_id, name, body, sent_ms, verdict, event_id FROM pledger_message
WHERE chain_key = ? AND message_id = ?;

-- name: read_undelivered
SELECT message_key, kind, message_id, name, body, sent_ms, verdict, event_id FROM pledger_message
WHERE chain_key = ? AND (verdict = 'undelivered' OR verdict GLOB 'too_late:*') AND kind <> 'notice' ORDER BY message_key;
