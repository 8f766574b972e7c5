-- Search attributes and memos of runs.

-- name: drop_attributes
-- Of runs whose rows are locked, or that are new.
DELETE FROM pledger.attribute WHERE (run_key, name) IN (SELECT * FROM unnest($1::bigint[], $2::text[]));

-- name: insert_attributes
INSERT INTO pledger.attribute (run_key, namespace, name, kind, position, words, whole, real)
SELECT given.run_key, run.namespace, given.name, given.kind, given.position, given.words, given.whole, given.real
FROM unnest(
    $1::bigint[], $2::text[], $3::text[], $4::int[], $5::text[], $6::bigint[], $7::float8[]
) AS given (run_key, name, kind, position, words, whole, real)
JOIN pledger.run AS run USING (run_key);

-- name: write_memos
INSERT INTO pledger.memo (run_key, memo) SELECT * FROM unnest($1::bigint[], $2::bytea[])
ON CONFLICT (run_key) DO UPDATE SET memo = excluded.memo;

-- name: drop_memos
DELETE FROM pledger.memo WHERE run_key IN (SELECT * FROM unnest($1::bigint[]));

-- name: hand_on_attributes
-- What runs say of themselves, to their successors.
INSERT INTO pledger.attribute (run_key, namespace, name, kind, position, words, whole, real)
SELECT next.run_key, own.namespace, own.name, own.kind, own.position, own.words, own.whole, own.real
FROM unnest($1::bigint[]) AS gone (run_key)
JOIN pledger.run AS run ON run.run_key = gone.run_key
JOIN pledger.run AS next ON next.chain_key = run.chain_key AND next.segment = run.segment + 1
JOIN pledger.attribute AS own ON own.run_key = gone.run_key;

-- name: hand_on_memos
INSERT INTO pledger.memo (run_key, memo)
SELECT next.run_key, own.memo
FROM unnest($1::bigint[]) AS gone (run_key)
JOIN pledger.run AS run ON run.run_key = gone.run_key
JOIN pledger.run AS next ON next.chain_key = run.chain_key AND next.segment = run.segment + 1
JOIN pledger.memo AS own ON own.run_key = gone.run_key;

-- name: hand_on_owners
UPDATE pledger.run AS next SET answers_for = run.answers_for
FROM unnest($1::bigint[]) AS gone (run_key) JOIN pledger.run AS run ON run.run_key = gone.run_key
WHERE next.chain_key = run.chain_key AND next.segment = run.segment + 1 AND run.answers_for IS NOT NULL;

-- name: read_attributes
SELECT run_key, name, kind, words, whole, real FROM pledger.attribute
WHERE run_key = ANY($1::bigint[]) ORDER BY run_key, name, position;

-- name: read_terms
SELECT run.run_key, memo.memo, run.answers_for, run.deadline_ms
FROM pledger.run AS run LEFT JOIN pledger.memo AS memo USING (run_key)
WHERE run.run_key = ANY($1::bigint[]);

-- name: attribute_kinds
-- By hopping from one name of a kind to the next in the index.
WITH RECURSIVE hop (kind, name) AS (
    SELECT kinds.kind, (
        SELECT min(found.name) FROM pledger.attribute AS found
        WHERE found.namespace = $1 AND found.kind = kinds.kind
    )
    FROM unnest($2::text[]) AS kinds (kind)
    UNION ALL
    SELECT hop.kind, (
        SELECT min(found.name) FROM pledger.attribute AS found
        WHERE found.namespace = $1 AND found.kind = hop.kind AND found.name > hop.name
    )
    FROM hop WHERE hop.name IS NOT NULL
)
SELECT name, kind FROM hop WHERE name IS NOT NULL ORDER BY name COLLATE "C", kind COLLATE "C";
