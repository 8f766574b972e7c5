-- What waits for the runs of a JSON array of keys. A parameter `now` that is NULL stands for the store's clock.

-- name: waiting_messages
SELECT
    run.run_key, message.message_key, message.kind, message.message_id, message.name, message.body, message.sent_ms,
    message.verdict, message.event_id
FROM json_each(?) AS asked CROSS JOIN pledger_run AS run ON run.run_key = asked.value
CROSS JOIN pledger_message AS message INDEXED BY pledger_message_unsettled
    ON message.chain_key = run.chain_key AND message.verdict IS NULL
ORDER BY message.message_key;

-- name: waiting_outcomes
SELECT task.* FROM json_each(?) AS asked CROSS JOIN pledger_placed_task AS task ON task.run_key = asked.value
WHERE task.state = 'done' ORDER BY task.event_id;

-- name: open_requests
SELECT
    request.request_key, request.run_key, request.kind, request.name, request.body, request.expires_ms, request.answer,
    request.failure
FROM json_each(?2) AS asked CROSS JOIN pledger_request AS request ON request.run_key = asked.value
WHERE request.answer IS NULL AND request.failure IS NULL
    AND request.expires_ms > coalesce(?1, (SELECT now_ms FROM pledger_clock))
ORDER BY request.request_key;
