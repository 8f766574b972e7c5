-- Statements in the transactions of users.

-- name: whereabouts
-- Tells two connections to one ledger from two to two ledgers: the server's life, the database and the schema.
-- Nothing of it depends on what a transaction sees.
SELECT
    extract(epoch FROM pg_postmaster_start_time())::text,
    (SELECT oid::bigint FROM pg_catalog.pg_database WHERE datname = current_database()),
    to_regclass('pledger.run')::oid::bigint;
