"""What errors say of a run, also of one whose history retention has removed."""

from __future__ import annotations

from pledger.engine.port.records import RunRow
from pledger.errors import NoLongerKeptError
from pledger.history.times import utc


def in_words(row: RunRow) -> str:
    return f"workflow {row.workflow_id!r} ({row.workflow_type}, run {row.run_id})"


def afterwards(row: RunRow) -> str:
    """What is to be done about a closed run."""
    if row.is_forgotten:
        return "Retention has removed its history"
    import shlex  # noqa: PLC0415 - for this text only

    return f"What became of it: handle.result(), or pledger show {shlex.quote(row.workflow_id)}"


def check_kept(row: RunRow) -> None:
    """Raises NoLongerKeptError for a run that is forgotten."""
    if not row.is_forgotten:
        return
    closed = utc(row.closed_ms or 0).isoformat(timespec="seconds")
    raise NoLongerKeptError(
        f"{in_words(row)} is {row.status} since {closed}, and "
        "retention has removed its history with its result: the ledger remembers its id, the digest of its input and "
        "how it ended. If it was exported, `pledger history ID --archive FILE` reads it there; keep the next ones for "
        "longer with @workflow.defn(retention=...) or Worker(retention=...)",
        workflow_id=row.workflow_id,
        run_id=row.run_id,
        status=row.status,
    )
