-- The keys that sign the tokens of attempts that are completed from outside.

-- name: read_token_keys
SELECT key_id, secret, created_ms, retired_ms FROM pledger_token_key ORDER BY created_no DESC;

-- name: retire_token_keys
UPDATE pledger_token_key SET retired_ms = min(coalesce(retired_ms, ?1), ?1);

-- name: drop_token_keys
DELETE FROM pledger_token_key WHERE retired_ms <= ?;

-- name: add_token_key
INSERT INTO pledger_token_key (key_id, secret, created_ms) VALUES (?, ?, ?);
