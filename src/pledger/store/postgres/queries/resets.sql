-- Runs that go on from a part of another one's history.

-- name: outlive_runs
-- The last steps of open runs whose rows are locked, and whose chains go on, with their messages.
WITH ended AS (
    UPDATE pledger.run AS run SET
        status = 'terminated', closed_ms = step.closed_ms, last_event = step.last_event, head = step.head,
        fence = run.fence + 1, owner = NULL, due_ms = NULL, next_ms = NULL, blocked = NULL, blocked_code = NULL
    FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bigint[]) AS step (run_key, last_event, head, closed_ms)
    WHERE run.run_key = step.run_key
    RETURNING run.run_key
)
DELETE FROM pledger.task AS task USING ended WHERE task.run_key = ended.run_key;

-- name: renew_chains
-- Whoever starts the workflow id anew at this moment would take this number for a chain: one of the two finds it taken,
-- looks again, and sees the other one's run.
UPDATE pledger.chain SET generation = generation + 1 WHERE chain_key = ANY($1::bigint[]);

-- name: insert_segments
-- The next run of a chain that is locked.
INSERT INTO pledger.run (
    run_key, chain_key, namespace, segment, run_id, workflow_type, task_queue, input_digest, started_ms, fence, due_ms,
    last_event, head, answers_for, deadline_ms
)
SELECT
    new.run_key, base.chain_key, base.namespace,
    (SELECT 1 + max(part.segment) FROM pledger.run AS part WHERE part.chain_key = base.chain_key),
    new.run_id, base.workflow_type, base.task_queue, base.input_digest, new.started_ms, 0, 0, new.kept, new.head,
    new.answers_for, new.deadline_ms
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bytea[], $7::text[], $8::bigint[])
    AS new (run_key, base_key, run_id, started_ms, kept, head, answers_for, deadline_ms)
JOIN pledger.run AS base ON base.run_key = new.base_key;

-- name: copy_histories
INSERT INTO pledger.history (run_key, first_event_id, body, checksum)
SELECT new.run_key, history.first_event_id, history.body, history.checksum
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS new (run_key, base_key, kept)
JOIN pledger.history AS history ON history.run_key = new.base_key AND history.first_event_id <= new.kept
ORDER BY new.run_key, history.first_event_id;

-- name: copy_uses
-- Of the pieces that the histories refer to. Nobody forgets these meanwhile: the runs are locked, and one of each chain
-- is open.
INSERT INTO pledger.piece_use (run_key, piece_key)
SELECT new.run_key, uses.piece_key FROM unnest($1::bigint[], $2::bigint[]) AS new (run_key, base_key)
JOIN pledger.piece_use AS uses ON uses.run_key = new.base_key;

-- name: drop_starts
-- Of runs of these chains that ended before anybody took them.
DELETE FROM pledger.message AS message USING unnest($1::bigint[], $2::text[]) AS start (chain_key, message_id)
WHERE message.chain_key = start.chain_key AND message.message_id = start.message_id;

-- name: revive_signals
-- Those that came too late for a run of the chain.
UPDATE pledger.message SET verdict = NULL
WHERE chain_key = ANY($1::bigint[]) AND kind = 'signal' AND verdict = 'undelivered';

-- name: hand_on_pauses
-- A pause of one run is that of its chain.
UPDATE pledger.pause AS pause SET run_key = new.run_key, name = new.run_id
FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS new (run_key, newest_key, run_id)
WHERE pause.run_key = new.newest_key;

-- name: hand_on_losses
INSERT INTO pledger.loss (run_key, last_event, declared_ms, moved)
SELECT new.run_key, 0, loss.declared_ms, loss.moved
FROM unnest($1::bigint[], $2::bigint[]) AS new (run_key, base_key)
JOIN pledger.loss AS loss ON loss.run_key = new.base_key;

-- name: insert_resets
INSERT INTO pledger.reset (run_key, run_id, base_key, base_run_id, event_id, kept, how, reason, "by", reset_ms)
SELECT * FROM unnest(
    $1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[],
    $10::bigint[]
);

-- name: read_resets
SELECT run_key, run_id, base_key, base_run_id, event_id, kept, how, reason, "by", reset_ms FROM pledger.reset
WHERE run_key = $1 OR base_key = $1 ORDER BY run_key;
