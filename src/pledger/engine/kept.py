"""What may be said of a run whose history retention has removed."""

from __future__ import annotations

from pledger.engine.port.records import RunRow
from pledger.errors import NoLongerKeptError
from pledger.history.times import utc


def check_kept(row: RunRow) -> None:
    """Raises NoLongerKeptError for a run that is forgotten."""
    if not row.is_forgotten:
        return
    closed = utc(row.closed_ms or 0).isoformat(timespec="seconds")
    raise NoLongerKeptError(
        f"workflow {row.workflow_id!r} ({row.workflow_type}, run {row.run_id}) is {row.status} since {closed}, and "
        "retention has removed its history with its result: the ledger remembers its id, the digest of its input and "
        "how it ended. If it was exported, `pledger history ID --archive FILE` reads it there; keep the next ones for "
        "longer with @workflow.defn(retention=...) or Worker(retention=...)",
        workflow_id=row.workflow_id,
        run_id=row.run_id,
        status=row.status,
    )
