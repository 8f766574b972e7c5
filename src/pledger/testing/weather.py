"""What a simulated store does to those who ask: latency, failures around the commit point, death at a commit."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from pledger import errors

if TYPE_CHECKING:
    from pledger.testing.faults import Faults
    from pledger.testing.process import Process

#: Verbs that only look: an answer of theirs that is lost is the same as one that failed.
READS: Final = frozenset(
    {
        "find_run",
        "read_run",
        "read_current",
        "read_statuses",
        "read_history",
        "read_stored_runs",
        "read_last_transitions",
        "list_runs",
        "count_runs",
        "read_labels",
        "attribute_kinds",
        "count_open",
        "read_inbox",
        "read_message",
        "read_undelivered",
        "expired_tasks",
        "read_tasks",
        "read_attempts",
        "now_ms",
        "read_sessions",
        "look",
        "read_mail",
        "read_pauses",
        "read_dependencies",
        "finished_types",
        "finished_chains",
        "chain_runs",
        "read_losses",
        "read_pieces",
        "read_token_keys",
        "read_resets",
        "read_stream",
        "read_streams",
        "read_stream_ends",
    }
)
#: How long a verb takes, in seconds: mostly, and when the store is slow.
LATENCY_S: Final = 0.002
SLOW_S: Final = 3.0


class Weather:
    """The fault hooks of one handle. has_disk: whether the store has one, which brings its own failures."""

    def __init__(self, process: Process, *, has_disk: bool = False) -> None:
        self._process = process
        self._has_disk = has_disk
        self._dice = process.dice

    def before(self, verb: str, _: tuple[object, ...]) -> Awaitable[None] | None:
        if verb == "wait_for_change":
            return None
        faults = self._process.surroundings.faults()
        draw = self._dice.random
        if self._process.cut_off:
            raise errors.StoreUnavailableError(f"simulated: {self._process.name} is cut off, at {verb}")
        if verb == "commit" and faults.kill_at_commit and draw() < faults.kill_at_commit / 2:
            self._process.kill("kill_before_commit")
            return None
        if faults.store_unavailable and draw() < faults.store_unavailable:
            self._fail("store_unavailable", verb)
        if not self._has_disk:
            self._disk_fails(verb, faults)
        return self._latency(verb, faults)

    def _disk_fails(self, verb: str, faults: Faults) -> None:
        """What a disk, and a lock on its file, would do to the verb."""
        if verb in READS:
            if faults.disk_read_error and self._dice.random() < faults.disk_read_error:
                self._fail("disk_read_error", verb)
        elif self._process.surroundings.ledger.is_full:
            self._fail("disk_full", verb)
        elif self._process.surroundings.ledger.is_locked:
            self._fail("locked", verb)

    def after(self, verb: str, _: tuple[object, ...]) -> Awaitable[None] | None:
        if verb == "wait_for_change":
            return None
        faults = self._process.surroundings.faults()
        draw = self._dice.random
        if verb == "commit" and faults.kill_at_commit and draw() < faults.kill_at_commit / 2:
            self._process.kill("kill_after_commit")
            return None
        if faults.reply_lost and verb not in READS and draw() < faults.reply_lost:
            self._fail("reply_lost", verb)
        return self._latency(verb, faults)

    def _fail(self, kind: str, verb: str) -> None:
        self._process.surroundings.hit(kind)
        self._process.note(f"{kind}: {verb}")
        raise errors.StoreUnavailableError(f"simulated: {kind} at {verb}")

    def _latency(self, verb: str, faults: Faults) -> Awaitable[None] | None:
        if verb == "renew_session":
            return None  # it cannot wait
        draw = self._dice.random
        if faults.slow_store and draw() < faults.slow_store:
            self._process.surroundings.hit("slow_store")
            return self._process.loop.pause(draw() * SLOW_S)
        return self._process.loop.pause(draw() * LATENCY_S) if draw() < 0.5 else None  # noqa: PLR2004 - half of them at once
