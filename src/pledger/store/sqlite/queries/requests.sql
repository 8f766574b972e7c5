-- Questions to runs that another process owns.

-- name: ask
INSERT INTO pledger_request (run_key, kind, name, body, expires_ms) VALUES (?, ?, ?, ?, ?) RETURNING request_key;

-- name: answer_request
UPDATE pledger_request SET answer = ?, failure = ? WHERE request_key = ? AND answer IS NULL AND failure IS NULL;

-- name: has_answer
SELECT 1 FROM pledger_request WHERE request_key = ? AND (answer IS NOT NULL OR failure IS NOT NULL);

-- name: take_answer
DELETE FROM pledger_request WHERE request_key = ? AND (answer IS NOT NULL OR failure IS NOT NULL)
RETURNING request_key, run_key, kind, name, body, expires_ms, answer, failure;

-- name: has_expired_request
SELECT 1 FROM pledger_request WHERE expires_ms <= ?;

-- name: drop_requests
DELETE FROM pledger_request WHERE expires_ms <= ?;
