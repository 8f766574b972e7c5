-- What runs publish, by topic.

-- name: published_numbers
-- Of attempts: the chains of their runs, and how many of their values are there.
SELECT asked.run_key, asked.event_id, asked.attempt, run.chain_key, coalesce(
    (
        SELECT value.number FROM pledger.published AS value
        WHERE value.run_key = asked.run_key AND value.event_id = asked.event_id AND value.attempt = asked.attempt
            AND value.attempt > 0
        ORDER BY value.number DESC LIMIT 1
    ),
    0
)
FROM unnest($1::bigint[], $2::bigint[], $3::int[]) AS asked (run_key, event_id, attempt)
JOIN pledger.run AS run USING (run_key);

-- name: extend_streams
-- By $3 values, which weigh $4. Those who come to one stream wait for each other here, and what is committed later stands
-- behind; all of them come to several in one order.
INSERT INTO pledger.stream AS stream (chain_key, topic, next_position, weight, published_ms)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[])
    AS given (chain_key, topic, count, weight, published_ms)
ORDER BY chain_key, topic
ON CONFLICT (chain_key, topic) DO UPDATE SET
    next_position = stream.next_position + excluded.next_position, weight = stream.weight + excluded.weight,
    published_ms = excluded.published_ms;

-- name: publish_values
-- In streams that were extended for them: the last $3 from each on, which weigh $4.
INSERT INTO pledger.published (
    stream_key, position, weight_before, run_key, event_id, attempt, number, published_ms, body
)
SELECT
    stream.stream_key, stream.next_position - given.back, stream.weight - given.heavy,
    given.run_key, given.event_id, given.attempt, given.number, given.published_ms, given.body
FROM unnest(
    $1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::int[], $8::int[], $9::bigint[],
    $10::bytea[]
) AS given (chain_key, topic, back, heavy, run_key, event_id, attempt, number, published_ms, body)
JOIN pledger.stream AS stream USING (chain_key, topic);

-- name: trim_streams
-- What is older than the newest values that weigh no more than $3; the newest one stays.
DELETE FROM pledger.published AS old USING (
    SELECT stream.stream_key, coalesce(
        (
            SELECT kept.position FROM pledger.published AS kept
            WHERE kept.stream_key = stream.stream_key AND kept.weight_before >= stream.weight - $3::bigint
            ORDER BY kept.position LIMIT 1
        ),
        stream.next_position - 1
    ) AS first
    FROM unnest($1::bigint[], $2::text[]) AS asked (chain_key, topic)
    JOIN pledger.stream AS stream USING (chain_key, topic)
    WHERE stream.weight > $3::bigint
) AS bound
WHERE old.stream_key = bound.stream_key AND old.position < bound.first;

-- name: read_page
-- A stream, and its next $5 values from $3 on at most, beyond the first of them as long as they weigh less than $4.
WITH found AS (
    SELECT stream.stream_key, stream.next_position, coalesce(
        (
            SELECT oldest.position FROM pledger.published AS oldest
            WHERE oldest.stream_key = stream.stream_key ORDER BY oldest.position LIMIT 1
        ),
        stream.next_position
    ) AS first, (
        SELECT begun.weight_before FROM pledger.published AS begun
        WHERE begun.stream_key = stream.stream_key AND begun.position >= $3::bigint ORDER BY begun.position LIMIT 1
    ) AS before
    FROM pledger.stream AS stream WHERE stream.chain_key = $1 AND stream.topic = $2 AND NOT stream.forgotten
)
SELECT
    found.first, found.next_position,
    page.position, page.run_id, page.event_id, page.attempt, page.published_ms, page.body
FROM found LEFT JOIN LATERAL (
    SELECT value.position, run.run_id, value.event_id, value.attempt, value.published_ms, value.body
    FROM pledger.published AS value JOIN pledger.run AS run USING (run_key)
    WHERE value.stream_key = found.stream_key AND value.position >= $3::bigint
        AND value.weight_before < found.before + $4::bigint
    ORDER BY value.position LIMIT $5::int
) AS page ON true
ORDER BY page.position;

-- name: read_streams
SELECT
    stream.topic, oldest.position, stream.next_position, stream.weight - oldest.weight_before, stream.published_ms
FROM pledger.stream AS stream CROSS JOIN LATERAL (
    SELECT value.position, value.weight_before FROM pledger.published AS value
    WHERE value.stream_key = stream.stream_key ORDER BY value.position LIMIT 1
) AS oldest
WHERE stream.chain_key = $1 AND NOT stream.forgotten ORDER BY stream.topic;

-- name: read_stream_ends
SELECT stream.chain_key, stream.topic, stream.next_position
FROM unnest($1::bigint[], $2::text[]) AS asked (chain_key, topic)
JOIN pledger.stream AS stream USING (chain_key, topic)
WHERE NOT stream.forgotten;

-- name: drop_streams
WITH next AS (
    SELECT stream_key FROM pledger.stream WHERE forgotten AND chain_key > 0 ORDER BY chain_key, topic LIMIT 1 FOR UPDATE SKIP LOCKED
),
dropped AS (
    DELETE FROM pledger.published AS published USING (
        SELECT old.stream_key, old.position FROM pledger.published AS old
        WHERE old.stream_key = (SELECT stream_key FROM next) ORDER BY old.position LIMIT $1
    ) AS old WHERE published.stream_key = old.stream_key AND published.position = old.position
    RETURNING 1
),
counted AS (SELECT count(*) AS rows FROM dropped),
gone AS (
    DELETE FROM pledger.stream WHERE stream_key = (SELECT stream_key FROM next) AND (SELECT rows < $1 FROM counted)
)
SELECT CASE WHEN EXISTS (SELECT FROM next) THEN greatest(1, rows) ELSE 0 END FROM counted;
