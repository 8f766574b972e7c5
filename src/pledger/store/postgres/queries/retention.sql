-- What is forgotten of finished chains. A parameter for the time that is NULL stands for the store's clock.

-- name: take_duty
INSERT INTO pledger.duty AS duty (namespace, name, owner, until_ms)
SELECT $2, $3, $4, coalesce($1::bigint, pledger.now_ms()) + $5
ON CONFLICT (namespace, name) DO UPDATE SET owner = excluded.owner, until_ms = excluded.until_ms
WHERE duty.owner = excluded.owner OR duty.until_ms <= coalesce($1::bigint, pledger.now_ms())
RETURNING name;

-- name: leave_duty
UPDATE pledger.duty SET owner = NULL, until_ms = coalesce($1::bigint, pledger.now_ms()) + $5
WHERE namespace = $2 AND name = $3 AND owner = $4;

-- name: finished_types
-- By hopping from one to the next in the index.
WITH RECURSIVE type (name) AS (
    SELECT min(workflow_type) FROM pledger.run
    WHERE closed_ms IS NOT NULL AND forgotten_ms IS NULL AND status <> 'continued_as_new' AND namespace = $1
    UNION ALL
    SELECT (
        SELECT min(run.workflow_type) FROM pledger.run AS run
        WHERE closed_ms IS NOT NULL AND forgotten_ms IS NULL AND status <> 'continued_as_new' AND namespace = $1
            AND run.workflow_type > type.name
    ) FROM type WHERE type.name IS NOT NULL
)
SELECT name FROM type WHERE name IS NOT NULL;

-- name: finished_chains
-- The time in a query of its own, so that it bounds the range of the index. One row of each look aside is asked for,
-- rather than whether there is any: for that the planner may read everybody's.
SELECT
    run.chain_key, run.run_key, run.closed_ms,
    (SELECT sum(part.last_event)::bigint FROM pledger.run AS part WHERE part.chain_key = run.chain_key),
    coalesce(
        (
            SELECT true FROM pledger.message AS message
            WHERE message.chain_key = run.chain_key AND message.verdict = 'undelivered' AND message.kind NOT IN ('start', 'notice')
            LIMIT 1
        ),
        false
    )
FROM pledger.run AS run
WHERE run.closed_ms IS NOT NULL AND run.forgotten_ms IS NULL AND run.status <> 'continued_as_new'
    AND run.namespace = $2 AND run.workflow_type = $3
    AND run.closed_ms < (SELECT coalesce($1::bigint, pledger.now_ms())) - $4::bigint
    AND (run.closed_ms, run.run_key) > ($5, $6)
    AND (
        SELECT later.segment FROM pledger.run AS later WHERE later.chain_key = run.chain_key
        ORDER BY later.segment DESC LIMIT 1
    ) = run.segment
ORDER BY run.closed_ms, run.run_key LIMIT $7;

-- name: chain_runs
SELECT row.* FROM pledger.run AS run JOIN pledger.run_row AS row USING (run_key)
WHERE run.chain_key = ANY($1::bigint[]) ORDER BY run.run_key;

-- name: forget_chains
-- In one statement and one round trip, on a connection that no step waits for. Of chains that are finished: none of their
-- runs is open, or has ended a moment ago; nothing changes a closed run but this.
WITH target AS (
    SELECT run.run_key, run.chain_key, run.last_event FROM pledger.run AS run
    WHERE run.chain_key = ANY($2::bigint[]) AND run.forgotten_ms IS NULL AND coalesce(
        (
            SELECT false FROM pledger.run AS part WHERE part.chain_key = run.chain_key AND (
                part.closed_ms IS NULL OR part.closed_ms >= coalesce($1::bigint, pledger.now_ms()) - $3::bigint
                OR EXISTS (SELECT FROM pledger.parting AS parting WHERE parting.run_key = part.run_key)
            ) LIMIT 1
        ),
        true
    )
    ORDER BY run.run_key FOR NO KEY UPDATE SKIP LOCKED
),
forgotten AS (
    UPDATE pledger.run AS run SET last_event = 0, forgotten_ms = coalesce($1::bigint, pledger.now_ms())
    FROM target WHERE run.run_key = target.run_key
    RETURNING run.run_key
),
history AS (
    DELETE FROM pledger.history WHERE run_key = ANY(ARRAY(SELECT run_key FROM target WHERE last_event <= $4))
),
attempt AS (
    DELETE FROM pledger.attempt WHERE run_key = ANY(ARRAY(SELECT run_key FROM target WHERE last_event <= $4))
),
question AS (
    DELETE FROM pledger.request
    WHERE run_key = ANY(ARRAY(SELECT run_key FROM target)) AND answer IS NULL AND failure IS NULL
),
loss AS (
    DELETE FROM pledger.loss WHERE run_key = ANY(ARRAY(SELECT run_key FROM target))
),
child AS (
    -- What is left of them names their parent itself.
    DELETE FROM pledger.child WHERE parent_key = ANY(ARRAY(SELECT run_key FROM target))
),
attribute AS (
    DELETE FROM pledger.attribute WHERE run_key = ANY(ARRAY(SELECT run_key FROM target))
),
phase AS (
    DELETE FROM pledger.phase WHERE run_key = ANY(ARRAY(SELECT run_key FROM target))
),
memo AS (
    DELETE FROM pledger.memo WHERE run_key = ANY(ARRAY(SELECT run_key FROM target))
),
message AS (
    -- But for the ids that their senders chose.
    DELETE FROM pledger.message
    WHERE chain_key = ANY(ARRAY(SELECT chain_key FROM target)) AND (NOT keep_id OR kind <> 'signal')
),
emptied AS (
    UPDATE pledger.message SET body = '\x'
    WHERE chain_key = ANY(ARRAY(SELECT chain_key FROM target)) AND keep_id AND kind = 'signal' AND body <> '\x'
),
leftover AS (
    INSERT INTO pledger.leftover (run_key) SELECT run_key FROM target WHERE last_event > $4
)
SELECT count(*) FROM forgotten;

-- name: drop_leftovers
WITH next AS (SELECT run_key FROM pledger.leftover ORDER BY run_key LIMIT 1 FOR UPDATE SKIP LOCKED),
history AS (
    DELETE FROM pledger.history AS history USING (
        SELECT old.run_key, old.first_event_id FROM pledger.history AS old
        WHERE old.run_key = (SELECT run_key FROM next) ORDER BY old.first_event_id LIMIT $1
    ) AS old WHERE history.run_key = old.run_key AND history.first_event_id = old.first_event_id
    RETURNING 1
),
attempt AS (
    DELETE FROM pledger.attempt WHERE attempt_key = ANY(ARRAY(
        SELECT old.attempt_key FROM pledger.attempt AS old WHERE old.run_key = (SELECT run_key FROM next)
        ORDER BY old.event_id, old.attempt_key LIMIT $1
    ))
    RETURNING 1
),
dropped AS (SELECT (SELECT count(*) FROM history) AS rows, (SELECT count(*) FROM attempt) AS lines),
gone AS (
    DELETE FROM pledger.leftover
    WHERE run_key = (SELECT run_key FROM next) AND (SELECT rows < $1 AND lines < $1 FROM dropped)
)
SELECT CASE WHEN EXISTS (SELECT FROM next) THEN greatest(1, rows + lines) ELSE 0 END FROM dropped;
