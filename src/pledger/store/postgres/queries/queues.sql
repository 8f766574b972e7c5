-- Task queues whose rows stand in lanes, or whose activities are limited.

-- name: now_in_order
-- The time, as `now` gives it. And whatever is planned next in this transaction is planned without sorting, if it can be.
-- Of a table that has grown and was not analysed yet the server thinks that a handful of rows is queued, and would rather
-- read and sort all of them by index task_due than go from one lane to the next in index task_lane.
SELECT coalesce($1::bigint, pledger.now_ms()) FROM set_config('enable_sort', 'off', true);

-- name: queue_heads
-- What a claim chooses from: the oldest rows of each lane, due or not, and the oldest due rows in no lane, with the one
-- that is due next (a look tells but of the first that is due, which may wait for a limit). Of each type
-- ($3) the next $5 lanes after one ($4), found by hopping from one to the next in the index, however many rows each has.
-- The LIMIT of a lane is heads_of_each of engine.port.lanes, $7 the room.
-- $8: pauses that do not stand in the way; of each row it is looked up (OFFSET 0) whether another one does.
-- It comes after `now_in_order`, and lets those after it sort again.
WITH type AS (
    SELECT type.* FROM set_config('enable_sort', 'on', true), unnest($3::text[], $4::text[]) AS type (name, after)
    WHERE NOT EXISTS (
        SELECT FROM pledger.pause AS pause
        WHERE pause.namespace = $1 AND (pause.kind = 'namespace' OR (pause.kind = 'queue' AND pause.name = $2))
            AND pause.pause_key <> ALL ($8::bigint[])
    )
),
lane AS MATERIALIZED (
    SELECT type.name AS activity_type, found.lane FROM type
    CROSS JOIN LATERAL (
        WITH RECURSIVE hop (lane) AS (
            (
                SELECT task.lane FROM pledger.task AS task
                WHERE state = 'queued' AND due_ms = 253402300799000
                    AND namespace = $1 AND task_queue = $2 AND task.activity_type = type.name AND task.lane > type.after
                ORDER BY task.lane LIMIT 1
            )
            UNION ALL
            SELECT (
                SELECT task.lane FROM pledger.task AS task
                WHERE state = 'queued' AND due_ms = 253402300799000
                    AND namespace = $1 AND task_queue = $2 AND task.activity_type = type.name AND task.lane > hop.lane
                ORDER BY task.lane LIMIT 1
            ) FROM hop WHERE hop.lane IS NOT NULL
        )
        SELECT hop.lane FROM hop WHERE hop.lane IS NOT NULL LIMIT $5
    ) AS found
)
-- Each lane once at least, with nulls where none of its rows is to be had: all that were looked at are to be known. A row
-- that older code has queued, and that was set aside, says nothing of its weight.
SELECT
    head.run_key, head.event_id, head.attempt, lane.activity_type, lane.lane, head.ready_ms,
    coalesce(head.weight, 1), head.cancel_requested
FROM lane LEFT JOIN LATERAL (
    SELECT run_key, event_id, attempt, ready_ms, weight, cancel_requested FROM pledger.task AS task
    WHERE state = 'queued' AND due_ms = 253402300799000 AND namespace = $1 AND task_queue = $2
        AND task.activity_type = lane.activity_type AND task.lane = lane.lane
        AND NOT EXISTS (
            SELECT FROM pledger.paused_run AS paused
            WHERE paused.run_key = task.run_key AND paused.pause_key <> ALL ($8::bigint[]) OFFSET 0
        )
    ORDER BY ready_ms, run_key, event_id
    LIMIT least($7::bigint, greatest(4, 2 * $7::bigint / greatest(1, (SELECT count(*) FROM lane))))
) AS head ON true
UNION ALL
SELECT head.* FROM type CROSS JOIN LATERAL (
    SELECT run_key, event_id, attempt, activity_type, NULL, due_ms, 1::double precision, lost OR cancel_requested
    FROM pledger.task AS task
    WHERE state = 'queued' AND namespace = $1 AND task_queue = $2 AND task.activity_type = type.name AND due_ms <= $6
        AND NOT EXISTS (
            SELECT FROM pledger.paused_run AS paused
            WHERE paused.run_key = task.run_key AND paused.pause_key <> ALL ($8::bigint[]) OFFSET 0
        )
    ORDER BY due_ms LIMIT $7::bigint
) AS head
UNION ALL
SELECT head.* FROM type CROSS JOIN LATERAL (
    SELECT run_key, event_id, attempt, activity_type, NULL, due_ms, 1::double precision, cancel_requested
    FROM pledger.task AS task
    WHERE state = 'queued' AND namespace = $1 AND task_queue = $2 AND task.activity_type = type.name
        AND due_ms > $6 AND due_ms < 253402300799000
        AND NOT EXISTS (
            SELECT FROM pledger.paused_run AS paused
            WHERE paused.run_key = task.run_key AND paused.pause_key <> ALL ($8::bigint[]) OFFSET 0
        )
    ORDER BY due_ms LIMIT 1
) AS head;

-- name: overrides
SELECT name, set_concurrency, set_rate, set_per_ms FROM pledger.limit_rule WHERE namespace = $1 AND is_set;

-- name: slots
-- Those of some limits and keys, with whether their attempts still run.
SELECT slot.limit_name, slot.limit_key, slot.slot_no, slot.session_key, slot.run_key, slot.event_id, slot.attempt,
    coalesce(
        (
            SELECT task.attempt = slot.attempt AND task.owner = slot.session_key FROM pledger.task AS task
            WHERE task.run_key = slot.run_key AND task.event_id = slot.event_id
        ),
        false
    )
FROM unnest($2::text[], $3::text[]) AS used (limit_name, limit_key)
-- OFFSET 0: one look at the index for each. Joined as the planner likes, it may read all slots of the namespace.
CROSS JOIN LATERAL (
    SELECT * FROM pledger.slot AS slot
    WHERE slot.namespace = $1 AND slot.limit_name = used.limit_name AND slot.limit_key = used.limit_key OFFSET 0
) AS slot;

-- name: make_buckets
-- A bucket that is not there is full. Whoever takes a token locks its row, in one order.
INSERT INTO pledger.bucket (namespace, limit_name, limit_key, full_ms)
SELECT $1, used.* , 0 FROM unnest($2::text[], $3::text[]) AS used ON CONFLICT DO NOTHING;

-- name: lock_buckets
-- One after the other, in the order in which they are asked for: it is the same for all.
SELECT bucket.* FROM unnest($2::text[], $3::text[]) AS used (limit_name, limit_key)
CROSS JOIN LATERAL (
    SELECT bucket.limit_name, bucket.limit_key, bucket.full_ms FROM pledger.bucket AS bucket
    WHERE bucket.namespace = $1 AND bucket.limit_name = used.limit_name AND bucket.limit_key = used.limit_key
    FOR UPDATE
) AS bucket;

-- name: turns
SELECT turn.* FROM unnest($3::int[], $4::text[]) AS asked (priority, share)
CROSS JOIN LATERAL (
    SELECT turn.priority, turn.share, turn.pass FROM pledger.turn AS turn
    WHERE turn.namespace = $1 AND turn.task_queue = $2 AND turn.priority = asked.priority AND turn.share = asked.share
    OFFSET 0
) AS turn;

-- name: lock_session
SELECT session_key FROM pledger.session WHERE session_key = $1 FOR KEY SHARE;

-- name: lock_queued
-- Of the rows that were chosen, those that nobody else is just claiming or changing, and that wait for the attempt ($3) that
-- they were chosen for: a later one has a time of its own, and needs a slot and a token of its own.
-- Their state is asked for outside (OFFSET 0), so that no index of all that is queued is taken for it.
SELECT task.run_key, task.event_id
FROM unnest($1::bigint[], $2::bigint[], $3::int[]) AS chosen (run_key, event_id, attempt)
CROSS JOIN LATERAL (
    SELECT task.run_key, task.event_id, task.state, task.attempt FROM pledger.task AS task
    WHERE task.run_key = chosen.run_key AND task.event_id = chosen.event_id
    FOR UPDATE SKIP LOCKED OFFSET 0
) AS task
WHERE task.state = 'queued' AND task.attempt = chosen.attempt;

-- name: take_slots
-- Those that were there belong to attempts that did not run any more when they were seen ($9 to $12); one that somebody
-- else has taken meanwhile says something else, and stays his. One that was not there is whose comes first.
INSERT INTO pledger.slot AS slot (namespace, limit_name, limit_key, slot_no, session_key, run_key, event_id, attempt)
SELECT $1, * FROM unnest(
    $2::text[], $3::text[], $4::int[], $5::bigint[], $6::bigint[], $7::bigint[], $8::int[]
)
ON CONFLICT (namespace, limit_name, limit_key, slot_no) DO UPDATE SET
    session_key = excluded.session_key, run_key = excluded.run_key, event_id = excluded.event_id,
    attempt = excluded.attempt
WHERE (slot.limit_name, slot.limit_key, slot.slot_no, slot.session_key, slot.run_key, slot.event_id, slot.attempt) IN (
    SELECT * FROM unnest(
        $9::text[], $10::text[], $11::int[], $12::bigint[], $13::bigint[], $14::bigint[], $15::int[]
    )
)
RETURNING limit_name, limit_key, slot_no;

-- name: give_slots_back
DELETE FROM pledger.slot
WHERE namespace = $1
    AND (limit_name, limit_key, slot_no) IN (SELECT * FROM unnest($2::text[], $3::text[], $4::int[]));

-- name: start_tasks
WITH started AS (
    UPDATE pledger.task AS task SET
        state = 'started', owner = $1, limited = granted.limited,
        started_ms = coalesce(CASE WHEN task.lost THEN task.started_ms END, $2)
    FROM unnest($3::bigint[], $4::bigint[], $5::boolean[]) AS granted (run_key, event_id, limited)
    WHERE task.run_key = granted.run_key AND task.event_id = granted.event_id
    RETURNING task.*
)
SELECT
    started.run_key, started.event_id, started.namespace, chain.workflow_id, run.run_id, run.workflow_type,
    started.task_queue, started.activity_type, started.state, started.attempt,
    CASE started.due_ms WHEN 253402300799000 THEN started.ready_ms ELSE started.due_ms END,
    started.command, started.scheduled_ms, started.started_ms, started.expires_ms, started.owner, started.lost,
    started.heartbeat, started.last_failure, started.outcome, started.cancel_requested, started.lane,
    coalesce(started.weight, 1)
FROM started JOIN pledger.run AS run USING (run_key) JOIN pledger.chain AS chain USING (chain_key);

-- name: fill_buckets
-- Of rows that are there and locked.
INSERT INTO pledger.bucket (namespace, limit_name, limit_key, full_ms)
SELECT $1, filled.* FROM unnest($2::text[], $3::text[], $4::float8[]) AS filled
ON CONFLICT (namespace, limit_name, limit_key) DO UPDATE SET full_ms = excluded.full_ms;

-- name: take_turns
-- A turn that somebody else has taken at the same moment counts once: that costs a little fairness, and nothing else.
INSERT INTO pledger.turn AS turn (namespace, task_queue, priority, share, pass)
SELECT $1, $2, * FROM unnest($3::int[], $4::text[], $5::float8[])
ON CONFLICT (namespace, task_queue, priority, share) DO UPDATE SET pass = greatest(turn.pass, excluded.pass);

-- name: free_slots
-- Of the next $5 slots after a place, those whose attempts do not run any more; the last of these places, and how many
-- there were.
WITH next AS (
    SELECT slot.*, coalesce(
        (
            SELECT task.attempt = slot.attempt AND task.owner = slot.session_key FROM pledger.task AS task
            WHERE task.run_key = slot.run_key AND task.event_id = slot.event_id
        ),
        false
    ) AS live
    FROM pledger.slot AS slot
    WHERE (slot.namespace, slot.limit_name, slot.limit_key, slot.slot_no) > ($1, $2, $3, $4)
    ORDER BY slot.namespace, slot.limit_name, slot.limit_key, slot.slot_no LIMIT $5
),
over AS (
    SELECT slot.namespace, slot.limit_name, slot.limit_key, slot.slot_no FROM pledger.slot AS slot
    WHERE (
        slot.namespace, slot.limit_name, slot.limit_key, slot.slot_no,
        slot.session_key, slot.run_key, slot.event_id, slot.attempt
    ) IN (
        SELECT namespace, limit_name, limit_key, slot_no, session_key, run_key, event_id, attempt FROM next
        WHERE NOT live
    )
    FOR UPDATE SKIP LOCKED
),
freed AS (
    DELETE FROM pledger.slot AS slot USING over
    WHERE slot.namespace = over.namespace AND slot.limit_name = over.limit_name AND slot.limit_key = over.limit_key
        AND slot.slot_no = over.slot_no
)
SELECT namespace, limit_name, limit_key, slot_no, count(*) OVER () FROM next
ORDER BY namespace DESC, limit_name DESC, limit_key DESC, slot_no DESC LIMIT 1;

-- name: drop_full_buckets
-- Their tokens are all back: a bucket that is not there says the same.
DELETE FROM pledger.bucket WHERE (namespace, limit_name, limit_key) IN (
    SELECT namespace, limit_name, limit_key FROM pledger.bucket WHERE full_ms < $1 ORDER BY full_ms LIMIT $2
    FOR UPDATE SKIP LOCKED
);

-- name: drop_passed_turns
-- Of shares that have been away: they re-enter at the clock, as those do of which nothing is known. And those that are
-- least ahead, beyond $5 of them.
DELETE FROM pledger.turn WHERE (namespace, task_queue, priority, share) IN (
    SELECT namespace, task_queue, priority, share FROM pledger.turn
    WHERE namespace = $1 AND task_queue = $2 AND priority = $3 AND share > '' AND pass <= greatest(
        $4,
        (
            SELECT ahead.pass FROM pledger.turn AS ahead
            WHERE ahead.namespace = $1 AND ahead.task_queue = $2 AND ahead.priority = $3 AND ahead.share > ''
            ORDER BY ahead.pass DESC LIMIT 1 OFFSET $5::bigint
        )
    )
    FOR UPDATE SKIP LOCKED
);

-- name: state_limits
INSERT INTO pledger.limit_rule (namespace, name, is_stated, concurrency, rate, per_ms)
SELECT $1, name, true, concurrency, rate, per_ms
FROM unnest($2::text[], $3::int[], $4::float8[], $5::bigint[]) AS rule (name, concurrency, rate, per_ms)
ON CONFLICT (namespace, name) DO UPDATE SET
    is_stated = true, concurrency = excluded.concurrency, rate = excluded.rate, per_ms = excluded.per_ms;

-- name: override_limit
INSERT INTO pledger.limit_rule (namespace, name, is_set, set_concurrency, set_rate, set_per_ms)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (namespace, name) DO UPDATE SET
    is_set = excluded.is_set, set_concurrency = excluded.set_concurrency, set_rate = excluded.set_rate,
    set_per_ms = excluded.set_per_ms;

-- name: drop_unused_limit
DELETE FROM pledger.limit_rule WHERE namespace = $1 AND name = $2 AND NOT is_stated AND NOT is_set;

-- name: read_limits
SELECT name, is_stated, concurrency, rate, per_ms, is_set, set_concurrency, set_rate, set_per_ms FROM pledger.limit_rule
WHERE namespace = $1 ORDER BY name;

-- name: slots_in_use
SELECT slot.limit_name, slot.limit_key, count(*) FROM pledger.slot AS slot
JOIN pledger.task AS task
    ON task.run_key = slot.run_key AND task.event_id = slot.event_id AND task.attempt = slot.attempt
    AND task.owner = slot.session_key
WHERE slot.namespace = $1
GROUP BY slot.limit_name, slot.limit_key;

-- name: lane_lengths
SELECT lane, count(*) FROM pledger.task
WHERE state = 'queued' AND due_ms = 253402300799000 AND namespace = $1 GROUP BY lane;

-- name: read_queues
SELECT
    task_queue,
    count(*) FILTER (WHERE ready <= $2),
    min(ready) FILTER (WHERE ready <= $2),
    count(*) FILTER (WHERE ready > $2)
FROM (
    SELECT task_queue, CASE due_ms WHEN 253402300799000 THEN ready_ms ELSE due_ms END AS ready FROM pledger.task
    WHERE state = 'queued' AND namespace = $1
) AS queued
GROUP BY task_queue ORDER BY task_queue;

-- name: started_of_queues
SELECT task.task_queue, count(*) FROM pledger.session AS session JOIN pledger.task AS task
    ON task.owner = session.session_key
WHERE task.namespace = $1 GROUP BY task.task_queue;

-- name: places
-- The activities of a run that wait in lanes, each with how many of its lane come before it, at most 10,000.
SELECT task.event_id, task.lane, task.namespace, (
    SELECT count(*) FROM (
        SELECT FROM pledger.task AS other
        WHERE other.state = 'queued' AND other.due_ms = 253402300799000
            AND other.namespace = task.namespace AND other.task_queue = task.task_queue
            AND other.activity_type = task.activity_type AND other.lane = task.lane
            AND (other.ready_ms, other.run_key, other.event_id) < (task.ready_ms, task.run_key, task.event_id)
        LIMIT 10000
    ) AS before
)
FROM pledger.task AS task
WHERE task.run_key = $1 AND task.state = 'queued' AND task.due_ms = 253402300799000 ORDER BY task.event_id;
