-- The keys that sign the tokens of attempts that are completed from outside.

-- name: read_token_keys
SELECT key_id, secret, created_ms, retired_ms FROM pledger.token_key ORDER BY created_no DESC;

-- name: retire_token_keys
UPDATE pledger.token_key SET retired_ms = least(coalesce(retired_ms, $1::bigint), $1::bigint);

-- name: drop_token_keys
DELETE FROM pledger.token_key WHERE retired_ms <= $1::bigint;

-- name: add_token_key
INSERT INTO pledger.token_key (key_id, secret, created_ms) VALUES ($1, $2, $3);
