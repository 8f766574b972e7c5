"""What goes wrong in a simulation, how often, and how often it did."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from typing import Final

#: What may happen in a simulation, for the count of hits: a fault that is never hit proves nothing.
KINDS: Final = (
    "kill",
    "kill_before_commit",
    "kill_after_commit",
    "restart",
    "pause",
    "cut_off",
    "clock_jump",
    "clock_drift",
    "store_unavailable",
    "reply_lost",
    "slow_store",
    "disk_full",
    "disk_read_error",
    "locked",
    "duplicate_message",
    "effect_refused",
    "effect_reply_lost",
    "effect_slow",
    "effect_reply_slow",
    "paused",
)


#: What may happen besides where the ledger is a file on a simulated disk.
DISK_KINDS: Final = (
    "kill_in_write",
    "power_loss",
    "power_loss_in_write",
    "bit_flip",
    "disk_open_error",
    "disk_short_write",
    "disk_sync_error",
    "disk_sync_lost",
    "disk_write_error",
)


#: What may happen besides where the ledger is on a server.
SERVER_KINDS: Final = (
    "late_effect",
    "deadlock_victim",
    "statement_timeout",
    "notification_lost",
    "listener_stale",
    "tail_lost",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Rates, all 0 by default: nothing goes wrong, only the order of things is drawn.

    Per second of virtual time, over all processes: kill (a process dies at any instant; another one takes its place a
    while later), restart (it shuts down gracefully instead), pause (it stands still for longer than its lease, then
    goes on), cut_off (it cannot reach the store for as long), clock_jump (the wall clock jumps, which is the store's:
    by up to an hour forward or a minute back; the monotonic clocks of the processes do not, that is what they are for).
    clock_drift: the monotonic clock of a process runs fast or slow by up to this share.
    Share of commits: kill_at_commit (the process dies, half of the time before the commit point, else after it).
    Share of the store's verbs: store_unavailable (fails before it took effect), reply_lost (fails after it took
    effect), slow_store (takes up to some seconds), disk_read_error (of those that only look: they fail; on a simulated
    disk, a share of the reads). Per second: disk_full (for some seconds nothing can be written), locked (for some
    seconds somebody else holds the lock that everybody needs who writes).
    Per second: paused (an operator pauses a run, a type, a queue or a namespace, and resumes it some seconds later).
    reset (an operator resets some run to some event, or redrives it). Which runs there are is then nobody's promise: no
    seed draws it by itself.
    Share of the messages of clients: duplicate_message (sent again although it was acknowledged).
    Share of calls to the outside world: effect_refused (fails, nothing happened), effect_reply_lost (happened, and
    fails), effect_slow (takes up to a minute), effect_reply_slow (happened, and takes as long to say so).

    With store="sqlite" there is a disk that fails. Per second of virtual time: power_loss (every process dies, and of
    what was not synced each sector is kept or lost), bit_flip (a bit of a recorded transition changes on the disk: its
    run must be parked, or say so when it is read). Share of writes and syncs: kill_in_write (the process dies in the
    midst of it), power_loss_in_write. Share of steps of their kind: disk_write_error (fails, half of the time after a
    part was written), disk_sync_error (fails, half of the time with what it was to write lost for good),
    disk_open_error.

    With store="postgres" there is a server, to which connections are lost: store_unavailable is one that is lost before
    anything took effect, reply_lost after it. Share of the verbs that write: late_effect (the connection is lost, and
    what was asked takes effect some seconds later; a commit may be rolled back instead), deadlock_victim (others are in
    the way, nothing is written), statement_timeout (fails after having waited for a lock, nothing is written). Share of
    hints: notification_lost. Per second of virtual time: listener_stale (for some seconds a process hears nothing, and
    does not know), tail_lost (a replica takes over that lacks what was written in the last seconds).
    """

    kill: float = 0.0
    restart: float = 0.0
    pause: float = 0.0
    cut_off: float = 0.0
    clock_jump: float = 0.0
    clock_drift: float = 0.0
    kill_at_commit: float = 0.0
    store_unavailable: float = 0.0
    reply_lost: float = 0.0
    slow_store: float = 0.0
    disk_full: float = 0.0
    disk_read_error: float = 0.0
    locked: float = 0.0
    duplicate_message: float = 0.0
    effect_refused: float = 0.0
    effect_reply_lost: float = 0.0
    effect_slow: float = 0.0
    effect_reply_slow: float = 0.0
    paused: float = 0.0
    reset: float = 0.0
    power_loss: float = 0.0
    bit_flip: float = 0.0
    kill_in_write: float = 0.0
    power_loss_in_write: float = 0.0
    disk_write_error: float = 0.0
    disk_sync_error: float = 0.0
    disk_open_error: float = 0.0
    late_effect: float = 0.0
    deadlock_victim: float = 0.0
    statement_timeout: float = 0.0
    notification_lost: float = 0.0
    listener_stale: float = 0.0
    tail_lost: float = 0.0

    @classmethod
    def swarm(cls, seed: int, store: str = "memory") -> Faults:
        """A mix of its own for each seed: some faults often, some rarely, about half of them not at all.

        store: as in `Simulation`; those of a disk or a server only where there is one.

        A test with every fault at a middling rate never gets deep into anything; leaving some out lets the others show
        what they can do (Groce et al., Swarm Testing, 2012).
        """
        dice = random.Random(f"swarm {seed}")  # noqa: S311 - a test, no secret
        most_of_each = _MOST | _MOST_MORE.get(store, {})
        drawn = {name: dice.random() ** 2 * most for name, most in most_of_each.items() if dice.random() < 0.5}  # noqa: PLR2004
        return dataclasses.replace(cls(), **drawn)


_MOST: Final = {
    "kill": 0.3,
    "restart": 0.1,
    "pause": 0.2,
    "cut_off": 0.1,
    "clock_jump": 0.05,
    "clock_drift": 0.0005,
    "kill_at_commit": 0.1,
    "store_unavailable": 0.1,
    "reply_lost": 0.05,
    "slow_store": 0.05,
    "disk_full": 0.1,
    "disk_read_error": 0.01,
    "duplicate_message": 0.5,
    "effect_refused": 0.4,
    "effect_reply_lost": 0.3,
    "effect_slow": 0.2,
    "locked": 0.1,
    "effect_reply_slow": 0.1,
    "paused": 0.1,
}

#: By store.
_MOST_MORE: Final = {
    "sqlite": {
        "power_loss": 0.1,
        "bit_flip": 0.1,
        "kill_in_write": 0.01,
        "power_loss_in_write": 0.005,
        "disk_write_error": 0.02,
        "disk_sync_error": 0.05,
        "disk_open_error": 0.1,
    },
    "postgres": {
        "late_effect": 0.05,
        "deadlock_victim": 0.3,
        "statement_timeout": 0.05,
        "notification_lost": 1.0,
        "listener_stale": 0.2,
        "tail_lost": 0.1,
    },
}
