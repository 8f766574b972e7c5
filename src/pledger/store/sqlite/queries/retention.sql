-- What is forgotten of finished chains. A parameter `now` that is NULL stands for the store's clock.

-- name: is_free
-- Whether the chore may be taken: nobody has it, and it need be done.
SELECT NOT EXISTS (
    SELECT 1 FROM pledger_duty
    WHERE namespace = ?2 AND name = ?3 AND until_ms > coalesce(?1, (SELECT now_ms FROM pledger_clock))
        AND owner IS NOT ?4
);

-- name: take_duty
INSERT INTO pledger_duty AS duty (namespace, name, owner, until_ms)
SELECT ?2, ?3, ?4, coalesce(?1, (SELECT now_ms FROM pledger_clock)) + ?5 WHERE true
ON CONFLICT (namespace, name) DO UPDATE SET owner = excluded.owner, until_ms = excluded.until_ms
WHERE duty.owner IS excluded.owner OR duty.until_ms <= coalesce(?1, (SELECT now_ms FROM pledger_clock));

-- name: leave_duty
UPDATE pledger_duty SET owner = NULL, until_ms = coalesce(?1, (SELECT now_ms FROM pledger_clock)) + ?5
WHERE namespace = ?2 AND name = ?3 AND owner = ?4;

-- name: finished_types
-- By hopping from one to the next in the index.
WITH RECURSIVE type (name) AS (
    SELECT min(workflow_type) FROM pledger_run
    WHERE closed_ms IS NOT NULL AND forgotten_ms IS NULL AND status <> 'continued_as_new' AND namespace = ?1
    UNION ALL
    SELECT (
        SELECT min(workflow_type) FROM pledger_run
        WHERE closed_ms IS NOT NULL AND forgotten_ms IS NULL AND status <> 'continued_as_new' AND namespace = ?1
            AND workflow_type > type.name
    ) FROM type WHERE type.name IS NOT NULL
)
SELECT name FROM type WHERE name IS NOT NULL;

-- name: finished_chains
SELECT
    run.chain_key, run.run_key, run.closed_ms,
    (SELECT sum(part.last_event) FROM pledger_run AS part WHERE part.chain_key = run.chain_key),
    EXISTS (
        SELECT 1 FROM pledger_message AS message
        WHERE message.chain_key = run.chain_key AND message.verdict = 'undelivered' AND message.kind NOT IN ('start', 'notice')
    )
FROM pledger_run AS run
WHERE run.closed_ms IS NOT NULL AND run.forgotten_ms IS NULL AND run.status <> 'continued_as_new'
    AND run.namespace = ?2 AND run.workflow_type = ?3
    AND run.closed_ms < coalesce(?1, (SELECT now_ms FROM pledger_clock)) - ?4
    AND (run.closed_ms, run.run_key) > (?5, ?6)
    AND NOT EXISTS (
        SELECT 1 FROM pledger_run AS later WHERE later.chain_key = run.chain_key AND later.segment > run.segment
    )
ORDER BY run.closed_ms, run.run_key LIMIT ?7;

-- name: chain_runs
SELECT row.* FROM pledger_run AS run JOIN pledger_run_row AS row USING (run_key)
WHERE run.chain_key IN (SELECT value FROM json_each(?)) ORDER BY run.run_key;

-- name: forgettable_runs
-- Of chains that are finished: none of their runs is open, or has ended a moment ago.
SELECT run.run_key, run.chain_key, run.last_event FROM pledger_run AS run
WHERE run.chain_key IN (SELECT value FROM json_each(?2)) AND run.forgotten_ms IS NULL AND NOT EXISTS (
    SELECT 1 FROM pledger_run AS part WHERE part.chain_key = run.chain_key AND (
        part.closed_ms IS NULL OR part.closed_ms >= coalesce(?1, (SELECT now_ms FROM pledger_clock)) - ?3
        OR EXISTS (SELECT 1 FROM pledger_parting AS parting WHERE parting.run_key = part.run_key)
    )
);

-- name: forget_runs
UPDATE pledger_run SET last_event = 0, forgotten_ms = coalesce(?1, (SELECT now_ms FROM pledger_clock))
WHERE run_key IN (SELECT value FROM json_each(?2));

-- name: drop_histories
DELETE FROM pledger_history WHERE run_key IN (SELECT value FROM json_each(?));

-- name: drop_attempts
DELETE FROM pledger_attempt WHERE run_key IN (SELECT value FROM json_each(?));

-- name: drop_questions
DELETE FROM pledger_request
WHERE run_key IN (SELECT value FROM json_each(?)) AND answer IS NULL AND failure IS NULL;

-- name: drop_losses
DELETE FROM pledger_loss WHERE run_key IN (SELECT value FROM json_each(?));

-- name: drop_children
-- What is left of them names their parent itself.
DELETE FROM pledger_child WHERE parent_key IN (SELECT value FROM json_each(?));

-- name: drop_messages
-- But for the ids that their senders chose.
DELETE FROM pledger_message
WHERE chain_key IN (SELECT value FROM json_each(?)) AND (NOT keep_id OR kind <> 'signal');

-- name: empty_messages
UPDATE pledger_message SET body = x'' WHERE chain_key IN (SELECT value FROM json_each(?)) AND body <> x'';

-- name: keep_leftovers
INSERT INTO pledger_leftover (run_key) SELECT value FROM json_each(?);

-- name: has_leftovers
SELECT 1 FROM pledger_leftover
UNION ALL SELECT 1 FROM pledger_stream WHERE forgotten AND chain_key > 0 LIMIT 1;

-- name: next_leftover
SELECT run_key FROM pledger_leftover ORDER BY run_key LIMIT 1;

-- name: drop_some_history
DELETE FROM pledger_history WHERE history_key IN (
    SELECT history_key FROM pledger_history WHERE run_key = ? ORDER BY first_event_id LIMIT ?
);

-- name: drop_some_attempts
DELETE FROM pledger_attempt WHERE attempt_key IN (
    SELECT attempt_key FROM pledger_attempt WHERE run_key = ? ORDER BY event_id LIMIT ?
);

-- name: leftover_is_gone
DELETE FROM pledger_leftover WHERE run_key = ?;
