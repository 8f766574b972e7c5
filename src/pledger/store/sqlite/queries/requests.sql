-- Questions to runs that another process owns.

-- name: ask
INSERT INTO pledger_request (run_key, kind, name, body, expires_ms) VALUES (?, ?, ?, ?, ?) RETURNING request_key;

-- name: answer_request
-- Nothing where the run has another fence than the one that is given.
UPDATE pledger_request SET answer = ?1, failure = ?2
WHERE request_key = ?3 AND answer IS NULL AND failure IS NULL
    AND (?4 IS NULL OR ?4 = (SELECT fence FROM pledger_run WHERE run_key = pledger_request.run_key));

-- name: has_answer
SELECT 1 FROM pledger_request WHERE request_key = ? AND (answer IS NOT NULL OR failure IS NOT NULL);

-- name: take_answer
DELETE FROM pledger_request WHERE request_key = ? AND (answer IS NOT NULL OR failure IS NOT NULL)
RETURNING request_key, run_key, kind, name, body, expires_ms, answer, failure;

-- name: has_expired_request
SELECT 1 FROM pledger_request WHERE expires_ms <= ?;

-- name: drop_requests
DELETE FROM pledger_request WHERE expires_ms <= ?;
