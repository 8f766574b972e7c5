"""The bounds of one worker; `Worker` documents them for users."""

from __future__ import annotations

from dataclasses import dataclass

from pledger.history import payloads


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Counts, milliseconds and bytes. verified_share: of finished runs, 0 to 1. commands_max: of one transition; what
    the code asks for beyond them is written by the next ones, so that a wide fan-out keeps nobody else waiting.

    retention_ms: how long finished runs are kept whose workflow says nothing else; None: for ever.
    """

    concurrent_activities_max: int = 1_000
    activity_threads_max: int = 64
    transactions_max: int = 1
    cached_runs_max: int = 1_000
    lease_ms: int = 5_000
    payload_bytes_max: int = payloads.PAYLOAD_BYTES_MAX
    history_events_max: int = 500_000
    history_bytes_max: int = 100_000_000
    commands_max: int = 100
    verified_share: float = 0.01
    retention_ms: int | None = 30 * 86_400_000
