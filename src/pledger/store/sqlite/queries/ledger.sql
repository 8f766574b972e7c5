-- Runs and their histories.

-- name: find_newest_run
-- The newest run of a workflow id: the last segment of its last chain.
SELECT * FROM pledger_run_row WHERE run_key = (
    SELECT run.run_key FROM pledger_chain AS chain JOIN pledger_run AS run USING (chain_key)
    WHERE chain.namespace = ?1 AND chain.workflow_id = ?2
    ORDER BY chain.generation DESC, run.segment DESC LIMIT 1
);

-- name: find_run
-- The run of a workflow id that has this run id.
SELECT * FROM pledger_run_row WHERE run_id = ?3 AND chain_key IN (
    SELECT chain_key FROM pledger_chain WHERE namespace = ?1 AND workflow_id = ?2
);

-- name: insert_chain
-- The next chain of a workflow id.
INSERT INTO pledger_chain (namespace, workflow_id, generation)
SELECT ?1, ?2, 1 + coalesce(max(generation), 0) FROM pledger_chain WHERE namespace = ?1 AND workflow_id = ?2;

-- name: insert_run
INSERT INTO pledger_run (
    chain_key, namespace, run_id, workflow_type, task_queue, input_digest, started_ms, answers_for, deadline_ms,
    fence, owner, due_ms
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0);

-- name: insert_born_run
-- A run whose first transition is written with its start: as `insert_run` and `append` would leave it.
INSERT INTO pledger_run (
    chain_key, namespace, run_id, workflow_type, task_queue, input_digest, started_ms, answers_for, deadline_ms,
    fence, owner, last_event, head, due_ms
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?);

-- name: first_type
-- What a chain was started as.
SELECT workflow_type FROM pledger_run WHERE chain_key = ? AND segment = 1;

-- name: insert_successor
-- The next segment of the chain of ?1, for whoever comes.
INSERT INTO pledger_run (
    chain_key, namespace, segment, run_id, workflow_type, task_queue, input_digest, started_ms, answers_for, deadline_ms,
    fence, due_ms
)
SELECT chain_key, namespace, segment + 1, ?2, ?3, ?4, input_digest, ?5, answers_for, ?6, 0, 0
FROM pledger_run WHERE run_key = ?1;

-- name: insert_its_start
INSERT INTO pledger_message (chain_key, kind, message_id, name, body, sent_ms, keep_id)
SELECT chain_key, 'start', ?2, ?5, ?3, ?4, 0 FROM pledger_run WHERE run_key = ?1;

-- name: hand_on_pause
-- A pause of one run is that of its chain.
UPDATE pledger_pause SET run_key = ?2, name = ?3 WHERE run_key = ?1;

-- name: hand_on_loss
INSERT INTO pledger_loss (run_key, last_event, declared_ms, moved)
SELECT ?2, 0, declared_ms, moved FROM pledger_loss WHERE run_key = ?1;

-- name: append
-- One step of an owned run, by compare-and-set.
UPDATE pledger_run SET last_event = ?, head = ?, due_ms = ?, claims = 0
WHERE run_key = ? AND fence = ? AND last_event = ? AND owner IS NOT NULL;

-- name: append_and_close
-- The last step of an owned run.
UPDATE pledger_run
SET last_event = ?, head = ?, status = ?, closed_ms = ?, claims = 0, owner = NULL, fence = fence + 1, due_ms = NULL
WHERE run_key = ? AND fence = ? AND last_event = ? AND owner IS NOT NULL;

-- name: is_newest
-- Whether a transition is there already, and the newest: its checksum covers its place, its content and all before it.
-- One that closed the run (?4) has raised the fence by one.
SELECT 1 FROM pledger_run WHERE run_key = ?1 AND fence = ?2 + ?4 AND head = ?3 AND (owner IS NULL) = ?4;

-- name: terminate
-- The last step of an open run, whoever owns it.
UPDATE pledger_run
SET last_event = ?, head = ?, status = ?, closed_ms = ?, owner = NULL, fence = fence + 1, due_ms = NULL,
    blocked = NULL, blocked_code = NULL
WHERE run_key = ? AND last_event = ? AND head = ? AND closed_ms IS NULL;

-- name: insert_transition
INSERT INTO pledger_history (run_key, first_event_id, body, checksum) VALUES (?, ?, ?, ?);

-- name: release
UPDATE pledger_run SET owner = NULL, fence = fence + 1, due_ms = ?
WHERE run_key = ? AND fence = ? AND owner IS NOT NULL;

-- name: block
-- Due at once, for code that may do better: what the run waited for may have been what its code failed on.
-- ?5: how many codes that have failed at this event are remembered.
UPDATE pledger_run SET
    owner = NULL, fence = fence + 1, due_ms = 0, claims = 0, blocked = ?3, blocked_code = ?4, tried_event = last_event,
    tried_codes = (
        SELECT json_insert(iif(json_array_length(codes) < ?5, codes, json_remove(codes, '$[0]')), '$[#]', ?4)
        FROM (SELECT iif(tried_event IS last_event, tried_codes, '[]') AS codes)
    )
WHERE run_key = ?1 AND fence = ?2 AND owner IS NOT NULL;

-- name: confirm_claim
UPDATE pledger_run SET claims = 0 WHERE run_key = ? AND fence = ? AND owner IS NOT NULL;

-- name: due_if_mail
-- After a run was let go: due at once when something waits for it. Looked up rather than remembered: a sender of the
-- owner's own process stores no wake-up, and the owner may let go before it hears of the message.
UPDATE pledger_run SET due_ms = 0 WHERE run_key = ?1 AND owner IS NULL AND (
    EXISTS (
        SELECT 1 FROM pledger_message AS message
        WHERE message.chain_key = pledger_run.chain_key AND message.verdict IS NULL
    )
    OR EXISTS (SELECT 1 FROM pledger_task AS task WHERE task.run_key = ?1 AND task.state = 'done')
    OR EXISTS (
        SELECT 1 FROM pledger_request AS request
        WHERE request.run_key = ?1 AND request.answer IS NULL AND request.failure IS NULL
    )
);

-- name: settle_messages
-- The verdicts of a run's close.
UPDATE pledger_message SET verdict = CASE
    WHEN kind <> 'cancel' THEN 'undelivered'
    WHEN verdict = 'delivered' AND ?2 = 'cancelled' THEN 'cancelled'
    ELSE 'too_late:' || ?2
END
WHERE chain_key = (SELECT run.chain_key FROM pledger_run AS run WHERE run.run_key = ?1)
    AND (verdict IS NULL OR (kind = 'cancel' AND verdict = 'delivered'));

-- name: drop_tasks_of_run
DELETE FROM pledger_task WHERE run_key = ?;

-- name: drop_wake
DELETE FROM pledger_wake WHERE run_key = ?;

-- name: read_run
SELECT * FROM pledger_run_row WHERE run_key = ?;

-- name: read_current
-- The newest run of the chain that the run is of.
SELECT * FROM pledger_run_row WHERE run_key = (
    SELECT newest.run_key FROM pledger_run AS asked JOIN pledger_run AS newest USING (chain_key)
    WHERE asked.run_key = ? ORDER BY newest.segment DESC LIMIT 1
);

-- name: read_statuses
SELECT run_key, status, blocked IS NOT NULL FROM pledger_run WHERE run_key IN (SELECT value FROM json_each(?));

-- name: read_history
SELECT first_event_id, body, checksum FROM pledger_history
WHERE run_key = ? AND first_event_id > ? ORDER BY first_event_id LIMIT ?;

-- name: read_last_transitions
-- The newest two, the last one first.
SELECT first_event_id, body, checksum FROM pledger_history WHERE run_key = ? ORDER BY first_event_id DESC LIMIT 2;

-- name: count_open
-- Open runs by what they are at, each kind in the index that leads to it: see `open_rows`. oldest: since when the one of
-- them that has waited longest has had something to do, as far as rows say: one that was never begun, since its start.
SELECT task_queue, workflow_type, 'blocked', count(*), NULL FROM pledger_run
WHERE namespace = ?1 AND blocked IS NOT NULL AND status = 'running' GROUP BY task_queue, workflow_type
UNION ALL
SELECT task_queue, workflow_type, 'ready', count(*),
    min(iif(due_ms > 0, due_ms, iif(last_event = 0, started_ms, NULL)))
FROM pledger_run
WHERE namespace = ?1 AND owner IS NULL AND blocked IS NULL AND due_ms IS NOT NULL AND due_ms <= ?2
GROUP BY task_queue, workflow_type
UNION ALL
SELECT task_queue, workflow_type, 'free', count(*), NULL FROM pledger_run
WHERE namespace = ?1 AND status = 'running' AND owner IS NULL AND blocked IS NULL
GROUP BY task_queue, workflow_type
UNION ALL
SELECT run.task_queue, run.workflow_type, 'held', count(*), NULL
FROM pledger_session AS session CROSS JOIN pledger_run AS run ON run.owner = session.session_key
WHERE session.namespace = ?1 AND run.namespace = ?1 GROUP BY run.task_queue, run.workflow_type;
