-- Search attributes and memos of runs.

-- name: drop_attributes
-- Of runs whose rows are locked, or that are new.
DELETE FROM pledger.attribute WHERE (run_key, name) IN (SELECT * FROM unnest($1::bigint[], $2::text[]));

-- name: insert_attributes
INSERT INTO pledger.attribute (run_key, namespace, name, kind, position, words, whole, real)
SELECT * FROM unnest(
    $1::bigint[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::bigint[], $8::float8[]
);

-- name: write_memos
INSERT INTO pledger.memo (run_key, memo) SELECT * FROM unnest($1::bigint[], $2::bytea[])
ON CONFLICT (run_key) DO UPDATE SET memo = excluded.memo;

-- name: drop_memos
DELETE FROM pledger.memo WHERE run_key IN (SELECT * FROM unnest($1::bigint[]));

-- name: write_terms
UPDATE pledger.run AS run SET answers_for = given.answers_for, deadline_ms = given.deadline_ms
FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS given (run_key, answers_for, deadline_ms)
WHERE run.run_key = given.run_key;

-- name: begin_phases
INSERT INTO pledger.phase (run_key, event_id, kind, name, owner, deadline_ms)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[]);

-- name: end_phases
DELETE FROM pledger.phase WHERE (run_key, event_id) IN (SELECT * FROM unnest($1::bigint[], $2::bigint[]));

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

-- name: read_attributes
SELECT run_key, name, kind, words, whole, real FROM pledger.attribute
WHERE run_key = ANY($1::bigint[]) ORDER BY run_key, name, position;

-- name: read_phases
SELECT run_key, event_id, kind, name, owner, deadline_ms FROM pledger.phase
WHERE run_key = ANY($1::bigint[]) ORDER BY run_key, deadline_ms, event_id;

-- name: read_terms
-- $2: where the attempt log has warnings.
SELECT
    run.run_key, memo.memo, run.answers_for, run.deadline_ms,
    EXISTS (
        SELECT FROM pledger.task AS task WHERE task.run_key = run.run_key AND task.attempt > 1 AND task.state <> 'done'
        OFFSET 0
    ),
    EXISTS (
        SELECT FROM pledger.attempt AS attempt WHERE attempt.run_key = run.run_key AND attempt.event_id = $2 OFFSET 0
    )
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
