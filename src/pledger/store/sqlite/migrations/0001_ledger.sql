-- The ledger: chains, runs, histories, messages, tasks, attempts, sessions, wakes and requests.
--
-- compatible-from: 1
--
-- Every name starts with pledger_, since an application may keep tables of its own in the same file. Times are
-- milliseconds since 1970 UTC. AUTOINCREMENT where a key is handed out: SQLite would otherwise give the key of a
-- deleted newest row again. No foreign keys: every row is written in a transaction that has looked at its parent, and
-- the check would cost the hot path a lookup per row.

-- The store's clock. A statement that compares with it and writes does both at one instant.
CREATE VIEW pledger_clock AS SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) AS now_ms;

-- What a start creates: the workflow id, and the mailbox that all segments of the chain share.
-- generation: 1 for the first chain of a workflow id; unique, so that two starts never both make the next one.
CREATE TABLE pledger_chain (
    chain_key INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    generation INTEGER NOT NULL CHECK (generation > 0)
) STRICT;
CREATE UNIQUE INDEX pledger_chain_by_id ON pledger_chain (namespace, workflow_id, generation);

-- segment: 1 for the run that started the chain. The other columns are those of engine.port.records.RunRow; the namespace
-- is the chain's, once more, since workers and lists look for it by the indices below.
CREATE TABLE pledger_run (
    run_key INTEGER PRIMARY KEY AUTOINCREMENT,
    chain_key INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    segment INTEGER NOT NULL DEFAULT 1 CHECK (segment > 0),
    run_id TEXT NOT NULL,
    workflow_type TEXT NOT NULL,
    task_queue TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'running' CHECK (status IN (
        'running', 'completed', 'compensated', 'failed', 'cancelled', 'terminated', 'timed_out', 'continued_as_new'
    )),
    input_digest BLOB NOT NULL,
    started_ms INTEGER NOT NULL,
    closed_ms INTEGER,
    last_event INTEGER NOT NULL DEFAULT 0 CHECK (last_event >= 0),
    head BLOB NOT NULL DEFAULT x'0000000000000000' CHECK (length(head) = 8),
    fence INTEGER NOT NULL CHECK (fence >= 0),
    owner INTEGER,
    due_ms INTEGER,
    claims INTEGER NOT NULL DEFAULT 0 CHECK (claims >= 0),
    blocked BLOB,
    blocked_code TEXT,
    CHECK ((status = 'running') = (closed_ms IS NULL)),
    CHECK (owner IS NULL OR closed_ms IS NULL),
    CHECK (due_ms IS NULL OR closed_ms IS NULL),
    CHECK (blocked IS NULL OR (closed_ms IS NULL AND owner IS NULL)),
    CHECK ((blocked IS NULL) = (blocked_code IS NULL))
) STRICT;
CREATE UNIQUE INDEX pledger_run_by_chain ON pledger_run (chain_key, segment);
-- Leads through the runs of a namespace in the order of their keys.
CREATE INDEX pledger_run_by_namespace ON pledger_run (namespace);
-- The three below are partial, so that a step of an owned run, which is most of what ever happens, writes none of them.
CREATE INDEX pledger_run_due ON pledger_run (namespace, task_queue, workflow_type, due_ms)
WHERE owner IS NULL AND blocked IS NULL AND due_ms IS NOT NULL;
CREATE INDEX pledger_run_blocked ON pledger_run (namespace, task_queue, workflow_type, blocked_code)
WHERE blocked IS NOT NULL;
CREATE INDEX pledger_run_owned ON pledger_run (owner) WHERE owner IS NOT NULL;

-- One row for each transition, in the order of the commits, found by an index. Clustered by run instead, a batch over
-- many runs writes one page per run: three times the log and twice the time.
CREATE TABLE pledger_history (
    history_key INTEGER PRIMARY KEY,
    run_key INTEGER NOT NULL,
    first_event_id INTEGER NOT NULL CHECK (first_event_id > 0),
    body BLOB NOT NULL,
    checksum BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX pledger_history_by_run ON pledger_history (run_key, first_event_id);

-- A delivered message whose id is to be remembered stays as a row with an empty body; others are deleted.
CREATE TABLE pledger_message (
    message_key INTEGER PRIMARY KEY AUTOINCREMENT,
    chain_key INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('start', 'signal', 'cancel')),
    message_id TEXT NOT NULL,
    name TEXT NOT NULL,
    body BLOB NOT NULL,
    sent_ms INTEGER NOT NULL,
    keep_id INTEGER NOT NULL CHECK (keep_id IN (0, 1)),
    verdict TEXT CHECK (verdict IN ('delivered', 'undelivered', 'cancelled') OR verdict GLOB 'too_late:*'),
    event_id INTEGER,
    CHECK (event_id IS NULL OR verdict IS NOT NULL)
) STRICT;
CREATE UNIQUE INDEX pledger_message_by_id ON pledger_message (chain_key, message_id);
-- What a closing run still has to give a verdict on; the inbox is a part of it. It has the columns of its own condition,
-- so that who counts need not look at the rows.
CREATE INDEX pledger_message_unsettled ON pledger_message (chain_key, message_key, kind, verdict)
WHERE verdict IS NULL OR (kind = 'cancel' AND verdict = 'delivered');

-- The columns are those of engine.port.records.TaskRow, without what the run knows and no worker looks
-- for.
CREATE TABLE pledger_task (
    task_key INTEGER PRIMARY KEY,
    run_key INTEGER NOT NULL,
    event_id INTEGER NOT NULL CHECK (event_id > 0),
    namespace TEXT NOT NULL,
    task_queue TEXT NOT NULL,
    activity_type TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('queued', 'started', 'done')),
    attempt INTEGER NOT NULL CHECK (attempt > 0),
    due_ms INTEGER NOT NULL,
    command BLOB NOT NULL,
    scheduled_ms INTEGER NOT NULL,
    started_ms INTEGER,
    expires_ms INTEGER,
    owner INTEGER,
    lost INTEGER NOT NULL CHECK (lost IN (0, 1)),
    heartbeat BLOB,
    last_failure BLOB,
    outcome BLOB,
    cancel_requested INTEGER NOT NULL CHECK (cancel_requested IN (0, 1)),
    CHECK ((state = 'started') = (owner IS NOT NULL)),
    CHECK ((state = 'done') = (outcome IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX pledger_task_by_run ON pledger_task (run_key, event_id);
CREATE INDEX pledger_task_due ON pledger_task (namespace, task_queue, activity_type, due_ms)
WHERE state = 'queued';
CREATE INDEX pledger_task_expiry ON pledger_task (namespace, expires_ms)
WHERE state = 'queued' AND expires_ms IS NOT NULL;
CREATE INDEX pledger_task_owned ON pledger_task (owner) WHERE owner IS NOT NULL;

-- The attempt log, in the order of writing.
CREATE TABLE pledger_attempt (
    attempt_key INTEGER PRIMARY KEY,
    run_key INTEGER NOT NULL,
    event_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('failed', 'timed_out', 'lost', 'cancelled', 'late')),
    started_ms INTEGER,
    ended_ms INTEGER NOT NULL,
    worker TEXT NOT NULL,
    failure BLOB
) STRICT;
CREATE INDEX pledger_attempt_by_run ON pledger_attempt (run_key, event_id);

CREATE TABLE pledger_session (
    session_key INTEGER PRIMARY KEY AUTOINCREMENT,
    identity TEXT NOT NULL,
    namespace TEXT NOT NULL,
    task_queue TEXT NOT NULL,
    code TEXT NOT NULL,
    started_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL
) STRICT;

-- Owned runs whose owner has to be told of something. What concerns an ownerless run makes it due instead.
CREATE TABLE pledger_wake (run_key INTEGER PRIMARY KEY) STRICT;

CREATE TABLE pledger_request (
    request_key INTEGER PRIMARY KEY AUTOINCREMENT,
    run_key INTEGER NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    body BLOB NOT NULL,
    expires_ms INTEGER NOT NULL,
    answer BLOB,
    failure BLOB
) STRICT;
CREATE INDEX pledger_request_open ON pledger_request (run_key) WHERE answer IS NULL AND failure IS NULL;
CREATE INDEX pledger_request_expiry ON pledger_request (expires_ms);

-- Rows as the port shows them: the columns of RunRow and of TaskRow, in their order.
CREATE VIEW pledger_run_row AS
SELECT
    run.run_key, run.chain_key, run.namespace, chain.workflow_id, run.run_id, run.workflow_type, run.task_queue,
    run.status, run.input_digest, run.started_ms, run.closed_ms, run.last_event, run.head, run.fence, run.owner,
    run.due_ms, run.claims, run.blocked, run.blocked_code
FROM pledger_run AS run JOIN pledger_chain AS chain USING (chain_key);

CREATE VIEW pledger_task_row AS
SELECT
    task.run_key, task.event_id, task.namespace, chain.workflow_id, run.run_id, run.workflow_type, task.task_queue,
    task.activity_type, task.state, task.attempt, task.due_ms, task.command, task.scheduled_ms, task.started_ms,
    task.expires_ms, task.owner, task.lost, task.heartbeat, task.last_failure, task.outcome, task.cancel_requested
FROM pledger_task AS task JOIN pledger_run AS run USING (run_key) JOIN pledger_chain AS chain USING (chain_key);
