-- Task queues in which rows stand in lanes (see engine.port.lanes), and limits that hold over all workers.
-- compatible-from: 1

-- lane: NULL for a row that states nothing about its place. weight: of its turns. ready_ms: when a row in a lane is due;
-- its due_ms is the last second of the year 9999 then, so that whoever looks for what is due does not meet it.
-- limited: its attempt has taken slots, so that whoever ends it tells those who wait for one.
ALTER TABLE pledger.task ADD COLUMN lane text COLLATE "C";
ALTER TABLE pledger.task ADD COLUMN weight double precision;
ALTER TABLE pledger.task ADD COLUMN ready_ms bigint;
ALTER TABLE pledger.task ADD COLUMN limited boolean NOT NULL DEFAULT false;
-- Of rows in lanes alone: what states nothing is written to no index more than before.
CREATE INDEX task_lane ON pledger.task (namespace, task_queue, activity_type, lane, ready_ms, run_key, event_id)
WHERE state = 'queued' AND due_ms = 253402300799000;

-- Attempts that count for a limit. One whose attempt does not run any more is free.
CREATE TABLE pledger.slot (
    namespace text COLLATE "C" NOT NULL,
    limit_name text COLLATE "C" NOT NULL,
    limit_key text COLLATE "C" NOT NULL,
    slot_no integer NOT NULL CHECK (slot_no > 0),
    session_key bigint NOT NULL,
    run_key bigint NOT NULL,
    event_id bigint NOT NULL,
    attempt integer NOT NULL,
    PRIMARY KEY (namespace, limit_name, limit_key, slot_no)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

-- Of each rate: when all its tokens will be back.
CREATE TABLE pledger.bucket (
    namespace text COLLATE "C" NOT NULL,
    limit_name text COLLATE "C" NOT NULL,
    limit_key text COLLATE "C" NOT NULL,
    full_ms double precision NOT NULL,
    PRIMARY KEY (namespace, limit_name, limit_key)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX bucket_full ON pledger.bucket (full_ms);

-- Turns in a queue: the pass of each share's next one. share: '=' and the fairness key; '' for the clock of the priority.
CREATE TABLE pledger.turn (
    namespace text COLLATE "C" NOT NULL,
    task_queue text COLLATE "C" NOT NULL,
    priority integer NOT NULL,
    share text COLLATE "C" NOT NULL,
    pass double precision NOT NULL,
    PRIMARY KEY (namespace, task_queue, priority, share)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

-- Numbers of limits: those of the code of the worker that started last, and those that an operator has set.
CREATE TABLE pledger.limit_rule (
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    is_stated boolean NOT NULL DEFAULT false,
    concurrency integer,
    rate double precision,
    per_ms bigint NOT NULL DEFAULT 1000,
    is_set boolean NOT NULL DEFAULT false,
    set_concurrency integer,
    set_rate double precision,
    set_per_ms bigint NOT NULL DEFAULT 1000,
    PRIMARY KEY (namespace, name)
);

-- The columns of TaskRow, in their order; task_row stays as workers of older code know it.
CREATE VIEW pledger.placed_task AS
SELECT
    task.run_key, task.event_id, task.namespace, chain.workflow_id, run.run_id, run.workflow_type, task.task_queue,
    task.activity_type, task.state, task.attempt,
    CASE task.due_ms WHEN 253402300799000 THEN task.ready_ms ELSE task.due_ms END AS due_ms,
    task.command, task.scheduled_ms, task.started_ms, task.expires_ms, task.owner, task.lost, task.heartbeat,
    task.last_failure, task.outcome, task.cancel_requested, task.lane, coalesce(task.weight, 1) AS weight
FROM pledger.task AS task JOIN pledger.run AS run USING (run_key) JOIN pledger.chain AS chain USING (chain_key);
