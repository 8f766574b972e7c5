-- A ledger that has gone back behind what it had acknowledged. A parameter for the time that is NULL stands for the store's
-- clock.

-- name: read_losses
SELECT run_key, moved FROM pledger.loss WHERE run_key = ANY($1::bigint[]);

-- name: has_losses
-- Of closed runs too: one that goes on from such a run has its doubts.
SELECT EXISTS (SELECT FROM pledger.loss);

-- name: end_all_sessions
DELETE FROM pledger.session;

-- name: note_losses
-- Those that sleep, and are to sleep on, have not moved: nothing that the ledger knows of could wake them in the part that is
-- gone. A message may have, which is gone with it.
INSERT INTO pledger.loss AS loss (run_key, last_event, declared_ms, moved)
SELECT
    run.run_key, run.last_event, clock.now_ms,
    run.owner IS NOT NULL OR run.due_ms IS NULL OR run.due_ms <= clock.now_ms
    OR EXISTS (SELECT FROM pledger.task AS task WHERE task.run_key = run.run_key)
    OR EXISTS (SELECT FROM pledger.message AS sent WHERE sent.chain_key = run.chain_key AND sent.verdict IS NULL)
FROM pledger.run AS run, (SELECT coalesce($1::bigint, pledger.now_ms()) AS now_ms) AS clock
WHERE run.closed_ms IS NULL
ON CONFLICT (run_key) DO UPDATE SET
    last_event = excluded.last_event, declared_ms = excluded.declared_ms, moved = loss.moved OR excluded.moved
RETURNING moved;

-- name: fence_runs
UPDATE pledger.run SET
    fence = fence + $1, owner = NULL, due_ms = CASE WHEN owner IS NULL THEN due_ms ELSE 0 END
WHERE closed_ms IS NULL;

-- name: lose_tasks
UPDATE pledger.task SET
    state = 'queued', owner = NULL, due_ms = 0, lost = true,
    expires_ms = CASE WHEN cancel_requested THEN 0 ELSE expires_ms END
WHERE state = 'started' OR (
    state = 'queued'
    AND CASE due_ms WHEN 253402300799000 THEN ready_ms ELSE due_ms END <= coalesce($1::bigint, pledger.now_ms())
);

-- name: drop_all_wakes
DELETE FROM pledger.wake;

-- name: jump_keys
-- All keys are given by sequences of the schema. Those that were given in the part that is gone would be given again.
SELECT setval(key.oid::regclass, nextval(key.oid::regclass) + $1)
FROM pg_class AS key WHERE key.relkind = 'S' AND key.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $2);

-- name: jump_streams
-- Positions that were given in the part that is gone would be given again, and followers have passed them.
UPDATE pledger.stream SET next_position = next_position + $1::bigint WHERE NOT forgotten;

-- name: lock_timeline
-- The same key as that of migrations would do, but they are told apart in pg_locks.
SELECT pg_advisory_xact_lock($1::bigint);

-- name: read_timeline
-- Which line of the server's history the ledger was last seen on, and when the newest loss was declared, 0 for never.
SELECT
    (SELECT value::bigint FROM pledger.meta WHERE name = 'timeline'),
    coalesce((SELECT value::bigint FROM pledger.meta WHERE name = 'declared_ms'), 0);

-- name: lacks_mark
-- Whether the newest mark of a handle, left after $3, is not there. One that was dropped for its age is not gone.
SELECT coalesce(
    (SELECT mark.batch < $2::bigint FROM pledger.mark AS mark WHERE mark.handle = $1),
    $3::bigint > coalesce((SELECT value::bigint FROM pledger.meta WHERE name = 'dropped_ms'), 0)
);

-- name: has_step
-- Whether a transition is where it was written. What was forgotten on purpose is not gone.
SELECT EXISTS (
    SELECT FROM pledger.run AS run WHERE run.run_key = $1 AND (
        run.forgotten_ms IS NOT NULL
        OR (
            SELECT step.checksum = $3 FROM pledger.history AS step
            WHERE step.run_key = $1 AND step.first_event_id = $2
        )
    )
);

-- name: keep_timeline
INSERT INTO pledger.meta (name, value) VALUES ('timeline', $1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: keep_declared
-- Later than what anybody knows of, $1 among them, whatever the clock says: by that a new one is known.
INSERT INTO pledger.meta (name, value) VALUES ('declared_ms', greatest(pledger.now_ms(), $1::bigint + 1)::text)
ON CONFLICT (name) DO UPDATE SET value = greatest(excluded.value::bigint, meta.value::bigint + 1)::text;

-- name: count_losses
-- Open runs that may have gone on in the part that is gone, and when the newest loss was declared.
SELECT count(*) FILTER (WHERE loss.moved), max(loss.declared_ms) FROM pledger.loss AS loss
WHERE (SELECT run.closed_ms IS NULL FROM pledger.run AS run WHERE run.run_key = loss.run_key);
