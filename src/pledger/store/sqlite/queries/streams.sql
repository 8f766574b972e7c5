-- What runs publish, by topic.

-- name: extend_stream
-- By ?3 values, which weigh ?4: the stream, the position of the first of them, and what all before it weigh.
INSERT INTO pledger_stream AS stream (chain_key, topic, next_position, weight, published_ms)
SELECT chain_key, ?2, ?3, ?4, ?5 FROM pledger_run WHERE run_key = ?1
ON CONFLICT (chain_key, topic) DO UPDATE SET
    next_position = stream.next_position + excluded.next_position, weight = stream.weight + excluded.weight,
    published_ms = excluded.published_ms
RETURNING stream_key, next_position - ?3, weight - ?4;

-- name: insert_published
INSERT INTO pledger_published (
    stream_key, position, weight_before, run_key, event_id, attempt, number, published_ms, body
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: trim_stream
-- What is older than the newest values that weigh no more than the bound, beyond ?2; the newest one (?3) stays.
DELETE FROM pledger_published WHERE stream_key = ?1 AND position < coalesce(
    (
        SELECT kept.position FROM pledger_published AS kept
        WHERE kept.stream_key = ?1 AND kept.weight_before >= ?2 ORDER BY kept.position LIMIT 1
    ),
    ?3
);

-- name: published_number
-- How many values of the attempt are there.
SELECT coalesce(max(number), 0) FROM pledger_published
WHERE run_key = ? AND event_id = ? AND attempt = ? AND attempt > 0;

-- name: holds_chain
-- The chain of a run that is held under this fence.
SELECT chain_key FROM pledger_run WHERE run_key = ? AND fence = ? AND owner IS NOT NULL;

-- name: runs_attempt
-- The chain of a run one of whose attempts this session runs.
SELECT run.chain_key FROM pledger_task AS task JOIN pledger_run AS run USING (run_key)
WHERE task.run_key = ? AND task.event_id = ? AND task.attempt = ? AND task.owner = ? AND task.state = 'started';

-- name: find_stream
SELECT stream.stream_key, coalesce(
    (
        SELECT oldest.position FROM pledger_published AS oldest
        WHERE oldest.stream_key = stream.stream_key ORDER BY oldest.position LIMIT 1
    ),
    stream.next_position
), stream.next_position
FROM pledger_stream AS stream WHERE stream.chain_key = ? AND stream.topic = ? AND NOT stream.forgotten;

-- name: read_page
-- The next ?4 values of a stream from ?2 on at most, beyond the first of them as long as they weigh less than ?3.
SELECT value.position, run.run_id, value.event_id, value.attempt, value.published_ms, value.body
FROM pledger_published AS value CROSS JOIN pledger_run AS run USING (run_key)
WHERE value.stream_key = ?1 AND value.position >= ?2 AND value.weight_before < ?3 + (
    SELECT begun.weight_before FROM pledger_published AS begun
    WHERE begun.stream_key = ?1 AND begun.position >= ?2 ORDER BY begun.position LIMIT 1
)
ORDER BY value.position LIMIT ?4;

-- name: read_streams
SELECT
    stream.topic, oldest.position, stream.next_position, stream.weight - oldest.weight_before, stream.published_ms
FROM pledger_stream AS stream CROSS JOIN pledger_published AS oldest USING (stream_key)
WHERE stream.chain_key = ?1 AND NOT stream.forgotten AND oldest.position = (
    SELECT each.position FROM pledger_published AS each
    WHERE each.stream_key = stream.stream_key ORDER BY each.position LIMIT 1
)
ORDER BY stream.topic;

-- name: read_stream_ends
SELECT stream.chain_key, stream.topic, stream.next_position
FROM json_each(?) AS asked CROSS JOIN pledger_stream AS stream
    ON stream.chain_key = asked.value ->> 0 AND stream.topic = asked.value ->> 1
WHERE NOT stream.forgotten;

-- name: next_forgotten
SELECT stream_key FROM pledger_stream WHERE forgotten AND chain_key > 0 ORDER BY chain_key, topic LIMIT 1;

-- name: drop_some_published
DELETE FROM pledger_published WHERE published_key IN (
    SELECT published_key FROM pledger_published WHERE stream_key = ? ORDER BY position LIMIT ?
);

-- name: stream_is_gone
DELETE FROM pledger_stream WHERE stream_key = ?;
