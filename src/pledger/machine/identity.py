"""Who a run is."""

from __future__ import annotations

from pledger.history import chains


class RunIdentity:
    """Who a run is: what `workflow.info()` shows of it. chain_id, segment: its place in a chain, as its run id says,
    where nobody says otherwise."""

    __slots__ = ("chain_id", "namespace", "run_id", "segment", "task_queue", "workflow_id", "workflow_type")

    def __init__(
        self,
        *,
        namespace: str,
        workflow_id: str,
        run_id: str,
        workflow_type: str,
        task_queue: str,
        chain_id: str | None = None,
        segment: int | None = None,
    ) -> None:
        self.namespace = namespace
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.workflow_type = workflow_type
        self.task_queue = task_queue
        if chain_id is None or segment is None:
            chain_id, segment = chains.place_of(run_id)
        self.chain_id = chain_id
        self.segment = segment

    def __str__(self) -> str:
        return f"workflow {self.workflow_id!r} ({self.workflow_type}, run {self.run_id})"
