-- Questions to runs that another process owns.

-- name: ask
-- A row when there is such a run.
WITH chain AS (
    SELECT chain_key FROM pledger.chain
    WHERE chain_key = (SELECT run.chain_key FROM pledger.run AS run WHERE run.run_key = $1) FOR KEY SHARE
)
INSERT INTO pledger.request (run_key, kind, name, body, expires_ms) SELECT $1, $2, $3, $4, $5 FROM chain
RETURNING request_key;

-- name: answer_request
UPDATE pledger.request SET answer = $1, failure = $2 WHERE request_key = $3 AND answer IS NULL AND failure IS NULL;

-- name: answer_as_owner
-- Nothing where the run has another fence. Its row is held meanwhile: who claims it waits, and then finds the answer.
WITH held AS MATERIALIZED (
    SELECT run.run_key FROM pledger.run AS run
    WHERE run.run_key = (SELECT request.run_key FROM pledger.request AS request WHERE request.request_key = $3)
        AND run.fence = $4
    FOR SHARE
)
UPDATE pledger.request AS request SET answer = $1, failure = $2
WHERE request.request_key = $3 AND request.run_key = (SELECT held.run_key FROM held)
    AND answer IS NULL AND failure IS NULL;

-- name: take_answer
DELETE FROM pledger.request WHERE request_key = $1 AND (answer IS NOT NULL OR failure IS NOT NULL)
RETURNING request_key, run_key, kind, name, body, expires_ms, answer, failure;

-- name: drop_requests
DELETE FROM pledger.request WHERE expires_ms <= $1;
