-- Runs that nobody holds and nothing blocks, whatever they wait for: for who counts what is open.
--
-- compatible-from: 1
--
-- Partial as those of due, blocked and owned runs are, and without due_ms: neither a run's birth in a worker nor a step of
-- an owned run writes it. It has the columns of its own condition, so that who counts need not look at the rows.
CREATE INDEX pledger_run_free ON pledger_run (namespace, task_queue, workflow_type, status, owner, blocked)
WHERE status = 'running' AND owner IS NULL AND blocked IS NULL;
