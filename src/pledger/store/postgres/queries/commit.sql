-- The two round trips of a commit: all locks and reads, in one fixed order (sessions, chains, runs, tasks; each by key),
-- then all writes. Arrays of one statement have a row at each index. What decides by itself takes one: see `at_once`.

-- name: lock_sessions
-- Those that still stand. A burial waits for this transaction, and then finds what was born in it.
SELECT session_key FROM pledger.session WHERE session_key = ANY($1::bigint[]) ORDER BY session_key FOR KEY SHARE;

-- name: share_chains
-- For those who send something to the runs $1: nobody lets go of them meanwhile.
SELECT chain_key FROM pledger.chain
WHERE chain_key IN (SELECT run.chain_key FROM pledger.run AS run WHERE run.run_key = ANY($1::bigint[]))
ORDER BY chain_key FOR KEY SHARE;

-- name: lock_chains
-- For those who let go of the runs $1: nobody sends anything to them meanwhile.
SELECT chain_key FROM pledger.chain
WHERE chain_key IN (SELECT run.chain_key FROM pledger.run AS run WHERE run.run_key = ANY($1::bigint[]))
ORDER BY chain_key FOR UPDATE;

-- name: lock_runs
-- Those to be changed ($1), and of those that get news ($2) the ones without an owner: they become due.
SELECT run_key, chain_key, namespace, task_queue, status, owner, fence, last_event, head, next_ms, claims
FROM pledger.run
WHERE run_key = ANY($1::bigint[]) OR (run_key = ANY($2::bigint[]) AND owner IS NULL AND closed_ms IS NULL)
ORDER BY run_key FOR NO KEY UPDATE;

-- name: read_addressees
SELECT run_key, chain_key, namespace, task_queue, status, owner, fence, last_event, head, next_ms, claims
FROM pledger.run WHERE run_key = ANY($1::bigint[]);

-- name: lock_tasks
SELECT run_key, event_id, state, attempt, owner, cancel_requested, limited, expires_ms FROM pledger.task
WHERE (run_key, event_id) IN (SELECT * FROM unnest($1::bigint[], $2::bigint[]))
ORDER BY run_key, event_id FOR UPDATE;

-- name: newest_runs
-- The newest run of each workflow id, after the generation of its chain, and the type that this was started as.
SELECT
    newest.generation, (
        SELECT first.workflow_type FROM pledger.run AS first
        WHERE first.chain_key = newest.chain_key AND first.segment = 1
    ),
    row.*
FROM unnest($1::text[], $2::text[]) AS asked (namespace, workflow_id)
CROSS JOIN LATERAL (
    SELECT chain.generation, chain.chain_key, run.run_key
    FROM pledger.chain AS chain JOIN pledger.run AS run USING (chain_key)
    WHERE chain.namespace = asked.namespace AND chain.workflow_id = asked.workflow_id
    ORDER BY chain.generation DESC, run.segment DESC LIMIT 1
) AS newest
JOIN pledger.run_row AS row ON row.run_key = newest.run_key;

-- name: new_keys
SELECT nextval('pledger.chain_chain_key_seq'), nextval('pledger.run_run_key_seq') FROM generate_series(1, $1::int);

-- name: known_messages
SELECT message.chain_key, message.message_id
FROM unnest($1::bigint[], $2::text[]) AS sent (run_key, message_id)
JOIN pledger.run AS run ON run.run_key = sent.run_key
-- OFFSET 0: one look at the index for each; else all messages of a chain may be read for one of them.
CROSS JOIN LATERAL (
    SELECT message.chain_key, message.message_id FROM pledger.message AS message
    WHERE message.chain_key = run.chain_key AND message.message_id = sent.message_id OFFSET 0
) AS message;

-- name: inbox_lengths
-- How many messages of each run's chain have no verdict yet, $2 at most.
SELECT run.chain_key, (
    SELECT count(*) FROM (
        SELECT 1 FROM pledger.message AS message
        WHERE message.chain_key = run.chain_key
            AND (message.verdict IS NULL OR (message.kind = 'cancel' AND message.verdict = 'delivered'))
        LIMIT $2
    ) AS waiting
)
FROM pledger.run AS run WHERE run.run_key = ANY($1::bigint[]);

-- name: runs_with_mail
-- Of runs that are let go: those for which something waits. A sender of the owner's own process stores no wake-up, and
-- the owner may let go before it hears of the message.
-- One row of each is asked for, rather than whether there are any: for that the planner may read everybody's.
SELECT run.run_key FROM pledger.run AS run WHERE run.run_key = ANY($1::bigint[]) AND coalesce(
    (SELECT true FROM pledger.message AS sent WHERE sent.chain_key = run.chain_key AND verdict IS NULL LIMIT 1),
    (SELECT true FROM pledger.task AS task WHERE task.run_key = run.run_key AND state = 'done' LIMIT 1),
    (
        SELECT true FROM pledger.request AS asked
        WHERE asked.run_key = run.run_key AND answer IS NULL AND failure IS NULL LIMIT 1
    ),
    false
);

-- name: insert_chains
INSERT INTO pledger.chain (chain_key, namespace, workflow_id, generation)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::int[]);

-- name: insert_runs
INSERT INTO pledger.run (
    run_key, chain_key, namespace, run_id, workflow_type, task_queue, input_digest, started_ms,
    answers_for, deadline_ms, status, closed_ms, last_event, head, fence, owner, due_ms, next_ms
)
SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::bigint[],
    $9::text[], $10::bigint[], $11::text[], $12::bigint[], $13::bigint[], $14::bytea[], $15::bigint[], $16::bigint[],
    $17::bigint[], $18::bigint[]
);

-- name: write_steps
-- A batch of nothing but plain steps, in one statement and one round trip: the runs whose compare-and-set has won. Each
-- part hands on all that the next one needs: joined with the steps again, a batch would take the square of its length.
WITH held AS (
    SELECT step.* FROM unnest(
        $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bytea[], $8::bytea[]
    ) AS step (run_key, fence, expected_event, last_event, due_ms, first_event_id, body, checksum)
    JOIN pledger.run AS run USING (run_key)
    WHERE run.fence = step.fence AND run.last_event = step.expected_event AND run.owner IS NOT NULL
    ORDER BY run_key FOR NO KEY UPDATE OF run
),
won AS (
    UPDATE pledger.run AS run SET last_event = held.last_event, head = held.checksum, next_ms = held.due_ms, claims = 0
    FROM held
    WHERE run.run_key = held.run_key AND run.fence = held.fence AND run.last_event = held.expected_event
        AND run.owner IS NOT NULL
    RETURNING held.run_key, held.first_event_id, held.body, held.checksum
)
INSERT INTO pledger.history (run_key, first_event_id, body, checksum) SELECT * FROM won RETURNING run_key;

-- name: write_step
-- The same for one step, which is what comes of a run that goes on alone: without arrays, in two thirds of the time.
WITH won AS (
    UPDATE pledger.run SET last_event = $4::bigint, head = $8::bytea, next_ms = $5::bigint, claims = 0
    WHERE run_key = $1::bigint AND fence = $2::bigint AND last_event = $3::bigint AND owner IS NOT NULL
    RETURNING run_key
)
INSERT INTO pledger.history (run_key, first_event_id, body, checksum)
SELECT run_key, $6::bigint, $7::bytea, $8::bytea FROM won RETURNING run_key;

-- name: write_births
-- Starts of runs that are born owned, each with its first transition, in sessions that are locked: those whose session
-- still stands and whose workflow id nobody has had before. Who started first has the lowest keys; of ids that two
-- transactions may want, both take them in one order.
WITH born AS MATERIALIZED (
    SELECT nextval('pledger.chain_chain_key_seq') AS chain_key, nextval('pledger.run_run_key_seq') AS run_key, start.*
    FROM unnest(
        $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bigint[], $8::bigint[],
        $9::bigint[], $10::bigint[], $11::bigint[], $12::bytea[], $13::bytea[], $14::text[], $15::bigint[]
    ) AS start (
        namespace, workflow_id, run_id, workflow_type, task_queue, input_digest, started_ms, owner,
        last_event, next_ms, first_event_id, body, checksum, answers_for, deadline_ms
    )
    WHERE EXISTS (SELECT FROM pledger.session AS session WHERE session.session_key = start.owner)
        AND NOT EXISTS (
            SELECT FROM pledger.chain AS chain
            WHERE chain.namespace = start.namespace AND chain.workflow_id = start.workflow_id
        )
),
chains AS (
    INSERT INTO pledger.chain (chain_key, namespace, workflow_id, generation)
    SELECT chain_key, namespace, workflow_id, 1 FROM born ORDER BY namespace, workflow_id
),
runs AS (
    INSERT INTO pledger.run (
        run_key, chain_key, namespace, run_id, workflow_type, task_queue, input_digest, started_ms,
        last_event, head, fence, owner, next_ms, answers_for, deadline_ms
    )
    SELECT
        run_key, chain_key, namespace, run_id, workflow_type, task_queue, input_digest, started_ms,
        last_event, checksum, 1, owner, next_ms, answers_for, deadline_ms
    FROM born
),
transitions AS (
    INSERT INTO pledger.history (run_key, first_event_id, body, checksum)
    SELECT run_key, first_event_id, body, checksum FROM born
)
SELECT run_id, run_key, chain_key FROM born;

-- name: hold_runs
-- For those who write steps and last steps of several runs: in one order.
SELECT run_key FROM pledger.run WHERE run_key = ANY($1::bigint[]) ORDER BY run_key FOR NO KEY UPDATE;

-- name: close_runs
-- Last steps, of runs whose chains are locked: the runs whose compare-and-set has won. by_owner: only while the run has
-- one. Messages get their verdicts, unless the chain goes on, and nothing is left to do. The slots that attempts had are free by that, and whoever
-- waits for one is told: by the channel $11, as the news of $12 (see news.for_limits). OFFSET 0: each chain is looked
-- up, or all that waits in the ledger may be read.
WITH held AS (
    SELECT step.*, run.chain_key FROM unnest(
        $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bytea[],
        $8::text[], $9::bigint[], $10::boolean[]
    ) AS step (
        run_key, fence, expected_event, last_event, first_event_id, body, checksum, status, closed_ms, by_owner
    )
    JOIN pledger.run AS run USING (run_key)
    WHERE run.fence = step.fence AND run.last_event = step.expected_event AND run.closed_ms IS NULL
        AND (run.owner IS NOT NULL OR NOT step.by_owner)
    ORDER BY run_key FOR NO KEY UPDATE OF run
),
won AS (
    UPDATE pledger.run AS run SET
        status = held.status, closed_ms = held.closed_ms, last_event = held.last_event, head = held.checksum,
        fence = run.fence + 1, owner = NULL, due_ms = NULL, next_ms = NULL, blocked = NULL, blocked_code = NULL,
        claims = CASE WHEN held.by_owner THEN 0 ELSE run.claims END
    FROM held
    WHERE run.run_key = held.run_key AND run.fence = held.fence AND run.last_event = held.expected_event
    RETURNING held.run_key, held.chain_key, held.status, held.first_event_id, held.body, held.checksum
),
settled AS (
    UPDATE pledger.message AS message SET verdict = CASE
        WHEN message.kind <> 'cancel' THEN 'undelivered'
        WHEN message.verdict = 'delivered' AND won.status = 'cancelled' THEN 'cancelled'
        ELSE 'too_late:' || won.status
    END
    FROM won CROSS JOIN LATERAL (
        SELECT unsettled.message_key FROM pledger.message AS unsettled
        WHERE unsettled.chain_key = won.chain_key AND won.status <> 'continued_as_new'
            AND (unsettled.verdict IS NULL OR (unsettled.kind = 'cancel' AND unsettled.verdict = 'delivered'))
        OFFSET 0
    ) AS unsettled
    WHERE message.message_key = unsettled.message_key
),
dropped AS (
    DELETE FROM pledger.task AS task USING won WHERE task.run_key = won.run_key
    RETURNING task.namespace, task.owner, task.limited
),
wakes AS (
    DELETE FROM pledger.wake WHERE wake_key IN (
        SELECT wake.wake_key FROM pledger.wake AS wake JOIN won USING (run_key) ORDER BY wake_key FOR UPDATE OF wake
    )
),
transitions AS (
    INSERT INTO pledger.history (run_key, first_event_id, body, checksum)
    SELECT run_key, first_event_id, body, checksum FROM won
)
SELECT run_key, '' FROM won
UNION ALL
SELECT NULL, pg_notify($11, $12 || json_build_array('slot', namespace)::text)::text
FROM dropped WHERE limited AND owner IS NOT NULL GROUP BY namespace;

-- name: insert_successors
-- Runs that go on for those that close as continued_as_new: the next segments of their chains, which are locked. Each
-- with its first message; it takes over a pause of its predecessor, its doubts, and who answers for it.
WITH step AS (
    SELECT successor.*, run.chain_key, run.namespace, run.segment, run.input_digest, run.answers_for FROM unnest(
        $1::bigint[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::bigint[], $7::text[], $8::bigint[]
    ) AS successor (predecessor, run_id, workflow_type, task_queue, started, started_ms, name, deadline_ms)
    JOIN pledger.run AS run ON run.run_key = successor.predecessor
),
born AS (
    INSERT INTO pledger.run (
        chain_key, namespace, segment, run_id, workflow_type, task_queue, input_digest, started_ms, answers_for,
        deadline_ms, fence, due_ms
    )
    SELECT
        chain_key, namespace, segment + 1, run_id, workflow_type, task_queue, input_digest, started_ms, answers_for,
        deadline_ms, 0, 0
    FROM step
    RETURNING run_key, chain_key, segment, run_id
),
starts AS (
    INSERT INTO pledger.message (chain_key, kind, message_id, name, body, sent_ms, keep_id)
    SELECT chain_key, 'start', '', name, started, started_ms, false FROM step
),
heirs AS (
    SELECT born.run_key, born.run_id, (
        SELECT earlier.run_key FROM pledger.run AS earlier
        WHERE earlier.chain_key = born.chain_key AND earlier.segment = born.segment - 1
    ) AS predecessor
    FROM born
),
pauses AS (
    UPDATE pledger.pause AS pause SET run_key = heirs.run_key, name = heirs.run_id
    FROM heirs WHERE pause.run_key = heirs.predecessor
)
INSERT INTO pledger.loss (run_key, last_event, declared_ms, moved)
SELECT heirs.run_key, 0, loss.declared_ms, loss.moved
FROM heirs CROSS JOIN LATERAL (
    SELECT found.declared_ms, found.moved FROM pledger.loss AS found WHERE found.run_key = heirs.predecessor OFFSET 0
) AS loss;

-- name: find_successors
-- The newest runs of the chains of some runs: (run_key, that of the newest).
SELECT asked.run_key, (
    SELECT newest.run_key FROM pledger.run AS newest WHERE newest.chain_key = asked.chain_key
    ORDER BY newest.segment DESC LIMIT 1
)
FROM pledger.run AS asked WHERE asked.run_key = ANY($1::bigint[]);

-- name: step_runs
-- A step of owned runs, whose rows are locked: this is what the engine does all day.
UPDATE pledger.run AS run SET last_event = step.last_event, head = step.head, next_ms = step.next_ms, claims = 0
FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bigint[]) AS step (run_key, last_event, head, next_ms)
WHERE run.run_key = step.run_key;

-- name: change_runs
-- Whatever else changes in the row of an open run.
UPDATE pledger.run AS run SET
    fence = change.fence, owner = change.owner, due_ms = change.due_ms, next_ms = change.next_ms, claims = change.claims,
    blocked = change.blocked, blocked_code = change.blocked_code
FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::int[], $7::bytea[], $8::text[]
) AS change (run_key, fence, owner, due_ms, next_ms, claims, blocked, blocked_code)
WHERE run.run_key = change.run_key;

-- name: note_tries
-- Which code has blocked runs, whose rows are locked, and at which event. $3: how many codes of one event are remembered.
UPDATE pledger.run AS run SET
    tried_event = run.last_event,
    tried_codes = CASE
        WHEN run.tried_event = run.last_event
        THEN run.tried_codes[greatest(1, cardinality(run.tried_codes) - $3::int + 2):] || tried.code
        ELSE ARRAY[tried.code]
    END
FROM unnest($1::bigint[], $2::text[]) AS tried (run_key, code)
WHERE run.run_key = tried.run_key;

-- name: due_runs
-- Ownerless runs that have news, whose rows are locked.
UPDATE pledger.run SET due_ms = 0 WHERE run_key = ANY($1::bigint[]);

-- name: insert_transitions
INSERT INTO pledger.history (run_key, first_event_id, body, checksum)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[]);

-- name: insert_messages
-- Without those that somebody else has sent meanwhile.
INSERT INTO pledger.message (chain_key, kind, message_id, name, body, sent_ms, keep_id)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::bigint[], $7::boolean[])
ON CONFLICT (chain_key, message_id) DO NOTHING RETURNING chain_key, message_id;

-- name: forget_messages
-- Consumed messages whose ids need no memory.
DELETE FROM pledger.message WHERE message_key = ANY($1::bigint[]) AND NOT keep_id;

-- name: deliver_messages
-- Consumed messages whose ids are remembered. A cancel stays whole: its sender asks for the verdict.
UPDATE pledger.message AS message SET
    verdict = 'delivered', event_id = delivered.event_id,
    body = CASE kind WHEN 'cancel' THEN body ELSE '\x' END
FROM unnest($1::bigint[], $2::bigint[]) AS delivered (message_key, event_id)
WHERE message.message_key = delivered.message_key AND message.keep_id;

-- name: put_tasks
-- A cancellation is not taken back by what is written over the row; what waits in the queue then waits no longer.
INSERT INTO pledger.task AS task (
    run_key, event_id, namespace, task_queue, activity_type, state, attempt, due_ms, command, scheduled_ms,
    started_ms, expires_ms, owner, lost, heartbeat, last_failure, outcome, cancel_requested, lane, weight, ready_ms
)
SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::int[], $8::bigint[], $9::bytea[],
    $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::boolean[], $15::bytea[], $16::bytea[], $17::bytea[],
    $18::boolean[], $19::text[], $20::float8[], $21::bigint[]
)
ON CONFLICT (run_key, event_id) DO UPDATE SET
    task_queue = excluded.task_queue, activity_type = excluded.activity_type, state = excluded.state,
    attempt = excluded.attempt, due_ms = excluded.due_ms, command = excluded.command,
    scheduled_ms = excluded.scheduled_ms, started_ms = excluded.started_ms,
    expires_ms = CASE WHEN task.cancel_requested AND excluded.state = 'queued' THEN 0 ELSE excluded.expires_ms END,
    owner = excluded.owner, lost = excluded.lost, heartbeat = excluded.heartbeat,
    last_failure = excluded.last_failure, outcome = excluded.outcome,
    cancel_requested = task.cancel_requested OR excluded.cancel_requested,
    lane = excluded.lane, weight = excluded.weight, ready_ms = excluded.ready_ms, limited = false;

-- name: drop_tasks
DELETE FROM pledger.task WHERE (run_key, event_id) IN (SELECT * FROM unnest($1::bigint[], $2::bigint[]));

-- name: cancel_tasks
-- What waits in the queue waits no longer.
UPDATE pledger.task SET cancel_requested = true, expires_ms = CASE state WHEN 'queued' THEN 0 ELSE expires_ms END
WHERE (run_key, event_id) IN (SELECT * FROM unnest($1::bigint[], $2::bigint[]));

-- name: finish_tasks
UPDATE pledger.task AS task SET state = 'done', owner = NULL, outcome = done.outcome
FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS done (run_key, event_id, outcome)
WHERE task.run_key = done.run_key AND task.event_id = done.event_id;

-- name: hand_out_tasks
-- They are run by nobody here from now on (engine.port.records.OUTSIDE).
UPDATE pledger.task AS task SET
    owner = 0, expires_ms = out.expires_ms, heartbeat = coalesce(out.details, task.heartbeat)
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[]) AS out (run_key, event_id, expires_ms, details)
WHERE task.run_key = out.run_key AND task.event_id = out.event_id;

-- name: hand_out_slots
-- Their slots go with them.
UPDATE pledger.slot AS slot SET session_key = 0
FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::bigint[]) AS out (run_key, event_id, attempt, session_key)
WHERE slot.run_key = out.run_key AND slot.event_id = out.event_id AND slot.attempt = out.attempt
    AND slot.session_key = out.session_key;

-- name: beat_tasks
UPDATE pledger.task AS task SET
    heartbeat = coalesce(beat.details, task.heartbeat), expires_ms = coalesce(beat.expires_ms, task.expires_ms)
FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bigint[]) AS beat (run_key, event_id, details, expires_ms)
WHERE task.run_key = beat.run_key AND task.event_id = beat.event_id;

-- name: log_attempts
INSERT INTO pledger.attempt (run_key, event_id, attempt, outcome, started_ms, ended_ms, worker, failure)
SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::int[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::bytea[]
);

-- name: trim_attempts
-- Lines that are too many.
DELETE FROM pledger.attempt WHERE attempt_key IN (
    SELECT old.attempt_key FROM unnest($1::bigint[], $2::bigint[]) AS logged (run_key, event_id)
    CROSS JOIN LATERAL (
        SELECT attempt.attempt_key FROM pledger.attempt AS attempt
        WHERE attempt.run_key = logged.run_key AND attempt.event_id = logged.event_id
        ORDER BY attempt.attempt_key DESC OFFSET $3
    ) AS old
);

-- name: insert_wakes
INSERT INTO pledger.wake (run_key) SELECT unnest($1::bigint[]);

-- name: drop_wakes
DELETE FROM pledger.wake WHERE wake_key IN (
    SELECT wake_key FROM pledger.wake WHERE run_key = ANY($1::bigint[]) ORDER BY wake_key FOR UPDATE
);

-- name: notify
SELECT pg_notify($1, said) FROM unnest($2::text[]) AS said;

-- name: begun
-- What a transaction is known by, and when it has begun.
SELECT pg_current_xact_id()::text, pledger.now_ms();

-- name: leave_mark
INSERT INTO pledger.mark AS mark (handle, batch, written_ms) VALUES ($1, $2, pledger.now_ms())
ON CONFLICT (handle) DO UPDATE SET batch = excluded.batch, written_ms = excluded.written_ms;

-- name: read_mark
SELECT batch FROM pledger.mark WHERE handle = $1;
