-- Messages accepted for a chain and not yet in its history: reads.

-- name: read_inbox
SELECT message_key, kind, message_id, name, body, sent_ms, verdict, event_id FROM pledger.message
WHERE chain_key = $1 AND verdict IS NULL ORDER BY message_key;

-- name: read_message
SELECT message_key, kind, message_id, name, body, sent_ms, verdict, event_id FROM pledger.message
WHERE chain_key = $1 AND message_id = $2;

-- name: read_undelivered
SELECT message_key, kind, message_id, name, body, sent_ms, verdict, event_id FROM pledger.message
WHERE chain_key = $1 AND (verdict = 'undelivered' OR verdict LIKE 'too\_late:%') AND kind <> 'notice' ORDER BY message_key;
