-- Task queues in which rows stand in lanes (see engine.port.lanes), and limits that hold over all workers.
-- compatible-from: 1

-- lane: NULL for a row that states nothing about its place. weight: of its turns. ready_ms: when a row in a lane is due;
-- its due_ms is the last second of the year 9999 then, so that whoever looks for what is due does not meet it.
ALTER TABLE pledger_task ADD COLUMN lane TEXT;
ALTER TABLE pledger_task ADD COLUMN weight REAL;
ALTER TABLE pledger_task ADD COLUMN ready_ms INTEGER;
-- Of rows in lanes alone: what states nothing is written to no index more than before.
CREATE INDEX pledger_task_lane ON pledger_task (namespace, task_queue, activity_type, lane, ready_ms, run_key, event_id)
WHERE state = 'queued' AND due_ms = 253402300799000;

-- Attempts that count for a limit. One whose attempt does not run any more is free.
CREATE TABLE pledger_slot (
    namespace TEXT NOT NULL,
    limit_name TEXT NOT NULL,
    limit_key TEXT NOT NULL,
    slot_no INTEGER NOT NULL CHECK (slot_no > 0),
    session_key INTEGER NOT NULL,
    run_key INTEGER NOT NULL,
    event_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    PRIMARY KEY (namespace, limit_name, limit_key, slot_no)
) STRICT, WITHOUT ROWID;

-- Of each rate: when all its tokens will be back.
CREATE TABLE pledger_bucket (
    namespace TEXT NOT NULL,
    limit_name TEXT NOT NULL,
    limit_key TEXT NOT NULL,
    full_ms REAL NOT NULL,
    PRIMARY KEY (namespace, limit_name, limit_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX pledger_bucket_full ON pledger_bucket (full_ms);

-- Turns in a queue: the pass of each share's next one. share: '=' and the fairness key; '' for the clock of the priority.
CREATE TABLE pledger_turn (
    namespace TEXT NOT NULL,
    task_queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    share TEXT NOT NULL,
    pass REAL NOT NULL,
    PRIMARY KEY (namespace, task_queue, priority, share)
) STRICT, WITHOUT ROWID;

-- Numbers of limits: those of the code of the worker that started last, and those that an operator has set.
CREATE TABLE pledger_limit_rule (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    is_stated INTEGER NOT NULL DEFAULT 0 CHECK (is_stated IN (0, 1)),
    concurrency INTEGER,
    rate REAL,
    per_ms INTEGER NOT NULL DEFAULT 1000,
    is_set INTEGER NOT NULL DEFAULT 0 CHECK (is_set IN (0, 1)),
    set_concurrency INTEGER,
    set_rate REAL,
    set_per_ms INTEGER NOT NULL DEFAULT 1000,
    PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

-- The columns of TaskRow, in their order; pledger_task_row stays as workers of older code know it.
CREATE VIEW pledger_placed_task AS
SELECT
    task.run_key, task.event_id, task.namespace, chain.workflow_id, run.run_id, run.workflow_type, task.task_queue,
    task.activity_type, task.state, task.attempt,
    iif(task.due_ms = 253402300799000, task.ready_ms, task.due_ms) AS due_ms,
    task.command, task.scheduled_ms, task.started_ms, task.expires_ms, task.owner, task.lost, task.heartbeat,
    task.last_failure, task.outcome, task.cancel_requested, task.lane, coalesce(task.weight, 1.0) AS weight
FROM pledger_task AS task JOIN pledger_run AS run USING (run_key) JOIN pledger_chain AS chain USING (chain_key);
