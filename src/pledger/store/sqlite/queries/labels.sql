-- Search attributes and memos of runs.

-- name: drop_attribute
DELETE FROM pledger_attribute WHERE run_key = ? AND name = ?;

-- name: insert_attribute
INSERT INTO pledger_attribute (run_key, namespace, name, kind, position, words, whole, real)
SELECT ?1, run.namespace, ?2, ?3, ?4, ?5, ?6, ?7 FROM pledger_run AS run WHERE run.run_key = ?1;

-- name: write_memo
INSERT INTO pledger_memo (run_key, memo) VALUES (?, ?) ON CONFLICT (run_key) DO UPDATE SET memo = excluded.memo;

-- name: drop_memo
DELETE FROM pledger_memo WHERE run_key = ?;

-- name: drop_attributes
DELETE FROM pledger_attribute WHERE run_key IN (SELECT value FROM json_each(?));

-- name: drop_memos
DELETE FROM pledger_memo WHERE run_key IN (SELECT value FROM json_each(?));

-- name: write_terms
UPDATE pledger_run SET answers_for = ?2, deadline_ms = ?3 WHERE run_key = ?1;

-- name: begin_phase
INSERT INTO pledger_phase (run_key, event_id, kind, name, owner, deadline_ms) VALUES (?, ?, ?, ?, ?, ?);

-- name: end_phase
DELETE FROM pledger_phase WHERE run_key = ? AND event_id = ?;

-- name: drop_phases
DELETE FROM pledger_phase WHERE run_key IN (SELECT value FROM json_each(?));

-- name: hand_on_attributes
INSERT INTO pledger_attribute (run_key, namespace, name, kind, position, words, whole, real)
SELECT ?2, namespace, name, kind, position, words, whole, real FROM pledger_attribute WHERE run_key = ?1;

-- name: hand_on_memo
INSERT INTO pledger_memo (run_key, memo) SELECT ?2, memo FROM pledger_memo WHERE run_key = ?1;

-- name: read_attributes
SELECT run_key, name, kind, words, whole, real FROM pledger_attribute
WHERE run_key IN (SELECT value FROM json_each(?)) ORDER BY run_key, name, position;

-- name: read_phases
SELECT run_key, event_id, kind, name, owner, deadline_ms FROM pledger_phase
WHERE run_key IN (SELECT value FROM json_each(?)) ORDER BY run_key, deadline_ms, event_id;

-- name: read_terms
-- ?2: where the attempt log has warnings.
SELECT
    run.run_key, memo.memo, run.answers_for, run.deadline_ms,
    EXISTS (
        SELECT 1 FROM pledger_task AS task
        WHERE task.run_key = run.run_key AND task.attempt > 1 AND task.state <> 'done'
    ),
    EXISTS (SELECT 1 FROM pledger_attempt AS attempt WHERE attempt.run_key = run.run_key AND attempt.event_id = ?2)
FROM pledger_run AS run LEFT JOIN pledger_memo AS memo USING (run_key)
WHERE run.run_key IN (SELECT value FROM json_each(?1));

-- name: attribute_kinds
-- By hopping from one name of a kind to the next in the index.
WITH RECURSIVE hop (kind, name) AS (
    SELECT kinds.value, (
        SELECT min(found.name) FROM pledger_attribute AS found WHERE found.namespace = ?1 AND found.kind = kinds.value
    )
    FROM json_each(?2) AS kinds
    UNION ALL
    SELECT hop.kind, (
        SELECT min(found.name) FROM pledger_attribute AS found
        WHERE found.namespace = ?1 AND found.kind = hop.kind AND found.name > hop.name
    )
    FROM hop WHERE hop.name IS NOT NULL
)
SELECT name, kind FROM hop WHERE name IS NOT NULL ORDER BY name, kind;
