-- Task queues whose rows stand in lanes, or whose activities are limited.

-- name: is_paused
-- Whether nothing of the queue is to be taken. ?3, here and below: pauses that do not stand in the way.
SELECT 1 FROM pledger_pause
WHERE namespace = ?1 AND (kind = 'namespace' OR (kind = 'queue' AND name = ?2))
    AND pause_key NOT IN (SELECT value FROM json_each(?3))
LIMIT 1;

-- name: lanes_of_type
-- The next ?5 lanes of a type, after ?4: found by hopping from one to the next in the index, however many rows each has.
WITH RECURSIVE hop (lane) AS (
    SELECT min(lane) FROM pledger_task
    WHERE state = 'queued' AND due_ms = 253402300799000
        AND namespace = ?1 AND task_queue = ?2 AND activity_type = ?3 AND lane > ?4
    UNION ALL
    SELECT (
        SELECT min(lane) FROM pledger_task
        WHERE state = 'queued' AND due_ms = 253402300799000
            AND namespace = ?1 AND task_queue = ?2 AND activity_type = ?3 AND lane > hop.lane
    ) FROM hop WHERE hop.lane IS NOT NULL
)
SELECT lane FROM hop WHERE lane IS NOT NULL LIMIT ?5;

-- name: heads_of_lane
-- Its oldest rows, due or not. One that older code has queued, and that was set aside, says nothing of its weight.
SELECT run_key, event_id, attempt, activity_type, lane, ready_ms, coalesce(weight, 1.0), cancel_requested
FROM pledger_task
WHERE state = 'queued' AND due_ms = 253402300799000
    AND namespace = ?1 AND task_queue = ?2 AND activity_type = ?3 AND lane = ?4
    AND NOT EXISTS (
        SELECT 1 FROM pledger_paused_run AS paused
        WHERE paused.run_key = pledger_task.run_key AND paused.pause_key NOT IN (SELECT value FROM json_each(?6))
    )
ORDER BY ready_ms, run_key, event_id LIMIT ?5;

-- name: heads_of_type
-- The oldest due rows in no lane.
SELECT run_key, event_id, attempt, activity_type, NULL, due_ms, 1.0, lost OR cancel_requested FROM pledger_task
WHERE state = 'queued' AND namespace = ?1 AND task_queue = ?2 AND activity_type = ?3 AND due_ms <= ?4
    AND NOT EXISTS (
        SELECT 1 FROM pledger_paused_run AS paused
        WHERE paused.run_key = pledger_task.run_key AND paused.pause_key NOT IN (SELECT value FROM json_each(?6))
    )
ORDER BY due_ms, task_key LIMIT ?5;

-- name: next_of_type
-- The one of them that is due next. A look tells but of the first that is due, which may wait for a limit.
SELECT run_key, event_id, attempt, activity_type, NULL, due_ms, 1.0, cancel_requested FROM pledger_task
WHERE state = 'queued' AND namespace = ?1 AND task_queue = ?2 AND activity_type = ?3
    AND due_ms > ?4 AND due_ms < 253402300799000
    AND NOT EXISTS (
        SELECT 1 FROM pledger_paused_run AS paused
        WHERE paused.run_key = pledger_task.run_key AND paused.pause_key NOT IN (SELECT value FROM json_each(?5))
    )
ORDER BY due_ms LIMIT 1;

-- name: overrides
SELECT name, set_concurrency, set_rate, set_per_ms FROM pledger_limit_rule
WHERE namespace = ? AND is_set;

-- name: slots
-- Those of some limits and keys, with whether their attempts still run.
SELECT slot.limit_name, slot.limit_key, slot.slot_no, slot.session_key, slot.run_key, slot.event_id, slot.attempt,
    EXISTS (
        SELECT 1 FROM pledger_task AS task
        WHERE task.run_key = slot.run_key AND task.event_id = slot.event_id AND task.attempt = slot.attempt
            AND task.owner = slot.session_key
    )
FROM json_each(?2) AS used CROSS JOIN pledger_slot AS slot
WHERE slot.namespace = ?1 AND slot.limit_name = used.value ->> 0 AND slot.limit_key = used.value ->> 1;

-- name: buckets
SELECT bucket.limit_name, bucket.limit_key, bucket.full_ms
FROM json_each(?2) AS used CROSS JOIN pledger_bucket AS bucket
WHERE bucket.namespace = ?1 AND bucket.limit_name = used.value ->> 0 AND bucket.limit_key = used.value ->> 1;

-- name: turns
SELECT turn.priority, turn.share, turn.pass FROM json_each(?3) AS asked CROSS JOIN pledger_turn AS turn
WHERE turn.namespace = ?1 AND turn.task_queue = ?2 AND turn.priority = asked.value ->> 0
    AND turn.share = asked.value ->> 1;

-- name: take_slot
-- One that is there belongs to an attempt that does not run any more.
INSERT INTO pledger_slot (namespace, limit_name, limit_key, slot_no, session_key, run_key, event_id, attempt)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
    session_key = excluded.session_key, run_key = excluded.run_key, event_id = excluded.event_id,
    attempt = excluded.attempt;

-- name: fill_bucket
INSERT INTO pledger_bucket (namespace, limit_name, limit_key, full_ms) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET full_ms = excluded.full_ms;

-- name: take_turn
INSERT INTO pledger_turn (namespace, task_queue, priority, share, pass) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET pass = excluded.pass;

-- name: task_key
SELECT task_key FROM pledger_task WHERE run_key = ? AND event_id = ? AND state = 'queued';

-- name: next_slots
-- The next ?5 slots after a place, with whether their attempts still run.
SELECT slot.namespace, slot.limit_name, slot.limit_key, slot.slot_no, EXISTS (
    SELECT 1 FROM pledger_task AS task
    WHERE task.run_key = slot.run_key AND task.event_id = slot.event_id AND task.attempt = slot.attempt
        AND task.owner = slot.session_key
)
FROM pledger_slot AS slot WHERE (slot.namespace, slot.limit_name, slot.limit_key, slot.slot_no) > (?1, ?2, ?3, ?4)
ORDER BY slot.namespace, slot.limit_name, slot.limit_key, slot.slot_no LIMIT ?5;

-- name: free_slot
DELETE FROM pledger_slot WHERE namespace = ? AND limit_name = ? AND limit_key = ? AND slot_no = ?;

-- name: drop_full_buckets
-- Their tokens are all back: a bucket that is not there says the same.
DELETE FROM pledger_bucket WHERE (namespace, limit_name, limit_key) IN (
    SELECT namespace, limit_name, limit_key FROM pledger_bucket WHERE full_ms < ?1 ORDER BY full_ms LIMIT ?2
);

-- name: drop_passed_turns
-- Of shares that have been away: they re-enter at the clock, as those do of which nothing is known. And those that are
-- least ahead, beyond ?5 of them.
DELETE FROM pledger_turn
WHERE namespace = ?1 AND task_queue = ?2 AND priority = ?3 AND share > '' AND pass <= max(
    ?4,
    coalesce(
        (
            SELECT ahead.pass FROM pledger_turn AS ahead
            WHERE ahead.namespace = ?1 AND ahead.task_queue = ?2 AND ahead.priority = ?3 AND ahead.share > ''
            ORDER BY ahead.pass DESC LIMIT 1 OFFSET ?5
        ),
        ?4
    )
);

-- name: state_limit
INSERT INTO pledger_limit_rule (namespace, name, is_stated, concurrency, rate, per_ms) VALUES (?, ?, 1, ?, ?, ?)
ON CONFLICT DO UPDATE SET
    is_stated = 1, concurrency = excluded.concurrency, rate = excluded.rate, per_ms = excluded.per_ms;

-- name: override_limit
INSERT INTO pledger_limit_rule (namespace, name, is_set, set_concurrency, set_rate, set_per_ms) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
    is_set = excluded.is_set, set_concurrency = excluded.set_concurrency, set_rate = excluded.set_rate,
    set_per_ms = excluded.set_per_ms;

-- name: drop_unused_limit
DELETE FROM pledger_limit_rule WHERE namespace = ? AND name = ? AND NOT is_stated AND NOT is_set;

-- name: read_limits
SELECT name, is_stated, concurrency, rate, per_ms, is_set, set_concurrency, set_rate, set_per_ms FROM pledger_limit_rule
WHERE namespace = ? ORDER BY name;

-- name: slots_in_use
SELECT slot.limit_name, slot.limit_key, count(*) FROM pledger_slot AS slot
WHERE slot.namespace = ? AND EXISTS (
    SELECT 1 FROM pledger_task AS task
    WHERE task.run_key = slot.run_key AND task.event_id = slot.event_id AND task.attempt = slot.attempt
        AND task.owner = slot.session_key
)
GROUP BY slot.limit_name, slot.limit_key;

-- name: lane_lengths
SELECT lane, count(*) FROM pledger_task INDEXED BY pledger_task_lane
WHERE state = 'queued' AND due_ms = 253402300799000 AND namespace = ? GROUP BY lane;

-- name: read_queues
SELECT
    task_queue,
    sum(ready <= ?2),
    min(ready) FILTER (WHERE ready <= ?2),
    sum(ready > ?2)
FROM (
    SELECT task_queue, iif(due_ms = 253402300799000, ready_ms, due_ms) AS ready FROM pledger_task
    WHERE state = 'queued' AND namespace = ?1
) AS queued
GROUP BY task_queue ORDER BY task_queue;

-- name: started_of_queues
SELECT task.task_queue, count(*) FROM pledger_session AS session
CROSS JOIN pledger_task AS task ON task.owner = session.session_key
WHERE task.namespace = ? GROUP BY task.task_queue;

-- name: places
-- The activities of a run that wait in lanes, each with how many of its lane come before it, at most 10,000.
SELECT task.event_id, task.lane, task.namespace, (
    SELECT count(*) FROM (
        SELECT 1 FROM pledger_task AS other
        WHERE other.state = 'queued' AND other.due_ms = 253402300799000
            AND other.namespace = task.namespace AND other.task_queue = task.task_queue
            AND other.activity_type = task.activity_type AND other.lane = task.lane
            AND (other.ready_ms, other.run_key, other.event_id) < (task.ready_ms, task.run_key, task.event_id)
        LIMIT 10000
    )
)
FROM pledger_task AS task
WHERE task.run_key = ? AND task.state = 'queued' AND task.due_ms = 253402300799000 ORDER BY task.event_id;
