"""Rows for tests, with the dull fields filled in."""

from __future__ import annotations

from pledger.engine.port.records import RunRow


def a_run(run_key: int = 5) -> RunRow:
    return RunRow(
        run_key=run_key,
        chain_key=run_key,
        namespace="default",
        workflow_id="order-1",
        run_id="run-1",
        workflow_type="fulfil",
        task_queue="default",
        status="running",
        input_digest=b"digest",
        started_ms=0,
        closed_ms=None,
        last_event=2,
        head=bytes(8),
        fence=1,
        owner=7,
        due_ms=None,
        claims=0,
        blocked=None,
        blocked_code=None,
    )
