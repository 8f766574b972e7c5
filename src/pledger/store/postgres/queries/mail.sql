-- What waits for the runs of an array of keys. A parameter for the time that is NULL stands for the store's clock.

-- name: waiting_messages
SELECT
    run.run_key, message.message_key, message.kind, message.message_id, message.name, message.body, message.sent_ms,
    message.verdict, message.event_id
FROM unnest($1::bigint[]) AS asked (run_key)
CROSS JOIN LATERAL (
    SELECT found.run_key, found.chain_key FROM pledger.run AS found WHERE found.run_key = asked.run_key OFFSET 0
) AS run
CROSS JOIN LATERAL (
    SELECT * FROM pledger.message AS found WHERE found.chain_key = run.chain_key AND found.verdict IS NULL OFFSET 0
) AS message
ORDER BY message.message_key;

-- name: waiting_outcomes
SELECT * FROM pledger.placed_task WHERE run_key = ANY($1::bigint[]) AND state = 'done' ORDER BY event_id;

-- name: open_requests
SELECT request_key, run_key, kind, name, body, expires_ms, answer, failure FROM pledger.request
WHERE run_key = ANY($2::bigint[]) AND answer IS NULL AND failure IS NULL
    AND expires_ms > coalesce($1::bigint, pledger.now_ms())
ORDER BY request_key;
